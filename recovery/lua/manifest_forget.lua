-- Deletes the records of attempts whose files are gone. One that is committed, or may yet be, stays.
--
-- KEYS[1]  prefix of the run
-- ARGV     1... ids
-- Answers  {'ok', how many were forgotten}
-- include: common
-- include: manifests

for _, id in ipairs(ARGV) do
  local wrong = attempt_types(id)
  if wrong then return wrong end
end

local count = 0
for _, id in ipairs(ARGV) do
  local now = redis.call('HMGET', key('manifest', id), 'group', 'generation', 'seq', 'state')
  local over = now[4] == 'abandoned' or now[4] == 'dropped'
  if over or (now[4] == 'preparing' and not generation_stands(now[1], now[2])) then
    redis.call('HDEL', P .. 'manifest_ids', now[1] .. '|' .. now[2] .. '|' .. now[3])
    redis.call('DEL', key('manifest', id))
    count = count + 1
  end
end
return {'ok', count}
