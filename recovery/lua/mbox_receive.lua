-- Takes the oldest item of a mailbox. It is the member's, unacknowledged, until mbox_ack or mbox_requeue. The same
-- ticket takes one item.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
-- Answers  {'granted', seq, `sender|number|sent_at`, value} · {'queued'} · {'empty'} (try) · {'left'}
--          · {'interrupted', incident} · {'closed'} · {'unknown'} · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local name, member, incarnation, participant, ticket, mode = unpack(ARGV)
local entry = entry_of(participant, ticket)

local function item(seq)
  local held = redis.call('HMGET', key('mboxi', name), seq .. 'h', seq)
  return {'granted', seq, held[1], held[2]}
end

local wrong = mailbox_types(name) or wrong_type(key('unacked', member), 'hash', key('asked', member), 'hash',
  key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local outcome = outcome_of(member, participant, ticket)
local seq = outcome and string.match(outcome, '^granted:(%d+)$')
if seq and redis.call('HEXISTS', key('unacked', member), name .. '/' .. seq) == 1 then return item(seq) end
local incident = interrupted_in(outcome)
if incident then return {'interrupted', incident} end
if mode == 'leave' then
  unstand(member, entry)
  return {'left'}
end
if run_ends() then return {'closed'} end
if stands(member, entry) then return {'queued'} end
if redis.call('HEXISTS', key('mbox', name), 'capacity') == 0 then return {'unknown'} end

seq = redis.call('LPOP', key('mboxq', name))
if seq then
  hand_item(name, seq, member, participant, ticket)
  pump(name)
  return item(seq)
end
if mode == 'try' then return {'empty'} end
stand(member, entry, 'recv', name)
return {'queued'}
