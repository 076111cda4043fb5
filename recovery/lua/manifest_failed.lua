-- A rank says that a save of its group has failed. It stands until a manifest of the group is committed (manifest_answer.lua).
--
-- KEYS[1]  prefix of the run
-- ARGV     1 group  2 generation  3 member  4 incarnation  5 seq  6 JSON of the failure
-- Answers  {'ok', since}: seconds, when the first failure since the last commit was told · {'over'}: the generation is
--          · {'fenced', current incarnation}
--
-- Of one save the first failure told stays: what the other ranks meet then follows from it. Written is a head (`since
-- generation/seq n step`: n saves have failed since; step is that of the group's newest manifest, - if it has none), this failure,
-- and the first one, a line each.
-- include: common
-- include: manifests

-- The step of the group's newest manifest, - if it has none.
local function newest_step(group)
  for _, id in ipairs(redis.call('ZREVRANGE', P .. 'manifests', 0, -1)) do
    local one = redis.call('HMGET', key('manifest', id), 'group', 'seq')
    if one[1] == group then return one[2] end
  end
  return '-'
end

local group, generation, member, incarnation, seq, body = unpack(ARGV)
local failed = P .. 'manifest_failed'
local wrong = wrong_type(failed, 'hash', P .. 'manifests', 'zset', key('group', group), 'hash', key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
if not generation_stands(group, generation) then return {'over'} end
local before = redis.call('HGET', failed, group) or ''
local since, of, n, step, first = string.match(before, '^(%S+) (%S+) (%d+) (%S+)\n[^\n]*\n(.*)$')
if of == generation .. '/' .. seq then return {'ok', since} end
if not since then since, n, step, first = stamp(clock()), 0, newest_step(group), body end
local head = since .. ' ' .. generation .. '/' .. seq .. ' ' .. string.format('%d', n + 1) .. ' ' .. step
redis.call('HSET', failed, group, head .. '\n' .. body .. '\n' .. first)
return {'ok', since}
