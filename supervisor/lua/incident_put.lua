-- Writes an incident, for the leader only.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 leader token  2 incident id  3 incident (JSON)  4 opened_at: orders the list
-- Answers  {'ok'} · {'stale', leader's token, holder}: somebody else leads; nothing was written
-- include: common

local token, id, body, opened_at = unpack(ARGV)
local wrong = wrong_type(P .. 'incidents', 'zset', key('incident', id), 'string')
if wrong then return wrong end
local leader = redis.call('HMGET', P .. 'leader', 'token', 'holder')
if (leader[1] or '0') ~= token then return {'stale', leader[1] or '0', leader[2] or ''} end
redis.call('SET', key('incident', id), body)
redis.call('ZADD', P .. 'incidents', opened_at, id)
return {'ok'}
