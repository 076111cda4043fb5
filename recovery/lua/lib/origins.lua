-- Whose turn it is in a mailbox with order `origin`: items are delivered by (number of the origin, place of the origin in the
-- mailbox' list), whatever order they arrive in. `round` and `place` of the mailbox are the turn after the last delivery.
--
-- A turn is passed over when its item can never come: no item of that origin and number is anywhere else in the run, and it was
-- sent already (a relay consumed it without passing it on) or its origin has ended for good. An item of a turn that has passed
-- is due at once.
-- include: items

local lists = {}
local function origins_of(name)
  if not lists[name] then lists[name] = cjson.decode(redis.call('HGET', key('mbox', name), 'origins')) end
  return lists[name]
end

-- The place of an origin in the list, from 0; nil if it is not in it.
local function place_of(name, origin)
  for i, one in ipairs(origins_of(name)) do if one == origin then return i - 1 end end
  return nil
end

local function rank_of(name, seq, head)
  return string.format('%012d!%06d!%s!%012d', head.origin_number, place_of(name, head.origin), head.sub, seq)
end

-- Number, place and seq of the first item in the queue, nil if there is none.
local function first_rank(name)
  local first = redis.call('ZRANGE', key('mboxo', name), 0, 0)[1]
  if not first then return nil end
  local number, place, seq = string.match(first, '^(%d+)!(%d+)!.*!(%d+)$')
  return tonumber(number), tonumber(place), string.format('%d', tonumber(seq))
end

-- Done, or dead and fenced without a successor. One that nobody has heard of may still come.
local function has_ended(member)
  if redis.call('SISMEMBER', P .. 'members', member) == 0 then return false end
  local found = redis.call('HMGET', key('member', member), 'state', 'boot')
  return found[1] == 'done' or (found[1] == 'dead' and found[2] == '')
end

local function may_still_come(name, origin, number)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('origin', origin), number, number)) do
    if string.match(id, '^(.*)/%d+$') ~= name then return true end
  end
  for _, sent in ipairs(redis.call('HVALS', key('origins', origin))) do
    if tonumber(sent) >= number then return false end
  end
  return not has_ended(origin)
end

-- Whether no turn before (number, place) can still be taken.
local function is_due(name, number, place)
  local turn = redis.call('HMGET', key('mbox', name), 'round', 'place')
  local round, at, origins = tonumber(turn[1]), tonumber(turn[2]), origins_of(name)
  while round < number or (round == number and at < place) do
    if may_still_come(name, origins[at + 1], round) then return false end
    at = at + 1
    if at == #origins then round, at = round + 1, 0 end
  end
  return true
end

local function due_item(name)
  local number, place, seq = first_rank(name)
  if number and is_due(name, number, place) then return seq end
  return nil
end

-- An item has been delivered: the turn goes on, if it was not of an earlier one.
local function pass_turn(name, head)
  local turn = redis.call('HMGET', key('mbox', name), 'round', 'place')
  local round, at = tonumber(turn[1]), tonumber(turn[2])
  local number, place = head.origin_number, place_of(name, head.origin)
  if number < round or (number == round and place < at) then return end
  place = place + 1
  if place == #origins_of(name) then number, place = number + 1, 0 end
  redis.call('HSET', key('mbox', name), 'round', number, 'place', place)
end

-- Whether one of `heads` (origin and number of items that are not in) is due.
local function any_due(name, heads)
  for _, head in ipairs(heads) do
    local place = place_of(name, head.origin)
    if place and is_due(name, head.origin_number, place) then return true end
  end
  return false
end
