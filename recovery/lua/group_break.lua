-- Ends a generation: compare-and-set on its number.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 generation  3 reason  4 member and 5 incarnation, or '' and '' for the supervisor
--          6 leader token, or ''
-- Answers  {'broken'}: by this call, or before · {'gone', generation, state}: another generation stands, or it is done
--          · {'fenced', current incarnation} · {'stale', leader's token}
-- include: common
-- include: groups

local name, generation, reason, member, incarnation, token = unpack(ARGV)
local wrong = group_types(name)
if wrong then return wrong end
local newer = member ~= '' and replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local leader = redis.call('HGET', P .. 'leader', 'token') or '0'
if token ~= '' and token ~= leader then return {'stale', leader} end
local now = redis.call('HMGET', key('group', name), 'generation', 'state')
if now[1] ~= generation or now[2] == 'done' then return {'gone', now[1] or '0', now[2] or ''} end
if now[2] ~= 'broken' then break_group(name, reason) end
return {'broken'}
