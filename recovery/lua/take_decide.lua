-- Decides once for all ranks which items of a complete take are dropped. Dropped ones are consumed, others take their place.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 seq  3 call  4 member  5 incarnation  6 numbers of all its items, in order, with commas between
--          7... numbers of those to drop; none: the take stands as it is
-- Answers  {'decided'}: it stands · {'dropped', how many}: ask again · {'changed'}: it is not (any more) as told, ask again
--          · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local group, seq, call, member, incarnation, told = unpack(ARGV)
local id = group .. '/' .. seq .. '/' .. call
local hash = key('take', id)
local name = redis.call('HGET', hash, 'mailbox')
local wrong = take_types(id) or (name and mailbox_types(name)) or ordered_types()
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
if not name then return {'changed'} end
local slots = {}
for i = 1, tonumber(redis.call('HGET', hash, 'have')) do slots[i] = redis.call('HGET', hash, 'slot:' .. i) end
if table.concat(slots, ',') ~= told then return {'changed'} end
if redis.call('HGET', hash, 'decided') == '1' then return {'decided'} end
if #ARGV == 6 then
  redis.call('HSET', hash, 'decided', 1)
  return {'decided'}
end

local dropped, left = {}, 0
for i = 7, #ARGV do dropped[ARGV[i]] = true end
for i, item in ipairs(slots) do
  redis.call('HDEL', hash, 'slot:' .. i)
  if dropped[item] then
    delete_item(name, item)
    redis.call('HINCRBY', key('mbox', name), 'dropped', 1)
  else
    left = left + 1
    redis.call('HSET', hash, 'slot:' .. left, item)
  end
end
redis.call('HSET', hash, 'have', left)
redis.call('HINCRBY', key('kept', group), name, left - #slots)
return {'dropped', #slots - left}
