-- Takes of a trainer group: the items of its `call`-th take in step `seq`, the same for every rank and every repeat.
-- `take:<group>/<seq>/<call>` has `mailbox`, `n`, `have` and `slot:<i>` -> number of the item; `takeq:` of it lists the ranks
-- that wait for it. A taken item is in nobody's hands and stays stored until it is settled.
-- include: items

local function take_types(id)
  local group = string.match(id, '^([^/]*)/')
  return wrong_type(key('take', id), 'hash', key('takeq', id), 'list', key('takes', group), 'zset', key('kept', group), 'hash')
end

-- Puts an item, which is out of the queue, into the next slot; answers whether the take is complete.
local function fill_slot(id, name, seq)
  local group, hash = string.match(id, '^([^/]*)/'), key('take', id)
  local have = redis.call('HINCRBY', hash, 'have', 1)
  redis.call('HSET', hash, 'slot:' .. have, seq)
  redis.call('HINCRBY', key('kept', group), name, 1)
  redis.call('HINCRBY', key('mbox', name), 'taken', 1)
  note_gone(name, seq, head_of(name, seq))
  return have == tonumber(redis.call('HGET', hash, 'n'))
end

-- All ranks that wait for the take are served.
local function wake_takers(id)
  for _, entry in ipairs(redis.call('LRANGE', key('takeq', id), 0, -1)) do
    local _, _, member = parse_entry(entry)
    unstand(member, entry)
    wake(entry, 'granted')
  end
  redis.call('DEL', key('takeq', id))
end
