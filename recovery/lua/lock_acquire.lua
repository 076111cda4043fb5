-- Asks for a lock, first come first served. The same ticket always gets the same answer.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket
--          6 mode: `wait` (stand in the queue if need be), `try` (do not), `leave` (give up; says if it was granted)
-- Answers  {'granted', token} · {'queued'} · {'busy'} (try) · {'left'} (leave) · {'interrupted', incident}
--          · {'closed'} (the run ends and the lock is not free) · {'fenced', current incarnation}
-- include: common
-- include: locks

local name, member, incarnation, participant, ticket, mode = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = lock_types(name) or wrong_type(key('held', member), 'set', key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local lock = redis.call('HMGET', key('lock', name), 'holder', 'ticket', 'token')
if lock[1] == participant and lock[2] == ticket then return {'granted', lock[3]} end
local incident = interrupted_in(outcome_of(member, participant, ticket))
if incident then return {'interrupted', incident} end
if mode == 'leave' then
  unstand(member, entry)
  return {'left'}
end
if stands(member, entry) then return {'queued'} end
if not lock[1] then return {'granted', tostring(grant_lock(name, entry))} end
if mode == 'try' then return {'busy'} end
if run_ends() then return {'closed'} end
stand(member, entry, 'lock', name)
return {'queued'}
