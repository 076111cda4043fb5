-- Declares a mailbox; declaring it again the same way is nothing.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 capacity  3 senders (JSON list, '' = anybody)  4 receivers (JSON list, '' = anybody)
--          5 ack: `step` or `manifest`  6 order: `arrival` or `origin`  7 origins (JSON list of members; '' unless by origin)
-- Answers  {'ok'} · {'differs', capacity, senders, receivers, ack, order, origins}: what stands, nothing was changed
-- include: common
-- include: items

local FIELDS = {'capacity', 'senders', 'receivers', 'ack', 'order', 'origins'}
local name = ARGV[1]
local hash = key('mbox', name)
local wrong = mailbox_types(name) or wrong_type(P .. 'mailboxes', 'set', P .. 'ordered', 'set')
if wrong then return wrong end
local known = redis.call('HMGET', hash, unpack(FIELDS))
if known[1] then
  local same, stands_now = true, {'differs'}
  for i = 1, #FIELDS do
    same = same and (known[i] or '') == ARGV[i + 1]
    stands_now[i + 1] = known[i] or ''
  end
  return same and {'ok'} or stands_now
end
redis.call('SADD', P .. 'mailboxes', name)
if ARGV[6] == 'origin' then redis.call('SADD', P .. 'ordered', name) end
redis.call('HSET', hash, 'sent', 0, 'taken', 0, 'acked', 0, 'addressed', 0, 'round', 1, 'place', 0)
for i, field in ipairs(FIELDS) do
  if ARGV[i + 1] ~= '' then redis.call('HSET', hash, field, ARGV[i + 1]) end
end
return {'ok'}
