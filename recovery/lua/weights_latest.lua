-- The newest published weights, or a wait for them.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
--          7 smallest n that will do (0: any)
-- Answers  {'granted', n, generation, digest, at, payload} · {'queued'} · {'empty'} (try) · {'left'}
--          · {'interrupted', incident} · {'closed'} · {'fenced', current incarnation}
-- include: common

local name, member, incarnation, participant, ticket, mode, at_least = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = wrong_type(key('weights', name), 'hash', key('weightsq', name), 'list', key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local n = redis.call('HGET', key('weights', name), 'n')
if n and tonumber(n) >= tonumber(at_least) then
  unstand(member, entry)
  local found = redis.call('HMGET', key('weights', name), 'n', 'generation', 'digest', 'at', 'payload')
  return {'granted', unpack(found)}
end
local no = refused(member, participant, ticket, mode)
if no then return no end
if stands(member, entry) then return {'queued'} end
if mode == 'try' then return {'empty'} end
stand(member, entry, 'weights', name, at_least)
return {'queued'}
