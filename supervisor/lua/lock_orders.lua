-- Adds ways in which a process took locks of the run, one while it held another, to those that are known.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 how many ways are kept  4... the ways (JSON, the same text for the same way)
-- Answers  {'ok', number of ways that were not kept} · {'fenced', current incarnation}
-- include: common

local member, incarnation, kept = ARGV[1], ARGV[2], tonumber(ARGV[3])
local orders = P .. 'orders'
local wrong = wrong_type(orders, 'set', key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local known, left_out = redis.call('SCARD', orders), 0
for at = 4, #ARGV do
  if known < kept then
    known = known + redis.call('SADD', orders, ARGV[at])
  else
    left_out = left_out + 1
  end
end
return {'ok', tostring(left_out)}
