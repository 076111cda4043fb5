-- A rank has written everything. The last answer commits the manifest: with what every agent, mailbox and set of weights is
-- at that very moment, and with the acknowledgement of the items whose effect the ranks' states hold.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 id  2 rank  3 member  4 incarnation  5 record: JSON of what the rank wrote; its `items` are item ids
-- Answers  {'waiting', answered} · {'committed', number}: by this call, or before; then the flat list of its fields
--          · {'over', state, why}: it is abandoned (now or before) or dropped · {'unknown'} · {'differs', size}: no such rank
--          · {'fenced', current incarnation}
-- include: common
-- include: manifests
-- include: mailboxes

local id, rank, member, incarnation, record = unpack(ARGV)
local hash = key('manifest', id)

-- What a commit reads and writes beside the record; answers an error reply, or nil.
local function commit_types(records)
  local wrong = wrong_type(P .. 'members', 'set', P .. 'mailboxes', 'set', P .. 'published', 'set', P .. 'manifest_failed', 'hash')
  if wrong then return wrong end
  for _, other in ipairs(redis.call('SMEMBERS', P .. 'members')) do
    wrong = wrong_type(key('step', other), 'hash')
    if wrong then return wrong end
  end
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'mailboxes')) do
    wrong = mailbox_types(name)
    if wrong then return wrong end
  end
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'published')) do
    wrong = wrong_type(key('weights', name), 'hash')
    if wrong then return wrong end
  end
  for _, one in ipairs(records) do
    wrong = wrong_type(key('unacked', one.member), 'hash')
    if wrong then return wrong end
    for _, item in ipairs(one.items) do
      local name = string.match(item, '^(.*)/%d+$')
      if not name then return redis.error_reply('UNKNOTARG ' .. item .. ' is no item id') end
      wrong = mailbox_types(name)
      if wrong then return wrong end
    end
  end
  return ordered_types()
end

local function acknowledge_all(records)
  local count = 0
  for _, one in ipairs(records) do
    for _, item in ipairs(one.items) do if acknowledge(one.member, item) then count = count + 1 end end
  end
  if count > 0 then pump_ordered() end
end

local function note_agents()
  for _, other in ipairs(redis.call('SMEMBERS', P .. 'members')) do
    local count = redis.call('HGET', key('step', other), 'committed')
    if count then redis.call('HSET', hash, 'agent:' .. other, count) end
  end
end

local function note_mailboxes()
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'mailboxes')) do
    local now = redis.call('HMGET', key('mbox', name), 'sent', 'taken', 'acked')
    redis.call('HSET', hash, 'mbox:' .. name, (now[1] or '0') .. ' ' .. (now[2] or '0') .. ' ' .. (now[3] or '0'))
  end
end

local function note_weights()
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'published')) do
    local now = redis.call('HMGET', key('weights', name), 'generation', 'n', 'digest')
    if now[2] then redis.call('HSET', hash, 'weights:' .. name, now[1] .. ' ' .. now[2] .. ' ' .. now[3]) end
  end
end

local function committed() return {'committed', redis.call('HGET', hash, 'number'), redis.call('HGETALL', hash)} end

local wrong = attempt_types(id) or wrong_type(key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local now = redis.call('HMGET', hash, 'state', 'group', 'generation', 'size', 'why')
if not now[1] then return {'unknown'} end
if now[1] == 'committed' then return committed() end
if now[1] ~= 'preparing' then return {'over', now[1], now[5] or ''} end
wrong = wrong_type(key('group', now[2]), 'hash')
if wrong then return wrong end
if tonumber(rank) < 0 or tonumber(rank) >= tonumber(now[4]) then return {'differs', now[4]} end
if not generation_stands(now[2], now[3]) then
  local why = 'generation ' .. now[3] .. ' is over'
  abandon(id, why)
  return {'over', 'abandoned', why}
end

local records, missing = {}, 0
for i = 0, tonumber(now[4]) - 1 do
  local text = tostring(i) == rank and record or redis.call('HGET', hash, 'rank:' .. i)
  if text then
    local one = cjson.decode(text)
    records[#records + 1] = {member = string.match(one.source, '^(.*)#%d+$'), items = one.items}
  else
    missing = missing + 1
  end
end
if missing > 0 then
  redis.call('HSET', hash, 'rank:' .. rank, record)
  return {'waiting', #records}
end
wrong = commit_types(records)
if wrong then return wrong end

acknowledge_all(records)
note_agents()
note_mailboxes()
note_weights()
local number = redis.call('INCR', P .. 'manifest_n')
redis.call('ZADD', P .. 'manifests', number, id)
redis.call('HDEL', P .. 'manifest_failed', now[2])
redis.call('HSET', hash, 'rank:' .. rank, record, 'state', 'committed', 'number', number, 'committed_at', stamp(clock()))
return committed()
