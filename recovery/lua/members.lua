-- Reads all members.
--
-- KEYS[1]  prefix of the run
-- Answers  {Redis time, {member, fields as a flat list}, ...} sorted by member
-- include: common

local names = redis.call('SMEMBERS', P .. 'members')
table.sort(names)
local answers = {stamp(clock())}
for _, name in ipairs(names) do answers[#answers + 1] = {name, redis.call('HGETALL', key('member', name))} end
return answers
