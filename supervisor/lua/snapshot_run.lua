-- Read what is known of a run as a whole, and its newest incidents.
--
-- KEYS[1]  the run's prefix
-- ARGV[1]  how many incidents, newest first
--
-- run, leader, deliveries  hashes
-- outbox                   hash, see alert_put
-- hazards                  hash, JSON by locks
-- members                  set of member ids
-- incidents                zset of ids by time; incident:<id> string (JSON)
--
-- Answers {Redis time, run, leader, deliveries, number in the outbox, member ids, incidents, hazards}. The hashes are flat lists.
local time = redis.call('TIME')
local incidents = {}
for _, id in ipairs(redis.call('ZREVRANGE', KEYS[1] .. 'incidents', 0, ARGV[1] - 1)) do
  incidents[#incidents + 1] = {id, redis.call('GET', KEYS[1] .. 'incident:' .. id) or ''}
end
return {
  string.format('%.6f', time[1] + time[2] / 1000000),
  redis.call('HGETALL', KEYS[1] .. 'run'),
  redis.call('HGETALL', KEYS[1] .. 'leader'),
  redis.call('HGETALL', KEYS[1] .. 'deliveries'),
  redis.call('HLEN', KEYS[1] .. 'outbox'),
  redis.call('SMEMBERS', KEYS[1] .. 'members'),
  incidents,
  redis.call('HVALS', KEYS[1] .. 'hazards'),
}
