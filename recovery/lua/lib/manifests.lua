-- Attempts to make a manifest. `manifest_ids` maps `group|generation|seq` to the id of the one attempt there is for it;
-- `manifest:<id>` holds it: group, generation, seq, size, state, directory, created_at, `rank:<i>` (JSON of what that rank
-- wrote), and once committed number, committed_at, `agent:<member>`, `mbox:<name>`, `weights:<name>`.

local function attempt_types(id)
  return wrong_type(key('manifest', id), 'hash', P .. 'manifests', 'zset', P .. 'manifest_ids', 'hash',
    P .. 'manifest_n', 'string')
end

-- Whether the generation stands in which an attempt was begun: only then may it be committed.
local function generation_stands(group, generation)
  local now = redis.call('HMGET', key('group', group), 'generation', 'state')
  return now[1] == generation and now[2] ~= 'broken'
end

local function abandon(id, why) redis.call('HSET', key('manifest', id), 'state', 'abandoned', 'why', why) end
