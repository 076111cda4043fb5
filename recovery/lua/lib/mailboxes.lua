-- Moving items: into the queue, to receivers, back to the front.
-- include: items
-- include: origins
-- include: takes

local function enqueue(name, seq, head)
  if head.to ~= '' then redis.call('HINCRBY', key('mbox', name), 'addressed', 1) end
  if by_origin(name) then
    redis.call('ZADD', key('mboxo', name), 0, rank_of(name, seq, head))
  else
    redis.call('RPUSH', key('mboxq', name), seq)
  end
end

-- Puts a value into the queue; answers the sender's number of it (1, 2, ... per mailbox and incarnation). `from` is its origin
-- (origin, origin_number, sub) where it is passed on, else nil: then it is the sender's own, and numbered on for ever.
local function accept_item(name, member, participant, value, from, to)
  local source = string.match(participant, '^[^/]*/[^#]*#%d+') or participant
  local seq = string.format('%d', redis.call('HINCRBY', key('mbox', name), 'sent', 1))
  local number = redis.call('HINCRBY', key('sent', member), name, 1)
  from = from or {origin = member, origin_number = redis.call('HINCRBY', key('origins', member), name, 1), sub = ''}
  local head = {origin = from.origin, origin_number = from.origin_number, sub = from.sub, to = to or ''}
  local text = table.concat({source, number, stamp(clock()), head.origin, string.format('%d', head.origin_number), head.sub,
    head.to}, '|')
  redis.call('HSET', key('mboxi', name), seq, value, seq .. 'h', text)
  note_live(name, seq, head)
  enqueue(name, seq, head)
  return number
end

-- The item that a receiver gets next: the first that is for it, of `sender` if that is not ''. Nil if there is none.
local function find_item(name, member, sender)
  if by_origin(name) then return due_item(name) end
  local queue = key('mboxq', name)
  if sender == '' and tonumber(redis.call('HGET', key('mbox', name), 'addressed') or '0') == 0 then
    return redis.call('LINDEX', queue, 0) or nil
  end
  for _, seq in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    local head = head_of(name, seq)
    local fits = sender == '' or string.match(head.source, '^([^#]*)#') == sender
    if fits and (head.to == '' or head.to == member) then return seq end
  end
  return nil
end

local function dequeue(name, seq)
  local head = head_of(name, seq)
  if head.to ~= '' then redis.call('HINCRBY', key('mbox', name), 'addressed', -1) end
  if by_origin(name) then
    redis.call('ZREM', key('mboxo', name), rank_of(name, seq, head))
    pass_turn(name, head)
  else
    redis.call('LREM', key('mboxq', name), 1, seq)
  end
end

-- Gives item `seq` to a receiver: it is the receiver's until acknowledged or put back.
local function hand_item(name, seq, member, participant, ticket)
  dequeue(name, seq)
  redis.call('HSET', key('unacked', member), item_id(name, seq), participant)
  count_held(name, member, 1)
  redis.call('HINCRBY', key('mbox', name), 'taken', 1)
  note_outcome(member, participant, ticket, 'granted:' .. seq)
end

-- Gives a take what there is for it; answers whether anything moved.
local function fill_take(id, name)
  local moved, complete = false, false
  while not complete do
    local seq = find_item(name, '', '')
    if not seq then return moved end
    dequeue(name, seq)
    moved, complete = true, fill_slot(id, name, seq)
  end
  wake_takers(id)
  return true
end

local function serve_receiver(name, entry, kind, extra)
  if kind == 'take' then return fill_take(extra, name) end
  local participant, ticket, member = parse_entry(entry)
  local seq = find_item(name, member, extra)
  if not seq then return false end
  unstand(member, entry)
  hand_item(name, seq, member, participant, ticket)
  wake(entry, 'granted:' .. seq)
  return true
end

-- Lets waiting receivers have items, in their order; answers whether any got one.
local function serve_receivers(name)
  local moved, served = false, {}
  for _, entry in ipairs(redis.call('LRANGE', key('mboxr', name), 0, -1)) do
    if queue_length(name) == 0 then return moved end
    local _, _, member, incarnation = parse_entry(entry)
    local kind, _, extra = place_of_wait(member, entry)
    if not kind or replaced_by(member, incarnation) then
      unstand(member, entry)
      redis.call('LREM', key('mboxr', name), 1, entry)
    elseif kind ~= 'take' or not served[extra] then
      served[extra] = kind == 'take'
      moved = serve_receiver(name, entry, kind, extra) or moved
    end
  end
  return moved
