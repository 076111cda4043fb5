-- A rank says that a call of its group has failed: the group's next generation passes it over. Only while its generation stands,
-- so all ranks of the next one see the same.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 generation  3 member  4 incarnation  5 id of the call  6 failure
-- Answers  {'ok', 1 or 0}: whether it is the first failure of that call · {'over'}: the generation is
--          · {'fenced', current incarnation}
-- include: common
-- include: manifests

local group, generation, member, incarnation, call, failure = unpack(ARGV)
local errors = P .. 'call_errors'
local wrong = wrong_type(errors, 'hash', key('group', group), 'hash', key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
if not generation_stands(group, generation) then return {'over'} end
return {'ok', redis.call('HSETNX', errors, call, failure)}
