-- A rank joins the next generation of a group. Asking again with the same token is the same join.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 token of this join  6 size  7 rank
--          8 mode: `wait` (be woken when all have joined), `try`, `leave` (take the join back while others are missing)
-- Answers  {'granted', generation, source of rank 0, source of rank 1, ...}: all ranks have joined
--          · {'queued', generation, joined so far} · {'left'} · {'differs', size}: a generation of another size is forming
--          · {'done', generation}: every rank's run has returned, under the driver that still has the run: there is
--          nothing left to join for · {'interrupted', incident} · {'closed'} · {'fenced', current incarnation}
--
--   none, broken            -> a new generation forms, with this rank
--   done                    -> the same, but only under another driver
--   forming, ranks missing  -> this rank is in; a newer incarnation or join takes the place of an older
--   all in, or running      -> the same token: the generation. Another token: this rank has left that generation, or its
--                              process was replaced; so the generation is over: it breaks, and the next one forms
-- include: common
-- include: groups

local name, member, incarnation, participant, token, size, rank, mode = unpack(ARGV)
local hash = key('group', name)
local entry = entry_of(participant, token)

local wrong = group_types(name) or wrong_type(key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', hash, 'state', 'size', 'generation', 'ask:' .. rank, 'complete', 'done_under')
local stands_now = now[1] == 'forming' or now[1] == 'running'
local complete = stands_now and now[5] == '1'
local mine = stands_now and now[4] == token
if complete and mine then
  unstand(member, entry)
  return {'granted', now[3], unpack(joined_ranks(name, tonumber(now[2])))}
end
local incident = interrupted_in(outcome_of(member, participant, token))
if incident then return {'interrupted', incident} end
if mode == 'leave' then
  unstand(member, entry)
  if mine then redis.call('HDEL', hash, 'rank:' .. rank, 'ask:' .. rank) end
  return {'left'}
end
if run_ends() then return {'closed'} end
if now[1] == 'done' and now[6] ~= '' and now[6] == driver_now() then
  unstand(member, entry)
  return {'done', now[3]}
end
if now[1] == 'forming' and not complete and now[2] ~= size then return {'differs', now[2]} end

if complete then break_group(name, 'rank ' .. rank .. ' left and joined again as ' .. member .. '#' .. incarnation) end
if complete or now[1] ~= 'forming' then start_generation(name, size) end
redis.call('HSET', hash, 'rank:' .. rank, member .. '#' .. incarnation, 'ask:' .. rank, token)
local sources = joined_ranks(name, tonumber(size))
local count = 0
for i = 1, tonumber(size) do if sources[i] and not is_replaced(sources[i]) then count = count + 1 end end
local generation = redis.call('HGET', hash, 'generation')
if count == tonumber(size) then
  unstand(member, entry)
  complete_generation(name, generation)
  return {'granted', generation, unpack(sources)}
end
if mode == 'wait' and not stands(member, entry) then stand(member, entry, 'group', name) end
return {'queued', generation, count}
