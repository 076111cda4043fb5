-- Keeps the result of an outside call until its step is committed: the first that is told stands.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 seq of the step  4 key  5 result; absent to ask only
-- Answers  {'kept', result} · {'none'} · {'fenced', current incarnation}
-- include: steps

local member, incarnation, seq, name, result = unpack(ARGV)
local wrong = step_types(member)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local field = seq .. '|' .. name
if result then redis.call('HSETNX', key('once', member), field, result) end
local kept = redis.call('HGET', key('once', member), field)
if kept then return {'kept', kept} end
return {'none'}
