-- Handing a lock on.
-- include: common

local function lock_types(name)
  return wrong_type(key('lock', name), 'hash', key('lockq', name), 'list')
end

-- Makes the waiter `entry` the holder. The token grows with every grant, for ever: it fences late writers.
local function grant_lock(name, entry)
  local participant, ticket, member, incarnation = parse_entry(entry)
  local lock = key('lock', name)
  local token = redis.call('HINCRBY', lock, 'token', 1)
  redis.call('HSET', lock, 'holder', participant, 'member', member, 'incarnation', incarnation,
    'ticket', ticket, 'since', stamp(clock()))
  redis.call('SADD', key('held', member), name)
  return token
end

-- Takes the lock from its holder and gives it to the first waiter that still stands and is not fenced.
local function pass_on(name)
  local lock = key('lock', name)
  local before = redis.call('HGET', lock, 'member')
  if before then redis.call('SREM', key('held', before), name) end
  redis.call('HDEL', lock, 'holder', 'member', 'incarnation', 'ticket', 'since')
  local entry = redis.call('LPOP', key('lockq', name))
  while entry do
    local _, _, member, incarnation = parse_entry(entry)
    local stood = redis.call('HDEL', key('waits', member), entry) == 1
    if stood and not replaced_by(member, incarnation) then
      wake(entry, 'granted:' .. grant_lock(name, entry))
      return entry
    end
    entry = redis.call('LPOP', key('lockq', name))
  end
  return nil
end
