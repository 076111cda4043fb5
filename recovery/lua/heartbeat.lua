-- Renews a member's lease.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation
-- Answers  {'ok', run state or ''} · {'fenced', current incarnation}
-- include: common

local member, incarnation = ARGV[1], ARGV[2]
local hash = key('member', member)
local wrong = wrong_type(hash, 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
redis.call('HSET', hash, 'beat_at', stamp(clock()))
return {'ok', redis.call('HGET', P .. 'run', 'state') or ''}
