-- What becomes void when a member's incarnation ends: its queue places, its unacknowledged items, its locks.
-- include: locks
-- include: mailboxes

-- Checks every key that voiding will write. Answers an error reply, or nil.
local function void_types(member)
  local wrong = wrong_type(key('member', member), 'hash', key('waits', member), 'hash', key('unacked', member), 'hash',
    key('held', member), 'set', key('asked', member), 'hash', key('sent', member), 'hash', P .. 'events', 'stream',
    P .. 'members', 'set', P .. 'proc:store', 'hash')
  if wrong then return wrong end
  for _, name in ipairs(redis.call('SMEMBERS', key('held', member))) do
    wrong = lock_types(name)
    if wrong then return wrong end
  end
  for name in pairs(unacked_by_mailbox(member, '')) do
    wrong = mailbox_types(name)
    if wrong then return wrong end
  end
  return ordered_types()
end

-- Takes all waiters of the member out of their queues and tells them why.
local function remove_waiters(member, why)
  for _, entry in ipairs(redis.call('HKEYS', key('waits', member))) do
    unstand(member, entry)
    wake(entry, why)
  end
end

-- Frees the member's locks; answers how many were passed on or set free.
local function free_locks(member)
  local names = redis.call('SMEMBERS', key('held', member))
  table.sort(names)
  for _, name in ipairs(names) do
    if redis.call('HGET', key('lock', name), 'member') == member then pass_on(name) end
  end
  redis.call('DEL', key('held', member))
  return #names
end

-- Says `events` in the stream of records: one msgpack record of the source `store`, numbered without gaps.
local function announce(events)
  local t = clock()
  local n = redis.call('HINCRBY', P .. 'proc:store', 'n', 1)
  redis.call('HSET', P .. 'proc:store', 'at', stamp(t))
  for _, event in ipairs(events) do event.t = t end
  local record = cmsgpack.pack({src = 'store', n = n, t = t, events = events})
  redis.call('XADD', P .. 'events', 'MAXLEN', '~', '100000', '*', 'r', record)
end

-- The event that incarnations of `member` older than `incarnation` are void.
local function fence_of(member, incarnation)
  return {ev = 'fence', member = member, incarnation = tonumber(incarnation)}
end

-- The event that the main thread of an incarnation runs, until its process speaks for itself.
local function start_of(member, role, incarnation)
  return {
    ev = 'start', p = member .. '#' .. incarnation, member = member, role = role, incarnation = tonumber(incarnation)
  }
end

-- Voids all that incarnations before `incarnation` have; the fence is for the caller to announce or not. Answers (locks
-- freed, items put back).
local function void_older(member, incarnation)
  remove_waiters(member, 'fenced:' .. incarnation)
  redis.call('DEL', key('asked', member), key('sent', member))
  local items = requeue_items(member, unacked_by_mailbox(member, ''))
  return free_locks(member), items
end
