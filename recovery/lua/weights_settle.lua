-- A manifest covers weights up to a number: they are provisional no more, and any later ones are.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 n  3 generation that wrote the manifest
-- Answers  {'ok'} · {'stale', generation}: a newer one has published
-- include: weights

local name, n, generation = unpack(ARGV)
local wrong = weights_types(name)
if wrong then return wrong end
local newest = redis.call('HGET', key('weights', name), 'newest_generation') or '0'
if tonumber(generation) < tonumber(newest) then return {'stale', newest} end
redis.call('HSET', key('weights', name), 'settled', n)
return {'ok'}
