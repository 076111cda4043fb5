-- Take one alert that is due, so that nobody else tries it for a while.
--
-- A claim is only a due time moved ahead: if its owner dies, the alert is due again by itself.
--
-- KEYS[1]  the run's prefix
-- ARGV[1]  seconds that the claim holds
-- ARGV[2]  fingerprint of the receiver
-- ARGV[3]  name of the one who asks
-- ARGV[4]  number of this question: the same question gets the same answer
--
-- outbox, outbox_due   see alert_put
-- outbox_claim:<name>  string: `number|alert id` of the last claim; expires with it
-- endpoint             hash: `hold_until` (Redis time before which nothing is sent), `disabled` (fingerprint)
--
-- Answers {} if nothing is due, else {entry, Redis time, 1 if this receiver switched itself off, else 0}.
local outbox, due, endpoint = KEYS[1] .. 'outbox', KEYS[1] .. 'outbox_due', KEYS[1] .. 'endpoint'
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local shown = string.format('%.6f', now)
local claim = KEYS[1] .. 'outbox_claim:' .. ARGV[3]
local off = redis.call('HGET', endpoint, 'disabled') == ARGV[2] and 1 or 0
local number, claimed = string.match(redis.call('GET', claim) or '', '^(%d+)|(.*)$')
if number == ARGV[4] then
  local again = redis.call('HGET', outbox, claimed)
  return again and {again, shown, off} or {}
end
local hold = redis.call('HGET', endpoint, 'hold_until')
if hold and tonumber(hold) > now then
  return {}
end
local ids = redis.call('ZRANGEBYSCORE', due, '-inf', shown, 'LIMIT', 0, 1)
if #ids == 0 then
  return {}
end
local entry = redis.call('HGET', outbox, ids[1])
if not entry then
  redis.call('ZREM', due, ids[1])
  return {}
end
redis.call('SET', claim, ARGV[4] .. '|' .. ids[1], 'PX', math.ceil(ARGV[1] * 1000))
redis.call('ZADD', due, string.format('%.6f', now + ARGV[1]), ids[1])
return {entry, shown, off}
