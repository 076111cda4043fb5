-- Versions of published weights. `weights:<name>` is the newest one, `weightsm:<name>` and `weightsv:<name>` hold what is told
-- of each kept version (`generation|digest|at|by`) and its bytes, by number.
-- include: common

local function weights_types(name)
  return wrong_type(key('weights', name), 'hash', key('weightsm', name), 'hash', key('weightsv', name), 'hash',
    key('weightsq', name), 'list', P .. 'published', 'set')
end

local function version_of(name, n)
  local found = redis.call('HGET', key('weightsm', name), n)
  if not found then return nil end
  local generation, digest, at, by = string.match(found, '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
  return {generation = generation, digest = digest, at = at, by = by}
end

-- What becomes of weights that are published as number `n` ('' for the next): `new`, `same` (they stand already) or `stale` (of
-- an older generation than has published, or before the newest of this one). Answers it, and the number.
local function judge_weights(name, n, generation, digest)
  local head = redis.call('HMGET', key('weights', name), 'n', 'generation', 'newest_generation')
  if n == '' then n = string.format('%d', tonumber(head[1] or '0') + 1) end
  if not head[1] then return 'new', n end
  if tonumber(generation) < tonumber(head[3]) then return 'stale', n end
  local known = version_of(name, n)
  if known and known.digest == digest then return 'same', n end
  if generation == head[2] and tonumber(n) < tonumber(head[1]) then return 'stale', n end
  return 'new', n
end

-- Later versions are of a time-line that was abandoned; of the others the newest `keep` stay.
local function prune_weights(name, n, keep)
  local numbers = {}
  for _, one in ipairs(redis.call('HKEYS', key('weightsm', name))) do numbers[#numbers + 1] = tonumber(one) end
  table.sort(numbers)
  local last = #numbers
  while last > 0 and numbers[last] > n do last = last - 1 end
  for i, one in ipairs(numbers) do
    if i > last or i <= last - keep then
      local text = string.format('%d', one)
      redis.call('HDEL', key('weightsm', name), text)
      redis.call('HDEL', key('weightsv', name), text)
    end
  end
end

-- Waiters whose version has come or has been passed ask again. What they wait for: `least|exact`.
local function wake_readers(name, n)
  for _, entry in ipairs(redis.call('LRANGE', key('weightsq', name), 0, -1)) do
    local _, _, member = parse_entry(entry)
    local _, _, wanted = place_of_wait(member, entry)
    local least = wanted and tonumber(string.match(wanted, '^(%d+)'))
    if not least or least <= n then
      unstand(member, entry)
      redis.call('LREM', key('weightsq', name), 0, entry)
      wake(entry, 'granted')
    end
  end
end

-- Notes that a generation has published: older ones are refused from now on.
local function note_generation(name, generation)
  local hash = key('weights', name)
  if tonumber(generation) > tonumber(redis.call('HGET', hash, 'newest_generation') or '-1') then
    redis.call('HSET', hash, 'newest_generation', generation)
  end
end

-- Makes a version that was judged `new` the newest. `roles`: of all who ever published here.
local function put_weights(name, n, generation, digest, payload, participant, request, keep)
  local hash, at = key('weights', name), stamp(clock())
  local role = string.match(participant, '^([^/]*)/')
  local roles = redis.call('HGET', hash, 'roles') or ''
  if not string.find(',' .. roles .. ',', ',' .. role .. ',', 1, true) then
    roles = roles == '' and role or roles .. ',' .. role
  end
  redis.call('SADD', P .. 'published', name)
  redis.call('HSET', hash, 'n', n, 'generation', generation, 'digest', digest, 'at', at, 'by', participant,
    'request', request, 'roles', roles)
  redis.call('HSET', key('weightsm', name), n, table.concat({generation, digest, at, participant}, '|'))
  redis.call('HSET', key('weightsv', name), n, payload)
  note_generation(name, generation)
  prune_weights(name, tonumber(n), tonumber(keep))
  wake_readers(name, tonumber(n))
end
