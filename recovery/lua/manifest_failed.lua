-- A rank says that a save of its group has failed. It stands until a manifest of the group is committed (manifest_answer.lua).
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 generation  3 member  4 incarnation  5 seq  6 JSON of the failure
-- Answers  {'ok', since}: seconds, when the first failure since the last commit was told · {'over'}: the generation is
--          · {'fenced', current incarnation}
--
-- Of one save the first failure told stays: what the other ranks meet then follows from it.
-- include: common
-- include: manifests

local group, generation, member, incarnation, seq, body = unpack(ARGV)
local failed = P .. 'manifest_failed'
local wrong = wrong_type(failed, 'hash', key('group', group), 'hash', key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
if not generation_stands(group, generation) then return {'over'} end
local since, of = string.match(redis.call('HGET', failed, group) or '', '^(%S+) (%S+)\n')
if of == generation .. '/' .. seq then return {'ok', since} end
since = since or stamp(clock())
redis.call('HSET', failed, group, since .. ' ' .. generation .. '/' .. seq .. '\n' .. body)
return {'ok', since}
