-- Ends a run: from now on waits end with `closed`, at once also those that stand.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 driver token  2 state: `closing` (members are leaving) or `closed` (all have left)
-- Answers  {'ok', waits ended} · {'busy', driver_name}: another driver has the run; nothing was done
-- include: common

local token, state = ARGV[1], ARGV[2]
local run = P .. 'run'
local wrong = wrong_type(run, 'hash', P .. 'members', 'set')
if wrong then return wrong end
local known = redis.call('HMGET', run, 'state', 'driver', 'driver_name')
if known[2] ~= token then return {'busy', known[3] or ''} end
if known[1] == 'closed' then return {'ok', 0} end

redis.call('HSET', run, 'state', state)
if state == 'closed' then redis.call('HSET', run, 'ended_at', stamp(clock())) end
local ended = 0
for _, member in ipairs(redis.call('SMEMBERS', P .. 'members')) do
  for _, entry in ipairs(redis.call('HKEYS', key('waits', member))) do
    unstand(member, entry)
    wake(entry, 'closed')
    ended = ended + 1
  end
end
return {'ok', ended}
