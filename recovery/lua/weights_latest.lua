-- The newest published weights, or one version of them, or a wait for it.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
--          7 smallest n that will do (0: any)  8 the only n that will do, or ''
-- Answers  {'granted', n, generation, digest, at, provisional (1 or 0), payload} · {'queued'}
--          · {'empty'} (try) · {'gone', newest n}: that version is not kept, or never was
--          · {'left'} · {'interrupted', incident} · {'closed'} · {'fenced', current incarnation}
-- include: weights

local name, member, incarnation, participant, ticket, mode, least, exact = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = weights_types(name) or wrong_type(key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local head = redis.call('HMGET', key('weights', name), 'n', 'settled')
local n = head[1] and tonumber(head[1])
local wanted
if exact ~= '' then
  if redis.call('HEXISTS', key('weightsm', name), exact) == 1 then wanted = exact end
  if not wanted and n and tonumber(exact) <= n then
    unstand(member, entry)
    return {'gone', head[1]}
  end
elseif n and n >= tonumber(least) then
  wanted = head[1]
end
if wanted then
  unstand(member, entry)
  local version = version_of(name, wanted)
  local provisional = tonumber(wanted) > tonumber(head[2] or '0') and '1' or '0'
  return {'granted', wanted, version.generation, version.digest, version.at, provisional,
    redis.call('HGET', key('weightsv', name), wanted)}
end
local no = refused(member, participant, ticket, mode)
if no then return no end
if stands(member, entry) then return {'queued'} end
if mode == 'try' then return {'empty'} end
stand(member, entry, 'weights', name, exact ~= '' and exact or least)
return {'queued'}
