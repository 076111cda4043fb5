-- Consumes what a group has taken in steps that nobody will repeat. Items of a take that never became complete go back.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 steps before this one  3 kind: `step` (mailboxes with ack `step` alone) or `manifest` (all)
--          4 member and 5 incarnation of the asking rank, or '' and ''
-- Answers  {'ok', how many items were consumed}: nothing the second time · {'fenced', current incarnation}
-- include: common
-- include: settling

local group, before, kind, member, incarnation = unpack(ARGV)
local wrong = settle_types(group, before)
if wrong then return wrong end
local newer = member ~= '' and replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
return {'ok', settle_takes(group, before, kind)}
