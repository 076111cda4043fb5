-- Puts one item into a mailbox. The same ticket puts it in once.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
--          7 the only member that may receive it, or ''
--          8 value; absent when asking again, so that a large value crosses the network once
-- Answers  {'granted', number}: it is in, as this sender's item `number` · {'queued'} · {'full'} (try) · {'left'}
--          · {'lost'}: asked again, but neither in nor waiting · {'interrupted', incident} · {'closed'} · {'unknown'}
--          · {'no origin'}: the sender is not one of the mailbox' origins · {'fenced', current incarnation}
--
-- A waiting sender's value waits with it in mboxw:<name>; whoever makes space moves it in, so a sender that was woken
-- has nothing left to do that could fail.
-- include: common
-- include: mailboxes

local name, member, incarnation, participant, ticket, mode, to, value = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = mailbox_types(name) or wrong_type(key('sent', member), 'hash', key('origins', member), 'hash',
  key('origin', member), 'zset', key('asked', member), 'hash', key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local outcome = outcome_of(member, participant, ticket)
local number = outcome and string.match(outcome, '^granted:(%d+)$')
if number then return {'granted', number} end
local no = refused(member, participant, ticket, mode)
if no then return no end
if stands(member, entry) then return {'queued'} end
if redis.call('HEXISTS', key('mbox', name), 'capacity') == 0 then return {'unknown'} end
if by_origin(name) and not place_of(name, member) then return {'no origin'} end
if not value then return {'lost'} end

local first = by_origin(name) or redis.call('LLEN', key('mboxs', name)) == 0
if first and has_room_for(name, member) then
  local given = accept_item(name, member, participant, value, nil, to)
  note_outcome(member, participant, ticket, 'granted:' .. given)
  pump(name)
  return {'granted', tostring(given)}
end
if mode == 'try' then return {'full'} end
redis.call('HSET', key('mboxw', name), entry, value)
stand(member, entry, 'send', name, to)
return {'queued'}
