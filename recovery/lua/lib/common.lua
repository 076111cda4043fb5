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

-- A hint to a waiter that stands on, left once however often there is reason to give it.
local function nudge(entry)
  if redis.call('LLEN', key('wake', entry)) == 0 then wake(entry, 'look') end
end

-- `waits:<member>` maps `participant|ticket` to `kind|name|extra`: where the waiter stands. It is the truth about
-- whether a wait still stands; the queues hold the order. A commit stands in the queues of several mailboxes at once (its
-- name is theirs, with slashes between), a take in the mailbox' queue of receivers and in its own (extra is the take).
local QUEUES = {lock = 'lockq', recv = 'mboxr', take = 'mboxr', send = 'mboxs', commit = 'mboxc', weights = 'weightsq',
  group = 'groupq'}

local function stands(member, entry) return redis.call('HEXISTS', key('waits', member), entry) == 1 end

local function stand(member, entry, kind, name, extra)
  redis.call('HSET', key('waits', member), entry, kind .. '|' .. name .. '|' .. (extra or ''))
  for one in string.gmatch(name, '[^/]+') do redis.call('RPUSH', key(QUEUES[kind], one), entry) end
end

-- Where a waiter stands: kind, name, extra; nil if it does not.
local function place_of_wait(member, entry)
  local where = redis.call('HGET', key('waits', member), entry)
  if not where then return nil end
  return string.match(where, '^(%a+)|([^|]*)|(.*)$')
end

-- Takes a waiter out of its queues. Answers the kind and name of what it waited for, or nil if it no longer stood.
local function unstand(member, entry)
  local kind, name, extra = place_of_wait(member, entry)
  if not kind then return nil end
  redis.call('HDEL', key('waits', member), entry)
  for one in string.gmatch(name, '[^/]+') do redis.call('LREM', key(QUEUES[kind], one), 1, entry) end
  if kind == 'send' then redis.call('HDEL', key('mboxw', name), entry) end
  if kind == 'take' then redis.call('LREM', key('takeq', extra), 1, entry) end
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

-- What a request gets that is not served (yet): why it ended, or nil when it may be served or stand. Leaving takes it out of its
-- queues.
local function refused(member, participant, ticket, mode)
  local incident = interrupted_in(outcome_of(member, participant, ticket))
  if incident then return {'interrupted', incident} end
  if mode == 'leave' then
    unstand(member, entry_of(participant, ticket))
    return {'left'}
  end
  if run_ends() then return {'closed'} end
  return nil
end
