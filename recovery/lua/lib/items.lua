-- Items: where they are kept, who holds them, and where each comes from.
--
-- An item is its number `seq` in the mailbox; `mboxi:<name>` holds its value under `seq` and its head under `seq` + `h`, so that
-- moving an item never copies its value. The head is `sender|number|sent_at|origin|origin number|sub|to`. Unconsumed items are
-- in `mboxq:<name>` in the order of sending, or in `mboxo:<name>` ranked by origin. `origin:<member>` lists all items of an
-- origin that are queued or in a member's hands: whether one of a number can still come is read there.
-- include: common

local function mailbox_types(name)
  return wrong_type(key('mbox', name), 'hash', key('mboxq', name), 'list', key('mboxo', name), 'zset', key('mboxi', name), 'hash',
    key('mboxw', name), 'hash', key('mboxr', name), 'list', key('mboxs', name), 'list', key('mboxc', name), 'list',
    key('holding', name), 'hash')
end

-- What consuming an item writes.
local function consuming_types(name)
  return wrong_type(key('mbox', name), 'hash', key('mboxi', name), 'hash', key('holding', name), 'hash')
end

local orders = {}
local function by_origin(name)
  if orders[name] == nil then orders[name] = redis.call('HGET', key('mbox', name), 'order') == 'origin' end
  return orders[name]
end

local function queue_length(name)
  if by_origin(name) then return redis.call('ZCARD', key('mboxo', name)) end
  return redis.call('LLEN', key('mboxq', name))
end

local function head_of(name, seq)
  local text = redis.call('HGET', key('mboxi', name), seq .. 'h')
  local source, number, at, origin, origin_number, sub, to =
    string.match(text, '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  return {source = source, number = number, at = at, origin = origin, origin_number = tonumber(origin_number), sub = sub, to = to}
end

local function item_id(name, seq) return name .. '/' .. seq end

-- How an item is shown to its receiver: number, head, value.
local function shown(name, seq)
  local found = redis.call('HMGET', key('mboxi', name), seq .. 'h', seq)
  return seq, found[1], found[2]
end

-- The item is in somebody's hands or in the queue: its origin may still be passed on.
local function note_live(name, seq, head)
  redis.call('ZADD', key('origin', head.origin), head.origin_number, item_id(name, seq))
end

local function note_gone(name, seq, head) redis.call('ZREM', key('origin', head.origin), item_id(name, seq)) end

-- How many items of the mailbox a member has in its hands: these may come back.
local function count_held(name, member, change)
  local held = key('holding', name)
  if redis.call('HINCRBY', held, member, change) <= 0 then redis.call('HDEL', held, member) end
end

-- Deletes a consumed item.
local function delete_item(name, seq)
  note_gone(name, seq, head_of(name, seq))
  redis.call('HDEL', key('mboxi', name), seq, seq .. 'h')
  redis.call('HINCRBY', key('mbox', name), 'acked', 1)
end

-- Acknowledges one item; answers whether it was in the member's hands until now.
local function acknowledge(member, id)
  local name, seq = string.match(id, '^(.*)/(%d+)$')
  if redis.call('HDEL', key('unacked', member), id) == 0 then return false end
  delete_item(name, seq)
  count_held(name, member, -1)
  return true
end
