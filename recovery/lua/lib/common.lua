-- Common part of all scripts: the run's prefix, time, fence check, type checks, waits and wake-ups.
-- KEYS[1] is the prefix `unknot:{RUN}:`; every other key is built from it and so lies in the same slot.
local P = KEYS[1]

local function key(kind, name) return P .. kind .. ':' .. name end

-- Redis' clock, seconds since the epoch with microseconds.
local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

local function stamp(t) return string.format('%.6f', t) end

-- The incarnation that replaced (member, incarnation), or nil while none has.
local function replaced_by(member, incarnation)
  local current = redis.call('HGET', key('member', member), 'incarnation')
  if current and tonumber(current) > tonumber(incarnation) then return current end
  return nil
end

local function run_ends()
  local state = redis.call('HGET', P .. 'run', 'state')
  return state == 'closing' or state == 'closed'
end

-- Scripts are not rolled back, so a key of a wrong type must be found before the first write.
-- Takes key, type, key, type, ...; answers an error reply for the first key that is neither absent nor of its type.
local function wrong_type(...)
  local list = {...}
  for i = 1, #list, 2 do
    local is = redis.call('TYPE', list[i]).ok
    if is ~= 'none' and is ~= list[i + 1] then
      return redis.error_reply('UNKNOTTYPE ' .. list[i] .. ' is a ' .. is .. ' instead of a ' .. list[i + 1])
    end
  end
  return nil
end

-- A waiter stands in a queue as `participant|ticket`; a participant is `member#incarnation[/thread]`.
local function entry_of(participant, ticket) return participant .. '|' .. ticket end

local function parse_entry(entry)
  local participant, ticket = string.match(entry, '^(.*)|([^|]*)$')
  local member, incarnation = string.match(participant, '^([^#]*)#(%d+)')
  return participant, ticket, member, incarnation
end

-- A wake-up is a hint: the waiter asks again and so learns the truth. It expires if nobody takes it.
local function wake(entry, why)
  local k = key('wake', entry)
  redis.call('RPUSH', k, why)
  redis.call('EXPIRE', k, 3600)
end

-- `waits:<member>` maps `participant|ticket` to `kind|name|extra`: where the waiter stands. It is the truth about
-- whether a wait still stands; the queues hold the order.
local QUEUES = {lock = 'lockq', recv = 'mboxr', send = 'mboxs', weights = 'weightsq', group = 'groupq'}

local function stands(member, entry) return redis.call('HEXISTS', key('waits', member), entry) == 1 end

local function stand(member, entry, kind, name, extra)
  redis.call('HSET', key('waits', member), entry, kind .. '|' .. name .. '|' .. (extra or ''))
  redis.call('RPUSH', key(QUEUES[kind], name), entry)
end

-- Takes a waiter out of its queue. Answers the kind and name of what it waited for, or nil if it no longer stood.
local function unstand(member, entry)
  local waits = key('waits', member)
  local where = redis.call('HGET', waits, entry)
  if not where then return nil end
  local kind, name = string.match(where, '^(%a+)|([^|]*)|')
  redis.call('HDEL', waits, entry)
  redis.call('LREM', key(QUEUES[kind], name), 1, entry)
  if kind == 'send' then redis.call('HDEL', key('mboxw', name), entry) end
  return kind, name
end

-- `asked:<member>` keeps, per participant, how its last request ended (`ticket|outcome`), so that asking again with
-- the same ticket gets the same answer. A thread has one request at a time.
local function outcome_of(member, participant, ticket)
  local last = redis.call('HGET', key('asked', member), participant)
  local head = ticket .. '|'
  if last and string.sub(last, 1, #head) == head then return string.sub(last, #head + 1) end
  return nil
end

local function note_outcome(member, participant, ticket, outcome)
  redis.call('HSET', key('asked', member), participant, ticket .. '|' .. outcome)
end

local function interrupted_in(outcome)
  return outcome and string.match(outcome, '^interrupted:(.*)$')
end
