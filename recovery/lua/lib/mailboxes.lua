-- Moving items: into the queue, to receivers, back to the front.
-- An item is its number `seq` in the mailbox; `mboxi:<name>` holds its value under `seq` and `sender|number|sent_at`
-- under `seq` + `h`, so that moving an item never copies its value.

local function mailbox_types(name)
  return wrong_type(key('mbox', name), 'hash', key('mboxq', name), 'list', key('mboxi', name), 'hash',
    key('mboxw', name), 'hash', key('mboxr', name), 'list', key('mboxs', name), 'list')
end

-- Puts a value at the end of the queue; answers the sender's number of it (1, 2, ... per mailbox and incarnation).
local function accept_item(name, member, participant, value)
  local source = string.match(participant, '^[^/]*/[^#]*#%d+') or participant
  local seq = redis.call('HINCRBY', key('mbox', name), 'sent', 1)
  local number = redis.call('HINCRBY', key('sent', member), name, 1)
  redis.call('HSET', key('mboxi', name), seq, value, seq .. 'h', source .. '|' .. number .. '|' .. stamp(clock()))
  redis.call('RPUSH', key('mboxq', name), seq)
  return number
end

-- Gives item `seq` to a receiver: it is the receiver's until acknowledged or put back.
local function hand_item(name, seq, member, participant, ticket)
  redis.call('HSET', key('unacked', member), name .. '/' .. seq, participant)
  redis.call('HINCRBY', key('mbox', name), 'taken', 1)
  note_outcome(member, participant, ticket, 'granted:' .. seq)
end

-- The first entry of a queue whose waiter still stands and is not fenced; it stands no longer.
local function next_waiter(queue)
  local entry = redis.call('LPOP', queue)
  while entry do
    local _, _, member, incarnation = parse_entry(entry)
    local stood = redis.call('HDEL', key('waits', member), entry) == 1
    if stood and not replaced_by(member, incarnation) then return entry end
    entry = redis.call('LPOP', queue)
  end
  return nil
end

-- Lets waiting receivers have items and waiting senders have space, until neither is possible.
local function pump(name)
  local queue = key('mboxq', name)
  local capacity = tonumber(redis.call('HGET', key('mbox', name), 'capacity') or '0')
  local moved = true
  while moved do
    moved = false
    if redis.call('LLEN', queue) > 0 then
      local entry = next_waiter(key('mboxr', name))
      if entry then
        local participant, ticket, member = parse_entry(entry)
        local seq = redis.call('LPOP', queue)
        hand_item(name, seq, member, participant, ticket)
        wake(entry, 'granted:' .. seq)
        moved = true
      end
    end
    if redis.call('LLEN', queue) < capacity then
      local entry = next_waiter(key('mboxs', name))
      if entry then
        local participant, ticket, member = parse_entry(entry)
        local waiting = key('mboxw', name)
        local value = redis.call('HGET', waiting, entry)
        redis.call('HDEL', waiting, entry)
        local number = accept_item(name, member, participant, value)
        note_outcome(member, participant, ticket, 'granted:' .. number)
        wake(entry, 'granted:' .. number)
        moved = true
      end
    end
  end
end

-- Puts items back in front, merged by number with what was put back before: the queue stays in order of sending.
-- Only items put back earlier can be smaller than the largest of these, so little is moved.
local function put_back(name, seqs)
  local queue = key('mboxq', name)
  table.sort(seqs)
  local largest = seqs[#seqs]
  local head = redis.call('LINDEX', queue, 0)
  while head and tonumber(head) < largest do
    seqs[#seqs + 1] = tonumber(redis.call('LPOP', queue))
    head = redis.call('LINDEX', queue, 0)
  end
  table.sort(seqs)
  for i = #seqs, 1, -1 do redis.call('LPUSH', queue, string.format('%d', seqs[i])) end
end

-- The unacknowledged items of a member by mailbox: {name = {seq, ...}}; of one mailbox only, if `only` is not ''.
local function unacked_by_mailbox(member, only)
  local found = {}
  for _, id in ipairs(redis.call('HKEYS', key('unacked', member))) do
    local name, seq = string.match(id, '^(.*)/(%d+)$')
    if only == '' or only == name then
      found[name] = found[name] or {}
      table.insert(found[name], tonumber(seq))
    end
  end
  return found
end

-- Puts a member's unacknowledged items back; answers how many there were.
local function requeue_items(member, by_mailbox)
  local names, count = {}, 0
  for name in pairs(by_mailbox) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local seqs = by_mailbox[name]
    count = count + #seqs
    redis.call('HINCRBY', key('mbox', name), 'taken', -#seqs)
    for _, seq in ipairs(seqs) do
      redis.call('HDEL', key('unacked', member), name .. '/' .. string.format('%d', seq))
    end
    put_back(name, seqs)
    pump(name)
  end
  return count
end
