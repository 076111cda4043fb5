-- All attempts of the run, at one instant.
--
-- KEYS[1]  prefix of the run
-- Answers  {{id, live (1: it may yet be committed, else 0), flat list of its fields}, ...}
-- include: common
-- include: manifests

local wrong = wrong_type(P .. 'manifest_ids', 'hash')
if wrong then return wrong end
local found = {}
for _, id in ipairs(redis.call('HVALS', P .. 'manifest_ids')) do
  wrong = attempt_types(id)
  if wrong then return wrong end
  local now = redis.call('HMGET', key('manifest', id), 'group', 'generation', 'state')
  local live = now[3] == 'preparing' and generation_stands(now[1], now[2])
  found[#found + 1] = {id, live and 1 or 0, redis.call('HGETALL', key('manifest', id))}
end
return found
