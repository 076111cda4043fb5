-- Begins an attempt to make a manifest, or finds the one that was begun for the same group, generation and seq.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 generation  3 seq  4 size  5 member  6 incarnation  7 id that a new attempt would have
--          8 directory of the checkpoints  9 smallest number that is free there
-- Answers  {'ok', id} · {'abandoned', id, why}: the attempt is over · {'over', generation, state}: that generation is over
--          · {'differs', id, size}: it was begun with another size · {'fenced', current incarnation}
--
-- Attempts of the group's other generations that were not committed are abandoned: they never will be.
-- include: common
-- include: manifests

local group, generation, seq, size, member, incarnation, proposed, directory, free = unpack(ARGV)
local slot = group .. '|' .. generation .. '|' .. seq

local wrong = attempt_types(proposed) or wrong_type(key('group', group), 'hash', key('member', member), 'hash')
if wrong then return wrong end
local all = redis.call('HGETALL', P .. 'manifest_ids')
for i = 2, #all, 2 do
  wrong = attempt_types(all[i])
  if wrong then return wrong end
end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
if not generation_stands(group, generation) then
  local now = redis.call('HMGET', key('group', group), 'generation', 'state')
  return {'over', now[1] or '0', now[2] or ''}
end
local id = redis.call('HGET', P .. 'manifest_ids', slot)
if id then
  local standing = redis.call('HMGET', key('manifest', id), 'size', 'state', 'why')
  if standing[1] ~= size then return {'differs', id, standing[1]} end
  if standing[2] == 'abandoned' or standing[2] == 'dropped' then return {'abandoned', id, standing[3] or ''} end
  return {'ok', id}
end

for i = 2, #all, 2 do
  local other = redis.call('HMGET', key('manifest', all[i]), 'group', 'generation', 'state')
  if other[1] == group and other[2] ~= generation and other[3] == 'preparing' then
    abandon(all[i], 'generation ' .. other[2] .. ' is over')
  end
end
if tonumber(redis.call('GET', P .. 'manifest_n') or '0') < tonumber(free) - 1 then
  redis.call('SET', P .. 'manifest_n', string.format('%d', tonumber(free) - 1))
end
redis.call('HSET', P .. 'manifest_ids', slot, proposed)
redis.call('HSET', key('manifest', proposed), 'group', group, 'generation', generation, 'seq', seq, 'size', size,
  'state', 'preparing', 'directory', directory, 'created_at', stamp(clock()))
return {'ok', proposed}
