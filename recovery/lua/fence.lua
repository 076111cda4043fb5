-- Makes every present incarnation of a member void without registering a new one: for a member that is not restarted,
-- or that may still live somewhere and must not write any more.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation to end  3 leader token, or '' for the driver  4 why
-- Answers  {'ok', new incarnation, locks freed, items put back} · {'gone', current incarnation}: a newer one stands,
--          nothing was done (so asking twice does it once) · {'stale', leader's token}
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local member, incarnation, token, why = unpack(ARGV)
local hash = key('member', member)

local wrong = void_types(member)
if wrong then return wrong end
local leader = redis.call('HGET', P .. 'leader', 'token') or '0'
if token ~= '' and token ~= leader then return {'stale', leader} end
local current = redis.call('HGET', hash, 'incarnation') or '0'
if current ~= incarnation then return {'gone', current} end

local new = redis.call('HINCRBY', hash, 'incarnation', 1)
redis.call('HSET', hash, 'state', 'dead', 'error', why, 'ended_at', stamp(clock()), 'boot', '')
local locks, items = void_older(member, new)
pump_ordered()
announce({fence_of(member, new)})
return {'ok', tostring(new), locks, items}
