-- Gives a lock up; the first waiter has it at once.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 token
-- Answers  {'released', next holder's entry or ''} · {'gone'}: not held with this token (any more)
--          · {'fenced', current incarnation}
-- include: common
-- include: locks

local name, member, incarnation, participant, token = unpack(ARGV)

local wrong = lock_types(name)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local lock = redis.call('HMGET', key('lock', name), 'holder', 'token')
if lock[1] ~= participant or lock[2] ~= token then return {'gone'} end
return {'released', pass_on(name) or ''}
