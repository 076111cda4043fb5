-- Tries what every script of a run needs: reading and writing, with an expiry, under the run's prefix. Nothing stays.
-- KEYS[1] the run's prefix
-- ARGV[1] 'write' for who writes; else only the reading is tried
-- Answers OK
local key = KEYS[1] .. 'check'
redis.call('TIME')
redis.call('GET', key)
if ARGV[1] == 'write' then
  redis.call('SET', key, '1', 'PX', 1000)
  redis.call('DEL', key)
end
return 'OK'
