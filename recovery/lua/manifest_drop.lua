-- Takes committed manifests out of what readers see. Their files may go after this, and not before.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 why  2... ids
-- Answers  {'ok', how many were committed until now}: dropping twice is nothing
-- include: common
-- include: manifests

for i = 2, #ARGV do
  local wrong = attempt_types(ARGV[i])
  if wrong then return wrong end
end

local count = 0
for i = 2, #ARGV do
  if redis.call('HGET', key('manifest', ARGV[i]), 'state') == 'committed' then
    redis.call('ZREM', P .. 'manifests', ARGV[i])
    redis.call('HSET', key('manifest', ARGV[i]), 'state', 'dropped', 'why', ARGV[1])
    count = count + 1
  end
end
return {'ok', count}
