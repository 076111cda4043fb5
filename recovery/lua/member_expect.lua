-- Says that a member will be started: from now on it counts as one that runs, so nobody who waits for it is stuck.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 role
-- Answers  {'ok'} · {'known', state}: a process of it has registered, or it is expected already
--
-- Writes member:<member> (state `starting`, incarnation as it was, 0 at first), members, one record in events: a start of
-- the incarnation before the first one, which that one's registration voids.
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local member, role = unpack(ARGV)
local hash = key('member', member)
local wrong = void_types(member)
if wrong then return wrong end
local known = redis.call('HGET', hash, 'state')
if known == 'alive' or known == 'starting' then return {'known', known} end

local incarnation = tonumber(redis.call('HGET', hash, 'incarnation') or '0')
if known then
  incarnation = redis.call('HINCRBY', hash, 'incarnation', 1)
  void_older(member, incarnation)
end
redis.call('SADD', P .. 'members', member)
redis.call('HSET', hash, 'role', role, 'state', 'starting', 'incarnation', incarnation)
redis.call('HDEL', hash, 'error', 'ended_at', 'n', 'progress', 'boot', 'pid', 'host', 'actor_id')
announce({fence_of(member, incarnation), start_of(member, role, incarnation)})
return {'ok'}
