-- Read who holds some locks.
--
-- KEYS[1]  the run's prefix
-- ARGV     names of locks
--
-- lock:<name>  hash: `holder` (participant)
--
-- Answers one holder per name, '' where nobody holds it.
local holders = {}
for _, name in ipairs(ARGV) do
  holders[#holders + 1] = redis.call('HGET', KEYS[1] .. 'lock:' .. name, 'holder') or ''
end
return holders
