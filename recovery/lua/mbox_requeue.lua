-- Puts a member's unacknowledged items back into their mailboxes, in front and in the order of sending.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 mailbox, or '' for all  4 number of one item in it, or '' for all
-- Answers  {'ok', how many} · {'fenced', current incarnation}
-- include: common
-- include: mailboxes

local member, incarnation, only, one = unpack(ARGV)
local wrong = wrong_type(key('unacked', member), 'hash')
if wrong then return wrong end
local by_mailbox = unacked_by_mailbox(member, only)
if one ~= '' then
  local held = redis.call('HEXISTS', key('unacked', member), item_id(only, one)) == 1
  by_mailbox = held and {[only] = {tonumber(one)}} or {}
end
for name in pairs(by_mailbox) do
  wrong = mailbox_types(name)
  if wrong then return wrong end
end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
return {'ok', requeue_items(member, by_mailbox)}
