-- Says that a member's process has ended. A dead process waits for nothing: its queue places go. What it holds stays
-- held, visibly, until its next registration or a fence.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 state: done or dead  4 error or ''
-- Answers  {'ok'}, also the second time · {'fenced', current incarnation}
-- include: common
-- include: locks
-- include: mailboxes
-- include: void

local member, incarnation, state, why = unpack(ARGV)
local hash = key('member', member)
local wrong = void_types(member)
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local known = redis.call('HGET', hash, 'state')
if known == 'done' or known == 'dead' then return {'ok'} end
redis.call('HSET', hash, 'state', state, 'error', why, 'ended_at', stamp(clock()))
remove_waiters(member, 'ended')
pump_ordered()
return {'ok'}
