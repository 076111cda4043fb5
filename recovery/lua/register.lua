-- Registers a member's process: the next incarnation, and the end of every older one.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 role  3 pid  4 host  5 boot (random, one per process start)  6 lease_s  7 actor_id or ''
-- Answers  {'ok', incarnation, locks freed, items put back}; the same incarnation again for the same boot token
--
-- Writes member:<member> (`crash`: see member_crashed.lua, where the one before had not said that it ended), members; of older incarnations: waits, queues, lock:<name>, held, unacked, mailboxes,
-- asked, sent, wake keys; one record in events: the fence of older incarnations, and the start of this one, so that
-- nobody waits for a process that is not known to run before its own first record.
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local member, role, pid, host, boot, lease_s, actor_id = unpack(ARGV)
local hash = key('member', member)

local wrong = void_types(member)
if wrong then return wrong end
local known = redis.call('HMGET', hash, 'boot', 'incarnation', 'state')
if known[1] == boot then return {'ok', known[2], 0, 0} end

-- An incarnation that is expected (member_expect, member_crashed) has no process yet: this one takes it.
local incarnation = tonumber(known[2] or '0')
if known[3] ~= 'starting' or incarnation == 0 then incarnation = redis.call('HINCRBY', hash, 'incarnation', 1) end
local now = stamp(clock())
if known[3] == 'alive' then
  redis.call('HSET', hash, 'crash', known[2] .. '|' .. now .. '|' .. 'a new process took its place')
end
redis.call('SADD', P .. 'members', member)
redis.call('HSET', hash, 'role', role, 'state', 'alive', 'pid', pid, 'host', host, 'boot', boot,
  'registered_at', now, 'beat_at', now, 'lease_s', lease_s, 'actor_id', actor_id)
redis.call('HDEL', hash, 'error', 'ended_at', 'n', 'progress')
local locks, items = 0, 0
if incarnation > 1 then locks, items = void_older(member, incarnation) end
announce({fence_of(member, incarnation), start_of(member, role, incarnation)})
return {'ok', tostring(incarnation), locks, items}
