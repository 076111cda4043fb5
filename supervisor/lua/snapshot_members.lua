-- Read some members with the last record of their present incarnation, each pair at one instant.
--
-- KEYS[1]  the run's prefix
-- ARGV     member ids
--
-- member:<member>                 hash, see registration
-- proc:<member>#<incarnation>     hash: `n`, `full`, `at`
--
-- Answers {Redis time, {fields of member, n, full} per id}; n and full are '' where there is no record.
local time = redis.call('TIME')
local answer = {string.format('%.6f', time[1] + time[2] / 1000000)}
for _, id in ipairs(ARGV) do
  local key = KEYS[1] .. 'member:' .. id
  local incarnation = redis.call('HGET', key, 'incarnation')
  local record = {}
  if incarnation then
    record = redis.call('HMGET', KEYS[1] .. 'proc:' .. id .. '#' .. incarnation, 'n', 'full')
  end
  answer[#answer + 1] = {redis.call('HGETALL', key), record[1] or '', record[2] or ''}
end
return answer
