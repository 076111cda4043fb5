-- A driver takes a run, or renews its claim.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 driver token (random, one per claim)  2 driver_name (pid@host)  3 lease_s  4 mode: `take` or `renew`
-- Answers  {'ok', 'new' | 'continued' | 'renewed'} · {'busy', driver_name}: another driver is alive (take), or has taken
--          the run (renew)
--
-- A run whose driver died is continued as it stands. A run that was closed begins anew: its mailboxes, published weights,
-- members' steps and state and the record of its checkpoints go (their files stay), whatever processes are left of it are
-- fenced. Incarnations, lock tokens, generations and the numbers of manifests keep growing.
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local token, driver_name, lease_s, mode = unpack(ARGV)
local run = P .. 'run'

local function begin_anew()
  local members = redis.call('SMEMBERS', P .. 'members')
  for _, member in ipairs(members) do remove_waiters(member, 'closed') end
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'mailboxes')) do
    redis.call('DEL', key('mbox', name), key('mboxq', name), key('mboxi', name), key('mboxw', name),
      key('mboxr', name), key('mboxs', name), key('mboxo', name), key('mboxc', name), key('holding', name))
  end
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'published')) do
    redis.call('DEL', key('weights', name), key('weightsq', name), key('weightsv', name), key('weightsm', name))
  end
  for _, id in ipairs(redis.call('HVALS', P .. 'manifest_ids')) do redis.call('DEL', key('manifest', id)) end
  for _, group in ipairs(redis.call('SMEMBERS', P .. 'takers')) do
    for _, one in ipairs(redis.call('ZRANGE', key('takes', group), 0, -1)) do
      redis.call('DEL', key('take', group .. '/' .. one), key('takeq', group .. '/' .. one))
    end
    redis.call('DEL', key('takes', group), key('kept', group))
  end
  redis.call('DEL', P .. 'mailboxes', P .. 'ordered', P .. 'published', P .. 'takers', P .. 'events', P .. 'manifests',
    P .. 'manifest_ids', P .. 'call_errors', P .. 'calls_done', P .. 'manifest_wanted', P .. 'manifest_failed',
    P .. 'orders', P .. 'hazards')
  for _, member in ipairs(members) do
    redis.call('DEL', key('unacked', member), key('asked', member), key('sent', member), key('origins', member),
      key('origin', member), key('step', member), key('state', member), key('once', member),
      key('marks', member))
    free_locks(member)
    local hash = key('member', member)
    local incarnation = redis.call('HINCRBY', hash, 'incarnation', 1)
    redis.call('HSET', hash, 'state', 'done', 'boot', '')
    announce({fence_of(member, incarnation)})
  end
  redis.call('DEL', P .. 'members')
end

local wrong = wrong_type(run, 'hash', P .. 'members', 'set', P .. 'mailboxes', 'set', P .. 'published', 'set',
  P .. 'events', 'stream', P .. 'manifest_ids', 'hash', P .. 'ordered', 'set', P .. 'takers', 'set')
if wrong then return wrong end
for _, member in ipairs(redis.call('SMEMBERS', P .. 'members')) do
  wrong = void_types(member)
  if wrong then return wrong end
end
local now = clock()
local known = redis.call('HMGET', run, 'state', 'driver', 'driver_name', 'lease_until')
local live = (known[1] == 'live' or known[1] == 'closing') and known[2] and tonumber(known[4] or '0') > now
if known[2] == token and known[1] ~= 'closed' then
  redis.call('HSET', run, 'lease_until', stamp(now + tonumber(lease_s)))
  return {'ok', 'renewed'}
end
if mode == 'renew' or live then return {'busy', known[3] or ''} end

local how = 'continued'
if known[1] == 'closed' then begin_anew() end
if known[1] ~= 'live' and known[1] ~= 'closing' then
  how = 'new'
  redis.call('HSET', run, 'started_at', stamp(now))
end
redis.call('HDEL', run, 'ended_at')
redis.call('HSET', run, 'state', 'live', 'driver', token, 'driver_name', driver_name,
  'lease_until', stamp(now + tonumber(lease_s)))
return {'ok', how}
