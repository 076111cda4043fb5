-- Undoes a step that will be run again: its items go back in front, in order; what it locked is passed on.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 participant  4 plan (JSON): {"acks": [item id, ...], "locks": [[name, token], ...]}
-- Answers  {'ok', items put back} · {'fenced', current incarnation}; twice is once
-- include: steps

local member, incarnation, participant = unpack(ARGV)
local plan = cjson.decode(ARGV[4])
local wrong = step_types(member) or id_types(plan.acks) or step_lock_types(plan.locks)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local boxes = {}
for _, id in ipairs(plan.acks) do
  if redis.call('HEXISTS', key('unacked', member), id) == 1 then
    local name, seq = string.match(id, '^(.*)/(%d+)$')
    boxes[name] = boxes[name] or {}
    table.insert(boxes[name], tonumber(seq))
  end
end
free_step_locks(participant, plan.locks)
return {'ok', requeue_items(member, boxes)}
