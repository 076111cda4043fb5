-- Publishes weights. The newest generation wins; within one, n never falls. What stands under that number already is left.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 n, or '' for the next  7 generation  8 digest
--          9 how many versions are kept  10 payload
-- Answers  {'ok', n}: also for n and digest that stand already, and for the same ticket again; nothing is written then
--          · {'stale', n, generation}: older than what stands · {'fenced', current incarnation}
--
-- A newer generation that publishes other weights under a number makes the versions after it void: they belong to steps that
-- were rolled back.
-- include: weights

local name, member, incarnation, participant, ticket, n, generation, digest, keep, payload = unpack(ARGV)
local hash = key('weights', name)
local request = entry_of(participant, ticket)

local wrong = weights_types(name)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', hash, 'n', 'generation', 'request')
if now[3] == request then return {'ok', now[1]} end
local verdict, number = judge_weights(name, n, generation, digest)
if verdict == 'stale' then return {'stale', now[1], now[2]} end
if verdict == 'same' then
  note_generation(name, generation)
  return {'ok', number}
end
put_weights(name, number, generation, digest, payload, participant, request, keep)
return {'ok', number}
