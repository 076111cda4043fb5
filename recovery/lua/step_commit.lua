-- Commits one step of a member: all of it or nothing, once.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 participant  4 ticket  5 mode: `wait`, `leave` (as lock_acquire)  6 seq
--          7 how many versions of weights are kept
--          8 plan (JSON): {"acks": [item id, ...],
--              "sends": [{"box", "to", "origin" ('' for the member's own), "number", "sub"}, ...],
--              "writes": [key, ...], "publishes": [{"name", "n", "digest"}, ...], "locks": [[name, token], ...]}
--          9... values of the sends, the writes and the publishes, in their order
-- Answers  {'committed', next seq, 1 if the run is ending else 0}; the same again for the same ticket
--          · {'queued'}: some mailbox is full; asks again when there may be room · {'left'} · {'interrupted', incident}
--          · {'closed'} · {'conflict', what}: items of it are in its hands no more, or other steps were committed; nothing is
--          done · {'unknown', mailbox} · {'no origin', mailbox, origin} · {'stale', name, n, generation}: weights
--          · {'fenced', current incarnation}
--
-- A commit that waits for room holds nothing of what it will write: it stands in `mboxc` of all its mailboxes and is asked
-- again. It needs room for all its items at once.
-- include: steps

local member, incarnation, participant, ticket, mode, seq, keep = unpack(ARGV)
local plan = cjson.decode(ARGV[8])
local entry = entry_of(participant, ticket)

local function plan_types()
  local wrong = step_types(member) or id_types(plan.acks) or step_lock_types(plan.locks)
  if wrong then return wrong end
  for _, send in ipairs(plan.sends) do
    wrong = mailbox_types(send.box)
    if wrong then return wrong end
  end
  for _, weights in ipairs(plan.publishes) do
    wrong = weights_types(weights.name)
    if wrong then return wrong end
  end
  return nil
end

-- The sends by mailbox: {box = {heads}}, and the boxes in order. An own item's number is what it will get.
local function by_mailbox()
  local boxes, heads = {}, {}
  for _, send in ipairs(plan.sends) do
    if not heads[send.box] then
      heads[send.box] = {}
      boxes[#boxes + 1] = send.box
    end
    local head = {origin = send.origin, origin_number = send.number}
    if send.origin == '' then
      head = next_own(send.box, member)
      for _, other in ipairs(heads[send.box]) do
        if other.origin == member then head.origin_number = other.origin_number + 1 end
      end
    end
    table.insert(heads[send.box], head)
  end
  return boxes, heads
end

-- Why the plan can never be carried out as it is, or nil.
local function unfit(boxes, heads)
  for _, id in ipairs(plan.acks) do
    if redis.call('HEXISTS', key('unacked', member), id) == 0 then return {'conflict', 'item ' .. id} end
  end
  for _, box in ipairs(boxes) do
    if redis.call('HEXISTS', key('mbox', box), 'capacity') == 0 then return {'unknown', box} end
    for _, head in ipairs(heads[box]) do
      if by_origin(box) and not place_of(box, head.origin) then return {'no origin', box, head.origin} end
    end
  end
  for _, weights in ipairs(plan.publishes) do
    if judge_weights(weights.name, weights.n, '0', weights.digest) == 'stale' then
      local now = redis.call('HMGET', key('weights', weights.name), 'n', 'newest_generation')
      return {'stale', weights.name, now[1], now[2]}
    end
  end
  return nil
end

local function write_all(boxes)
  local body = 8
  local function value()
    body = body + 1
    return ARGV[body]
  end
  unstand(member, entry)
  for _, id in ipairs(plan.acks) do acknowledge(member, id) end
  for _, send in ipairs(plan.sends) do
    local from = send.origin ~= '' and {origin = send.origin, origin_number = send.number, sub = send.sub} or nil
    accept_item(send.box, member, participant, value(), from, send.to)
  end
  for _, name in ipairs(plan.writes) do redis.call('HSET', key('state', member), name, value()) end
  for _, weights in ipairs(plan.publishes) do
    local payload = value()
    local verdict, n = judge_weights(weights.name, weights.n, '0', weights.digest)
    if verdict == 'new' then put_weights(weights.name, n, '0', weights.digest, payload, participant, entry, keep) end
  end
  redis.call('DEL', key('once', member))
  redis.call('HSET', key('step', member), 'committed', string.format('%d', tonumber(seq) + 1), 'token', entry,
    'at', stamp(clock()))
  free_step_locks(participant, plan.locks)
  for _, box in ipairs(boxes) do pump(box) end
  pump_ordered()
end

local wrong = plan_types()
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local ending = run_ends() and '1' or '0'
local next_seq = string.format('%d', tonumber(seq) + 1)
if redis.call('HGET', key('step', member), 'token') == entry then return {'committed', next_seq, ending} end
if committed_steps(member) ~= tonumber(seq) then
  unstand(member, entry)
  return {'conflict', 'step ' .. committed_steps(member) .. ' is next'}
end
local incident = interrupted_in(outcome_of(member, participant, ticket))
if incident then return {'interrupted', incident} end
if mode == 'leave' then return refused(member, participant, ticket, mode) end
local boxes, heads = by_mailbox()
local no = unfit(boxes, heads)
if no then
  unstand(member, entry)
  return no
end
for _, box in ipairs(boxes) do
  if not has_room(box, #heads[box], heads[box]) then
    no = refused(member, participant, ticket, mode)
    if no then return no end
    if not stands(member, entry) then stand(member, entry, 'commit', table.concat(boxes, '/')) end
    return {'queued'}
  end
end
write_all(boxes)
return {'committed', next_seq, ending}
