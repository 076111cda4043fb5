-- The items of one take of a trainer group: the same for every rank that asks, now and in every repeat of the step.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 seq of the step  3 call: the how-manieth take of the step  4 mailbox  5 n  6 limit of what the group
--          keeps, or ''  7 member  8 incarnation  9 participant  10 ticket  11 mode: `wait`, `try`, `leave` (as lock_acquire)
-- Answers  {'granted', decided (1 or 0), seq, head, value, seq, head, value, ...}: all n items, in order · {'queued', have}
--          · {'empty', have} (try) · {'left'} · {'interrupted', incident} · {'closed'} · {'unknown'}
--          · {'differs', mailbox, n}: the step took otherwise before · {'over', kept}: it would keep more than the limit
--          · {'fenced', current incarnation}
--
-- A take that has not enough keeps what it has and stands among the mailbox' receivers, once for each rank that waits.
-- include: common
-- include: mailboxes

local group, seq, call, name, n, limit, member, incarnation, participant, ticket, mode = unpack(ARGV)
local place = seq .. '/' .. call
local id = group .. '/' .. place
local hash, entry = key('take', id), entry_of(participant, ticket)

local wrong = mailbox_types(name) or take_types(id) or wrong_type(key('waits', member), 'hash', key('asked', member), 'hash',
  P .. 'takers', 'set')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end

local function granted()
  local items = {'granted', redis.call('HGET', hash, 'decided') or '0'}
  for i = 1, tonumber(n) do
    local number, head, value = shown(name, redis.call('HGET', hash, 'slot:' .. i))
    items[#items + 1], items[#items + 2], items[#items + 3] = number, head, value
  end
  return items
end

local function is_complete() return redis.call('HGET', hash, 'have') == n end

local known = redis.call('HMGET', hash, 'mailbox', 'n')
if known[1] and (known[1] ~= name or known[2] ~= n) then return {'differs', known[1], known[2]} end
if is_complete() then
  unstand(member, entry)
  return granted()
end
local no = refused(member, participant, ticket, mode)
if no then return no end
if redis.call('HEXISTS', key('mbox', name), 'capacity') == 0 then return {'unknown'} end
local kept = 0
for _, count in ipairs(redis.call('HVALS', key('kept', group))) do kept = kept + tonumber(count) end
local have = tonumber(redis.call('HGET', hash, 'have') or '0')
if limit ~= '' and kept + tonumber(n) - have > tonumber(limit) then return {'over', kept} end

if not known[1] then
  redis.call('HSET', hash, 'mailbox', name, 'n', n, 'have', 0)
  redis.call('ZADD', key('takes', group), seq, place)
  redis.call('SADD', P .. 'takers', group)
end
if not stands(member, entry) then
  while not is_complete() and fill_take(id, name) do pump(name) end
  if is_complete() then return granted() end
end
have = redis.call('HGET', hash, 'have')
if mode == 'try' then return {'empty', have} end
if not stands(member, entry) then
  stand(member, entry, 'take', name, id)
  redis.call('RPUSH', key('takeq', id), entry)
end
return {'queued', have}
