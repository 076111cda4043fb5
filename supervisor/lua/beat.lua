-- A process' sign of life: renews its lease, and says how many records it has written and what it got done. The number lets a
-- monitor find that a record was lost (a restarted Redis forgets the last second), which no later record would tell of a
-- process that stands still.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 number of its last record  4 progress marks (JSON), or '' if they have not changed
-- Answers  {'ok'} · {'fenced', current incarnation}
-- include: common

local member, incarnation, n, marks = unpack(ARGV)
local hash = key('member', member)
local wrong = wrong_type(hash, 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
redis.call('HSET', hash, 'beat_at', stamp(clock()), 'n', n)
if marks ~= '' then redis.call('HSET', hash, 'progress', marks) end
return {'ok'}
