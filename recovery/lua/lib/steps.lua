-- A member's step. `step:<member>` has `committed` (how many steps are: also the seq of the next), `token` (which commit was
-- the last) and `at`.
-- include: locks
-- include: mailboxes
-- include: weights

local function step_types(member)
  return wrong_type(key('step', member), 'hash', key('unacked', member), 'hash', key('asked', member), 'hash',
    key('waits', member), 'hash', key('held', member), 'set', key('once', member), 'hash', key('state', member), 'hash',
    key('sent', member), 'hash', key('origins', member), 'hash', key('origin', member), 'zset') or ordered_types()
end

local function committed_steps(member) return tonumber(redis.call('HGET', key('step', member), 'committed') or '0') end

-- Checks the mailboxes of item ids. Answers an error reply, or nil.
local function id_types(ids)
  for _, id in ipairs(ids) do
    local name = string.match(id, '^(.*)/%d+$')
    if not name then return redis.error_reply('UNKNOTARG ' .. id .. ' is no item id') end
    local wrong = mailbox_types(name)
    if wrong then return wrong end
  end
  return nil
end

-- Checks the locks of a step, given as {name, token}. Answers an error reply, or nil.
local function step_lock_types(locks)
  for _, lock in ipairs(locks) do
    local wrong = lock_types(lock[1])
    if wrong then return wrong end
  end
  return nil
end

-- Passes on what the participant took in the step and still holds.
local function free_step_locks(participant, locks)
  for _, lock in ipairs(locks) do
    local now = redis.call('HMGET', key('lock', lock[1]), 'holder', 'token')
    if now[1] == participant and now[2] == lock[2] then pass_on(lock[1]) end
  end
end
