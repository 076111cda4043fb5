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
  wrong = consuming_types(name)
  if wrong then return wrong end
end
wrong = ordered_types()
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local count = 0
for i = 3, #ARGV do if acknowledge(member, ARGV[i]) then count = count + 1 end end
if count > 0 then pump_ordered() end
return {'ok', count}
