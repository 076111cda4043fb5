-- Ends one wait of one participant, if that very wait still stands: compare-and-set on (participant, ticket).
--
-- KEYS[1]  prefix of the run
-- ARGV     1 participant  2 incarnation  3 ticket  4 incident id  5 leader token, or '' for none
-- Answers  {'interrupted'}, also the second time for the same incident · {'gone'}: granted, left or fenced meanwhile
--          · {'stale', leader's token}
-- include: common

local participant, incarnation, ticket, incident, token = unpack(ARGV)
local entry = entry_of(participant, ticket)
local _, _, member, own = parse_entry(entry)

local leader = redis.call('HGET', P .. 'leader', 'token') or '0'
if token ~= '' and token ~= leader then return {'stale', leader} end
if not member or own ~= incarnation then return {'gone'} end
local wrong = wrong_type(key('waits', member), 'hash', key('asked', member), 'hash', key('wake', entry), 'list')
if wrong then return wrong end
if interrupted_in(outcome_of(member, participant, ticket)) == incident then return {'interrupted'} end
if not stands(member, entry) then return {'gone'} end

unstand(member, entry)
note_outcome(member, participant, ticket, 'interrupted:' .. incident)
wake(entry, 'interrupted:' .. incident)
return {'interrupted'}
