-- The lead among monitors: a lease with a token that grows with every change of hands and fences late writers.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 holder (unique per monitor)  2 lease_s  3 mode: `acquire` (take or renew) or `release`
-- Answers  {'ok', token} · {'busy', token, holder, seconds until it ends} · {'released'}: also when not held
-- include: common

local holder, lease_s, mode = unpack(ARGV)
local hash = P .. 'leader'
local wrong = wrong_type(hash, 'hash')
if wrong then return wrong end
local now = clock()
local known = redis.call('HMGET', hash, 'holder', 'token', 'until')
local ends = tonumber(known[3] or '0')
if mode == 'release' then
  if known[1] == holder then redis.call('HSET', hash, 'until', stamp(now), 'holder', '') end
  return {'released'}
end
if known[1] and known[1] ~= '' and known[1] ~= holder and ends > now then
  return {'busy', known[2], known[1], stamp(ends - now)}
end
local token = known[2]
if known[1] ~= holder then token = tostring(redis.call('HINCRBY', hash, 'token', 1)) end
redis.call('HSET', hash, 'holder', holder, 'until', stamp(now + tonumber(lease_s)))
return {'ok', token}
