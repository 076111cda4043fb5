-- Publishes one record of a process: an entry of the stream, and the last record that a late reader starts from.
--
-- KEYS[1]  prefix of the run
-- ARGV     1 member  2 incarnation  3 number of the record  4 its time, seconds  5 the record (msgpack)
--          6 entries that the stream keeps  7 seconds that the last record is kept
-- Answers  {'ok'}, also the second time · {'old', number}: a later record stands, nothing was written (a record whose
--          answer was lost may arrive after the one that followed it) · {'fenced', current incarnation}
-- include: common

local member, incarnation, n, t, body, kept, kept_s = unpack(ARGV)
local proc = key('proc', member .. '#' .. incarnation)
local wrong = wrong_type(proc, 'hash', P .. 'events', 'stream', key('member', member), 'hash')
if wrong then return wrong end
local newer = replaced_by(member, incarnation)
if newer then return {'fenced', newer} end
local last = tonumber(redis.call('HGET', proc, 'n') or '0')
if last == tonumber(n) then return {'ok'} end
if last > tonumber(n) then return {'old', tostring(last)} end

redis.call('XADD', P .. 'events', 'MAXLEN', '~', kept, '*', 'r', body)
redis.call('HSET', proc, 'n', n, 'full', body, 'at', t)
redis.call('EXPIRE', proc, kept_s)
return {'ok'}
