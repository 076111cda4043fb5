-- Reads incidents.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 how many, newest first (0: all)
-- Answers  {incident (JSON), ...} oldest first
-- include: common

local count = tonumber(ARGV[1])
local ids = redis.call('ZREVRANGE', P .. 'incidents', 0, count - 1)
local found = {}
for i = #ids, 1, -1 do
  local body = redis.call('GET', key('incident', ids[i]))
  if body then found[#found + 1] = body end
end
return found
