-- Put one alert into the outbox, unless it is there or was already dealt with.
--
-- KEYS[1]  the run's prefix, `unknot:{RUN}:`
-- ARGV[1]  alert id
-- ARGV[2]  entry (JSON): the alert and what is known of its attempts
--
-- outbox       hash    alert id -> entry (JSON), as long as it is not delivered or given up
-- outbox_due   zset    alert id -> Redis time from which it may be tried; moved ahead while somebody tries it
-- alert:<id>   string  (JSON) how it ended; expires
--
-- Answers 1 if it was put (also when asked again with the very same entry), 0 if this alert is known.
local outbox, due = KEYS[1] .. 'outbox', KEYS[1] .. 'outbox_due'
local id, entry = ARGV[1], ARGV[2]
local before = redis.call('HGET', outbox, id)
if before then
  return before == entry and 1 or 0
end
if redis.call('EXISTS', KEYS[1] .. 'alert:' .. id) == 1 then
  return 0
end
local now = redis.call('TIME')
redis.call('HSET', outbox, id, entry)
redis.call('ZADD', due, string.format('%.6f', now[1] + now[2] / 1000000), id)
return 1
