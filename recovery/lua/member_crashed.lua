-- Says that a member's process is gone and another one will take its place: everything of it is void at once, its locks are
-- passed on, its unacknowledged items are back, and it counts as one that runs until its successor registers.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation that is gone  3 how it ended, for people
-- Answers  {'ok', incarnation that the successor will have, locks freed, items put back}
--          · {'gone', current incarnation}: a newer one stands, or it has ended before; nothing was done, but
--          `how` is kept if that is the crash that is known
--
-- Writes member:<member> (state `starting`; `crash` = `incarnation|at|how`), all that register.lua writes of older
-- incarnations, one record in events: the fence, and the start of the incarnation to come.
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local member, incarnation, how = unpack(ARGV)
local hash = key('member', member)

local wrong = void_types(member)
if wrong then return wrong end
local known = redis.call('HMGET', hash, 'incarnation', 'state', 'role', 'crash')
if known[1] ~= incarnation or known[2] ~= 'alive' then
  local at = string.match(known[4] or '', '^' .. incarnation .. '|([^|]*)|')
  if at then redis.call('HSET', hash, 'crash', incarnation .. '|' .. at .. '|' .. how) end
  return {'gone', known[1] or '0'}
end

local new = redis.call('HINCRBY', hash, 'incarnation', 1)
redis.call('HSET', hash, 'state', 'starting', 'crash', incarnation .. '|' .. stamp(clock()) .. '|' .. how)
redis.call('HDEL', hash, 'error', 'ended_at', 'n', 'progress', 'boot', 'pid', 'host')
local locks, items = void_older(member, new)
announce({fence_of(member, new), start_of(member, known[3], new)})
return {'ok', tostring(new), locks, items}
