-- A rank says how far its generation has come.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 generation  5 rank  6 mark: `running` (its process group works)
--          or `done` (its run has returned; the group is done when all are)
-- Answers  {'ok', state} · {'gone', generation, state, reason}: the generation is over · {'fenced', current incarnation}
-- include: common
-- include: groups

local name, member, incarnation, generation, rank, mark = unpack(ARGV)
local hash = key('group', name)
local wrong = group_types(name)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', hash, 'generation', 'state', 'size', 'reason')
if now[1] ~= generation or now[2] == 'broken' then return {'gone', now[1] or '0', now[2] or '', now[4] or ''} end

if mark == 'running' then
  if now[2] == 'forming' then redis.call('HSET', hash, 'state', 'running', 'since', stamp(clock())) end
else
  redis.call('HSET', hash, 'done:' .. rank, 1)
  local all = true
  for i = 0, tonumber(now[3]) - 1 do all = all and redis.call('HEXISTS', hash, 'done:' .. i) == 1 end
  if all then redis.call('HSET', hash, 'state', 'done', 'since', stamp(clock()), 'done_under', driver_now()) end
end
return {'ok', redis.call('HGET', hash, 'state')}
