-- What the store alone knows for certain, all at one instant: how many items mailboxes have, who holds locks, and which
-- waits still stand. (A wait that was served, but whose thread has not woken yet, does not stand any more.)
--
-- KEYS[1]  prefix of the run
-- ARGV     for each question two: `count` and a mailbox, `holder` and a lock, `stands` and an entry `participant|ticket`
-- Answers  {one answer per question}: the count and the members that have items of it in their hands, the holder's participant
--          or '', 1 or 0
--
-- Of a mailbox in order of origin whose first item is not due, none counts: no receiver can have it.
-- include: common
-- include: origins

local function deliverable(name)
  if by_origin(name) and not due_item(name) then return 0 end
  return queue_length(name)
end

local answers = {}
for i = 1, #ARGV, 2 do
  local kind, name = ARGV[i], ARGV[i + 1]
  if kind == 'count' then
    answers[#answers + 1] = {deliverable(name), redis.call('HKEYS', key('holding', name))}
  elseif kind == 'holder' then
    answers[#answers + 1] = redis.call('HGET', key('lock', name), 'holder') or ''
  else
    local _, _, member = parse_entry(name)
    answers[#answers + 1] = (member and stands(member, name)) and 1 or 0
  end
end
return answers
