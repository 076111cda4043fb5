-- Takes the next item of a mailbox. It is the member's, unacknowledged, until it is acknowledged or put back. The same
-- ticket takes one item.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
--          7 the only member whose items will do, or ''
-- Answers  {'granted', seq, head (lib/items), value} · {'queued'} · {'empty'} (try) · {'left'}
--          · {'interrupted', incident} · {'closed'} · {'unknown'} · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local name, member, incarnation, participant, ticket, mode, sender = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = mailbox_types(name) or wrong_type(key('unacked', member), 'hash', key('asked', member), 'hash',
  key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local outcome = outcome_of(member, participant, ticket)
local seq = outcome and string.match(outcome, '^granted:(%d+)$')
if seq and redis.call('HEXISTS', key('unacked', member), item_id(name, seq)) == 1 then return {'granted', shown(name, seq)} end
local no = refused(member, participant, ticket, mode)
if no then return no end
if stands(member, entry) then return {'queued'} end
if redis.call('HEXISTS', key('mbox', name), 'capacity') == 0 then return {'unknown'} end

seq = find_item(name, member, sender)
if seq then
  hand_item(name, seq, member, participant, ticket)
  pump(name)
  return {'granted', shown(name, seq)}
end
if mode == 'try' then return {'empty'} end
stand(member, entry, 'recv', name, sender)
return {'queued'}
