-- Ends an attempt that was not committed: it never will be.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 id  2 member  3 incarnation  4 why
-- Answers  {'abandoned', why}: now or before, with the first reason · {'over', state}: it is committed or dropped
--          · {'unknown'} · {'fenced', current incarnation}
-- include: common
-- include: manifests

local id, member, incarnation, why = unpack(ARGV)
local wrong = attempt_types(id) or wrong_type(key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', key('manifest', id), 'state', 'why')
if not now[1] then return {'unknown'} end
if now[1] == 'abandoned' then return {'abandoned', now[2] or ''} end
if now[1] ~= 'preparing' then return {'over', now[1]} end
abandon(id, why)
return {'abandoned', why}
