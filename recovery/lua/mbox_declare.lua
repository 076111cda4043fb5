-- Declares a mailbox; declaring it again the same way is nothing.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 capacity  3 senders (JSON list, '' = anybody)  4 receivers (JSON list, '' = anybody)
-- Answers  {'ok'} · {'differs', capacity, senders, receivers}: what stands, nothing was changed
-- include: common
-- include: mailboxes

local name, capacity, senders, receivers = unpack(ARGV)
local hash = key('mbox', name)
local wrong = mailbox_types(name) or wrong_type(P .. 'mailboxes', 'set')
if wrong then return wrong end
local known = redis.call('HMGET', hash, 'capacity', 'senders', 'receivers')
if known[1] then
  if known[1] == capacity and (known[2] or '') == senders and (known[3] or '') == receivers then return {'ok'} end
  return {'differs', known[1], known[2] or '', known[3] or ''}
end
redis.call('SADD', P .. 'mailboxes', name)
redis.call('HSET', hash, 'capacity', capacity, 'sent', 0, 'taken', 0, 'acked', 0)
if senders ~= '' then redis.call('HSET', hash, 'senders', senders) end
if receivers ~= '' then redis.call('HSET', hash, 'receivers', receivers) end
return {'ok'}
