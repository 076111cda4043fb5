-- Write down how one attempt ended.
--
-- KEYS[1]  the run's prefix
-- ARGV[1]  alert id
-- ARGV[2]  `delivered`, `retry`, `given up`, or `off`: given up without an attempt, the receiver wants no more
-- ARGV[3]  retry: the new entry (JSON); else: the record of how it ended (JSON)
-- ARGV[4]  retry: seconds until the next attempt
-- ARGV[5]  seconds during which nothing is sent to this receiver, 0 for none
-- ARGV[6]  fingerprint of the receiver if it switched itself off, else ''
-- ARGV[7]  seconds that the record is kept
--
-- outbox, outbox_due, alert:<id>  see alert_put
-- endpoint                        see alert_claim
-- deliveries                      hash: counters `ok`, `failed` (attempts), `dropped` (alerts)
--
-- Answers 1 (also when asked again), or 0 if somebody else has ended this alert meanwhile: then nothing is written.
local outbox, due, endpoint = KEYS[1] .. 'outbox', KEYS[1] .. 'outbox_due', KEYS[1] .. 'endpoint'
local deliveries = KEYS[1] .. 'deliveries'
local id, ending = ARGV[1], ARGV[2]
local before = redis.call('HGET', outbox, id)
if not before then
  return redis.call('GET', KEYS[1] .. 'alert:' .. id) == ARGV[3] and 1 or 0
end
if before == ARGV[3] then
  return 1
end
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
if tonumber(ARGV[5]) > 0 then
  redis.call('HSET', endpoint, 'hold_until', string.format('%.6f', now + ARGV[5]))
end
if ARGV[6] ~= '' then
  redis.call('HSET', endpoint, 'disabled', ARGV[6])
end
if ending == 'delivered' then
  redis.call('HINCRBY', deliveries, 'ok', 1)
elseif ending ~= 'off' then
  redis.call('HINCRBY', deliveries, 'failed', 1)
end
if ending == 'retry' then
  redis.call('HSET', outbox, id, ARGV[3])
  redis.call('ZADD', due, string.format('%.6f', now + ARGV[4]), id)
  return 1
end
if ending == 'given up' or ending == 'off' then
  redis.call('HINCRBY', deliveries, 'dropped', 1)
end
redis.call('HDEL', outbox, id)
redis.call('ZREM', due, id)
redis.call('SET', KEYS[1] .. 'alert:' .. id, ARGV[3], 'EX', ARGV[7])
return 1
