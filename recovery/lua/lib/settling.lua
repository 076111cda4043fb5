-- Consuming what a trainer group has taken in steps that nobody will repeat. `kind` is `step` (takes from mailboxes with ack
-- `step` alone) or `manifest` (all).
-- include: mailboxes

local function places_before(group, before)
  return redis.call('ZRANGEBYSCORE', key('takes', group), '-inf', '(' .. before)
end

-- Checks all that settle_takes writes. Answers an error reply, or nil.
local function settle_types(group, before)
  local wrong = wrong_type(key('takes', group), 'zset', key('kept', group), 'hash') or ordered_types()
  if wrong then return wrong end
  for _, place in ipairs(places_before(group, before)) do
    local id = group .. '/' .. place
    wrong = take_types(id) or mailbox_types(redis.call('HGET', key('take', id), 'mailbox'))
    if wrong then return wrong end
  end
  return nil
end

local function give_back(name, seqs)
  if #seqs == 0 then return end
  redis.call('HINCRBY', key('mbox', name), 'taken', -#seqs)
  for i, seq in ipairs(seqs) do
    note_live(name, seq, head_of(name, seq))
    seqs[i] = tonumber(seq)
  end
  put_back(name, seqs)
  pump(name)
end

-- Ends one take: the items of a complete one are consumed, others go back. Answers how many were consumed.
local function settle_take(group, place, name)
  local id, seqs = group .. '/' .. place, {}
  local found = redis.call('HMGET', key('take', id), 'n', 'have')
  local have = tonumber(found[2])
  for i = 1, have do seqs[i] = redis.call('HGET', key('take', id), 'slot:' .. i) end
  wake_takers(id)
  redis.call('DEL', key('take', id))
  redis.call('ZREM', key('takes', group), place)
  if redis.call('HINCRBY', key('kept', group), name, -have) <= 0 then redis.call('HDEL', key('kept', group), name) end
  if found[1] ~= found[2] then
    give_back(name, seqs)
    return 0
  end
  for _, seq in ipairs(seqs) do delete_item(name, seq) end
  return have
end

-- Answers how many items were consumed.
local function settle_takes(group, before, kind)
  local consumed = 0
  for _, place in ipairs(places_before(group, before)) do
    local name = redis.call('HGET', key('take', group .. '/' .. place), 'mailbox')
    if kind == 'manifest' or redis.call('HGET', key('mbox', name), 'ack') == 'step' then
      consumed = consumed + settle_take(group, place, name)
    end
  end
  return consumed
end
