-- Acknowledges items: they are consumed and gone.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3... item ids `mailbox/seq`
-- Answers  {'ok', how many were unacknowledged until now}: acknowledging twice is nothing
--          · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local member, incarnation = ARGV[1], ARGV[2]
local wrong = wrong_type(key('unacked', member), 'hash')
if wrong then return wrong end
for i = 3, #ARGV do
  local name = string.match(ARGV[i], '^(.*)/%d+$')
  if not name then return redis.error_reply('UNKNOTARG ' .. ARGV[i] .. ' is no item id') end
  wrong = mailbox_types(name)
  if wrong then return wrong end
end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local count = 0
for i = 3, #ARGV do
  local name, seq = string.match(ARGV[i], '^(.*)/(%d+)$')
  if redis.call('HDEL', key('unacked', member), ARGV[i]) == 1 then
    redis.call('HDEL', key('mboxi', name), seq, seq .. 'h')
    redis.call('HINCRBY', key('mbox', name), 'acked', 1)
    count = count + 1
  end
end
return {'ok', count}
