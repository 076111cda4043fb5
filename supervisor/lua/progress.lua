-- Notes a member's progress marks.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 marks (JSON)
-- Answers  {'ok'} · {'fenced', current incarnation}
-- include: common

local member, incarnation, marks = unpack(ARGV)
local hash = key('member', member)
local wrong = wrong_type(hash, 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
redis.call('HSET', hash, 'progress', marks)
return {'ok'}