end

-- Whether the mailbox takes items of these origins now. Capacity counts unconsumed items. A full one whose first item is not
-- due lets the due one in all the same, else it would wait behind those that wait for it; that is one item, or those of one
-- commit, more than the capacity, since nothing more is let in until it has been delivered.
local function has_room(name, count, heads)
  local capacity = tonumber(redis.call('HGET', key('mbox', name), 'capacity') or '0')
  if queue_length(name) + count <= capacity then return true end
  return by_origin(name) and any_due(name, heads) and not due_item(name)
end

-- What the member's own next item there would be.
local function next_own(name, member)
  local sent = tonumber(redis.call('HGET', key('origins', member), name) or '0')
  return {origin = member, origin_number = sent + 1}
end

-- Whether there is room for one plain send of the member.
local function has_room_for(name, member)
  return has_room(name, 1, by_origin(name) and {next_own(name, member)} or {})
end

local function serve_sender(name, entry)
  local participant, ticket, member = parse_entry(entry)
  local _, _, to = place_of_wait(member, entry)
  local value = redis.call('HGET', key('mboxw', name), entry)
  unstand(member, entry)
  local number = accept_item(name, member, participant, value, nil, to)
  note_outcome(member, participant, ticket, 'granted:' .. number)
  wake(entry, 'granted:' .. number)
end

-- Lets waiting senders have space, in their order; answers whether any got in.
local function serve_senders(name)
  local moved = false
  for _, entry in ipairs(redis.call('LRANGE', key('mboxs', name), 0, -1)) do
    local _, _, member, incarnation = parse_entry(entry)
    if not stands(member, entry) or replaced_by(member, incarnation) then
      unstand(member, entry)
      redis.call('LREM', key('mboxs', name), 1, entry)
    elseif has_room_for(name, member) then
      serve_sender(name, entry)
      moved = true
    elseif not by_origin(name) then
      return moved
    end
  end
  return moved
end

-- Commits that wait for room ask again, in their order. Room is not kept for them: a commit that needs room elsewhere too would
-- hold back others with it.
local function nudge_commits(name)
  for _, entry in ipairs(redis.call('LRANGE', key('mboxc', name), 0, -1)) do
    local _, _, member = parse_entry(entry)
    if stands(member, entry) then nudge(entry) else redis.call('LREM', key('mboxc', name), 1, entry) end
  end
end

-- Lets waiting receivers have items and waiting senders have space, until neither is possible.
local function pump(name)
  local moved
  repeat
    moved = serve_receivers(name)
    moved = serve_senders(name) or moved
  until not moved
  if by_origin(name) or queue_length(name) < tonumber(redis.call('HGET', key('mbox', name), 'capacity') or '0') then
    nudge_commits(name)
  end
end

-- Something was consumed, or a member has ended: turns of mailboxes in order of origin may pass.
local function pump_ordered()
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'ordered')) do pump(name) end
end

-- Checks what pump_ordered writes. Answers an error reply, or nil.
local function ordered_types()
  local wrong = wrong_type(P .. 'ordered', 'set')
  if wrong then return wrong end
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'ordered')) do
    wrong = mailbox_types(name)
    if wrong then return wrong end
  end
  return nil
end

-- Puts items back in front, merged by number with what was put back before: the queue stays in order of sending.
-- Only items put back earlier can be smaller than the largest of these, so little is moved.
local function put_in_front(name, seqs)
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

-- Puts items back where they were. In order of origin their turns have passed, so they are due at once, smallest first.
local function put_back(name, seqs)
  for _, seq in ipairs(seqs) do
    local text = string.format('%d', seq)
    local head = head_of(name, text)
    if head.to ~= '' then redis.call('HINCRBY', key('mbox', name), 'addressed', 1) end
    if by_origin(name) then redis.call('ZADD', key('mboxo', name), 0, rank_of(name, text, head)) end
  end
  if not by_origin(name) then put_in_front(name, seqs) end
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
    count_held(name, member, -#seqs)
    for _, seq in ipairs(seqs) do
      redis.call('HDEL', key('unacked', member), item_id(name, string.format('%d', seq)))
    end
    put_back(name, seqs)
    pump(name)
  end
  return count
end
