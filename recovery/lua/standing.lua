-- Which waits still stand in their queue, seen at one instant. A wait that was granted but whose thread has not woken
-- yet does not stand: a set of waits that all stand at once, twice, is really blocked.
--
-- KEYS[1]  prefix of the run
-- ARGV     entries `participant|ticket`
-- Answers  {1 or 0, ...} in the order of asking
-- include: common

local answers = {}
for i, entry in ipairs(ARGV) do
  local _, _, member = parse_entry(entry)
  answers[i] = (member and stands(member, entry)) and 1 or 0
end
return answers
