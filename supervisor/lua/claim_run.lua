-- A driver takes a run, or renews its claim.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 driver token (random, one per claim)  2 driver_name (pid@host)  3 lease_s  4 mode: `take` or `renew`
--          5 which process the driver is, for others on its host ('' if that cannot be said)  6 token of a driver whose
--          process is known to be gone, or '': its lease counts no more, if it still is that one's
-- Answers  {'ok', 'new' | 'continued' | 'renewed'} · {'busy', driver_name, token, process}: another driver is alive
--          (take), or has taken the run (renew)
--
-- Every start begins without members and without incidents: whatever processes are left of the one before are fenced, its
-- incidents go to `incidents_before`, and its monitor leads no longer. A run whose driver died keeps all else: steps,
-- states, mailboxes (with the items that its members had in hand), weights, manifests. A run that was closed begins anew:
-- these go too (files of checkpoints stay). Incarnations, lock tokens, generations and the numbers of manifests keep growing.
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local token, driver_name, lease_s, mode, process, gone = unpack(ARGV)
local run = P .. 'run'

local INCIDENTS_KEPT = 1000

-- Fences whatever is left of the members: who is started again registers anew.
local function leave_members(state, why)
  for _, member in ipairs(redis.call('SMEMBERS', P .. 'members')) do
    local hash = key('member', member)
    local incarnation = redis.call('HINCRBY', hash, 'incarnation', 1)
    void_older(member, incarnation)
    redis.call('HSET', hash, 'state', state, 'boot', '', 'error', why, 'ended_at', stamp(clock()))
    redis.call('HDEL', hash, 'crash')
    redis.call('DEL', key('marks', member))
    announce({fence_of(member, incarnation)})
  end
  pump_ordered()
  redis.call('DEL', P .. 'members')
end

-- The incidents so far are history, and the monitor that wrote them builds anew, if it lives, before it writes again.
local function leave_incidents()
  local before = P .. 'incidents_before'
  redis.call('ZUNIONSTORE', before, 2, before, P .. 'incidents', 'AGGREGATE', 'MAX')
  redis.call('DEL', P .. 'incidents', P .. 'manifest_failed', P .. 'orders', P .. 'hazards')
  for _, id in ipairs(redis.call('ZREVRANGE', before, INCIDENTS_KEPT, -1)) do
    redis.call('ZREM', before, id)
    redis.call('DEL', key('incident', id))
  end
  if redis.call('EXISTS', P .. 'leader') == 1 then
    redis.call('HINCRBY', P .. 'leader', 'token', 1)
    redis.call('HSET', P .. 'leader', 'holder', '', 'until', stamp(clock()))
  end
end

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
    P .. 'manifest_ids', P .. 'call_errors', P .. 'calls_done', P .. 'manifest_wanted')
  for _, group in ipairs(redis.call('SMEMBERS', P .. 'groups')) do redis.call('DEL', key('digest', group)) end
  for _, member in ipairs(members) do
    redis.call('DEL', key('unacked', member), key('asked', member), key('sent', member), key('origins', member),
      key('origin', member), key('step', member), key('state', member), key('once', member))
  end
  leave_members('done', '')
end

local wrong = wrong_type(run, 'hash', P .. 'members', 'set', P .. 'mailboxes', 'set', P .. 'published', 'set',
  P .. 'events', 'stream', P .. 'manifest_ids', 'hash', P .. 'ordered', 'set', P .. 'takers', 'set', P .. 'groups', 'set',
  P .. 'incidents', 'zset', P .. 'incidents_before', 'zset', P .. 'leader', 'hash')
if wrong then return wrong end
for _, member in ipairs(redis.call('SMEMBERS', P .. 'members')) do
  wrong = void_types(member)
  if wrong then return wrong end
end
local now = clock()
local known = redis.call('HMGET', run, 'state', 'driver', 'driver_name', 'lease_until', 'driver_process')
local live = (known[1] == 'live' or known[1] == 'closing') and known[2] and tonumber(known[4] or '0') > now
  and known[2] ~= gone
if known[2] == token and known[1] ~= 'closed' then
  redis.call('HSET', run, 'lease_until', stamp(now + tonumber(lease_s)))
  return {'ok', 'renewed'}
end
if mode == 'renew' or live then return {'busy', known[3] or '', known[2] or '', known[5] or ''} end

local how = 'continued'
if known[1] == 'closed' then begin_anew() elseif known[1] then leave_members('dead', 'its driver died') end
if known[1] then leave_incidents() end
if known[1] ~= 'live' and known[1] ~= 'closing' then
  how = 'new'
  redis.call('HSET', run, 'started_at', stamp(now))
end
redis.call('HDEL', run, 'ended_at')
redis.call('HSET', run, 'state', 'live', 'driver', token, 'driver_name', driver_name, 'driver_process', process,
  'lease_until', stamp(now + tonumber(lease_s)))
return {'ok', how}
