-- Consumes what a group has taken in steps that nobody will repeat. Items of a take that never became complete go back.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 steps before this one  3 kind: `step` (mailboxes with ack `step` alone) or `manifest` (all)
--          4 member and 5 incarnation of the asking rank, or '' and ''
-- Answers  {'ok', how many items were consumed}: nothing the second time · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local group, before, kind, member, incarnation = unpack(ARGV)
local wrong = wrong_type(key('takes', group), 'zset', key('kept', group), 'hash') or ordered_types()
if wrong then return wrong end
local due = {}
for _, place in ipairs(redis.call('ZRANGEBYSCORE', key('takes', group), '-inf', '(' .. before)) do
  local id = group .. '/' .. place
  wrong = take_types(id)
  if wrong then return wrong end
  local found = redis.call('HMGET', key('take', id), 'mailbox', 'n', 'have')
  wrong = mailbox_types(found[1])
  if wrong then return wrong end
  if kind == 'manifest' or redis.call('HGET', key('mbox', found[1]), 'ack') == 'step' then
    due[#due + 1] = {place = place, id = id, name = found[1], complete = found[2] == found[3], have = tonumber(found[3])}
  end
end
local newer = member ~= '' and replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local function give_back(take, seqs)
  redis.call('HINCRBY', key('mbox', take.name), 'taken', -#seqs)
  for i, seq in ipairs(seqs) do
    note_live(take.name, seq, head_of(take.name, seq))
    seqs[i] = tonumber(seq)
  end
  if #seqs > 0 then put_back(take.name, seqs) end
end

local consumed = 0
for _, take in ipairs(due) do
  local seqs = {}
  for i = 1, take.have do seqs[i] = redis.call('HGET', key('take', take.id), 'slot:' .. i) end
  wake_takers(take.id)
  redis.call('DEL', key('take', take.id))
  redis.call('ZREM', key('takes', group), take.place)
  if redis.call('HINCRBY', key('kept', group), take.name, -take.have) <= 0 then
    redis.call('HDEL', key('kept', group), take.name)
  end
  if take.complete then
    for _, seq in ipairs(seqs) do delete_item(take.name, seq) end
    consumed = consumed + #seqs
  else
    give_back(take, seqs)
    pump(take.name)
  end
end
return {'ok', consumed}
