-- configure: a new version of the live values, with the line that records it. Nodes are told at once.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 version that it is made from (0 = there is none), 3 the values, 4 line for the history,
--       5 not before (wall ms, 0 = now)
-- Returns  1, or 0 when another version is there or it is too early, and nothing was done; the version
--          that is there now, the server's wall clock

local KEPT = 1000 -- lines of the history

read_wall()
local key = SHARD .. ':config'
local version = tonumber(call('HGET', key, 'version')) or 0
if version ~= tonumber(ARGV[2]) or wall < tonumber(ARGV[5]) then return {0, version, int(wall)} end
-- The line comes first: without it nobody could go back from this version. One of a version that was
-- torn off undoes nothing.
call('RPUSH', SHARD .. ':config:history', ARGV[4])
call('LTRIM', SHARD .. ':config:history', -KEPT, -1)
call('HSET', key, 'version', int(version + 1), 'values', ARGV[3])
call('PUBLISH', key, int(version + 1))
return {1, version + 1, int(wall)}
