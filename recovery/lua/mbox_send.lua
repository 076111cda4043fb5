-- Puts one item into a mailbox. The same ticket puts it in once.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 name  2 member  3 incarnation  4 participant  5 ticket  6 mode: `wait`, `try`, `leave` (as lock_acquire)
--          7 value; absent when asking again, so that a large value crosses the network once
-- Answers  {'granted', number}: it is in, as this sender's item `number` · {'queued'} · {'full'} (try) · {'left'}
--          · {'lost'}: asked again, but neither in nor waiting · {'interrupted', incident} · {'closed'} · {'unknown'}
--          · {'fenced', current incarnation}
--
-- A waiting sender's value waits with it in mboxw:<name>; whoever makes space moves it in, so a sender that was woken
-- has nothing left to do that could fail.
-- include: common
-- include: mailboxes

local name, member, incarnation, participant, ticket, mode, value = unpack(ARGV)
local entry = entry_of(participant, ticket)

local wrong = mailbox_types(name) or wrong_type(key('sent', member), 'hash', key('asked', member), 'hash',
  key('waits', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local outcome = outcome_of(member, participant, ticket)
local number = outcome and string.match(outcome, '^granted:(%d+)$')
if number then return {'granted', number} end
local incident = interrupted_in(outcome)
if incident then return {'interrupted', incident} end
if mode == 'leave' then
  unstand(member, entry)
  return {'left'}
end
if run_ends() then return {'closed'} end
if stands(member, entry) then return {'queued'} end
local capacity = tonumber(redis.call('HGET', key('mbox', name), 'capacity'))
if not capacity then return {'unknown'} end
if not value then return {'lost'} end

if redis.call('LLEN', key('mboxq', name)) < capacity and redis.call('LLEN', key('mboxs', name)) == 0 then
  local given = accept_item(name, member, participant, value)
  note_outcome(member, participant, ticket, 'granted:' .. given)
  pump(name)
  return {'granted', tostring(given)}
end
if mode == 'try' then return {'full'} end
redis.call('HSET', key('mboxw', name), entry, value)
stand(member, entry, 'send', name)
return {'queued'}
