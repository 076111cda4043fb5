-- Publishes weights. The newest generation wins; within one, n never falls.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 n, or '' for the next  7 generation  8 digest
--          9 payload
-- Answers  {'ok', n}: also for n and digest that stand already, and for the same ticket again; nothing is written then
--          · {'stale', n, generation}: older than what stands · {'fenced', current incarnation}
-- include: common

local name, member, incarnation, participant, ticket, n, generation, digest, payload = unpack(ARGV)
local hash = key('weights', name)
local request = entry_of(participant, ticket)

local wrong = wrong_type(hash, 'hash', key('weightsq', name), 'list', P .. 'published', 'set')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', hash, 'n', 'generation', 'digest', 'request')
local standing_n, standing_generation = tonumber(now[1] or '0'), tonumber(now[2] or '0')
if now[4] == request then return {'ok', now[1]} end
if n == '' then n = string.format('%d', standing_n + 1) end
if now[1] then
  if tonumber(generation) < standing_generation then return {'stale', now[1], now[2]} end
  if tonumber(generation) == standing_generation then
    if tonumber(n) < standing_n then return {'stale', now[1], now[2]} end
    if tonumber(n) == standing_n and digest == now[3] then return {'ok', n} end
  end
end

redis.call('SADD', P .. 'published', name)
redis.call('HSET', hash, 'n', n, 'generation', generation, 'digest', digest, 'payload', payload,
  'at', stamp(clock()), 'request', request, 'by', participant)
for _, entry in ipairs(redis.call('LRANGE', key('weightsq', name), 0, -1)) do
  local _, _, waiter = parse_entry(entry)
  local where = redis.call('HGET', key('waits', waiter), entry)
  local at_least = where and tonumber(string.match(where, '|(%d+)$'))
  if not at_least or at_least <= tonumber(n) then
    unstand(waiter, entry)
    redis.call('LREM', key('weightsq', name), 0, entry)
    wake(entry, 'granted')
  end
end
return {'ok', n}
