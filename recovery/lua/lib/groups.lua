-- Generations of a collective group. `group:<name>` holds `rank:<i>` (the source that joined as rank i in the present
-- generation) and `ask:<i>` (the token of that join, which tells a repeated question from a new wish to join). `complete`
-- is 1 once all ranks have joined: from then on ranks meet at the generation's rendezvous, and none can be exchanged. `met` is
-- the last generation that came so far: once all have joined the next one, nobody is left at its rendezvous. `done_under` is the driver
-- under which the group was done.

local function group_types(name)
  return wrong_type(key('group', name), 'hash', key('groupq', name), 'list', P .. 'groups', 'set')
end

local function joined_ranks(name, size)
  local fields = {}
  for i = 0, size - 1 do fields[#fields + 1] = 'rank:' .. i end
  return redis.call('HMGET', key('group', name), unpack(fields))
end

-- Whether a newer incarnation than the source `member#incarnation` has registered.
local function is_replaced(source)
  local member, incarnation = string.match(source, '^(.*)#(%d+)$')
  return replaced_by(member, incarnation)
end

local function wake_joiners(name, why)
  local queue = key('groupq', name)
  for _, entry in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    local _, _, member = parse_entry(entry)
    redis.call('HDEL', key('waits', member), entry)
    wake(entry, why)
  end
  redis.call('DEL', queue)
end

local function clear_ranks(name)
  local hash = key('group', name)
  for _, field in ipairs(redis.call('HKEYS', hash)) do
    if string.match(field, '^rank:') or string.match(field, '^ask:') or string.match(field, '^done:') then
      redis.call('HDEL', hash, field)
    end
  end
end

local function start_generation(name, size)
  local hash = key('group', name)
  clear_ranks(name)
  redis.call('HINCRBY', hash, 'generation', 1)
  redis.call('HSET', hash, 'size', size, 'state', 'forming', 'since', stamp(clock()))
  redis.call('HDEL', hash, 'reason', 'complete')
  redis.call('SADD', P .. 'groups', name)
end

local function complete_generation(name, generation)
  local hash = key('group', name)
  local met = redis.call('HGET', hash, 'met')
  if met then redis.call('DEL', key('gstore', name .. ':' .. met)) end
  redis.call('HSET', hash, 'complete', 1, 'met', generation)
  wake_joiners(name, 'granted')
end

-- The driver that has the run, '' where none ever had.
local function driver_now() return redis.call('HGET', P .. 'run', 'driver') or '' end

local function break_group(name, reason)
  redis.call('HSET', key('group', name), 'state', 'broken', 'reason', reason, 'since', stamp(clock()))
  wake_joiners(name, 'broken')
end
