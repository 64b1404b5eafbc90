-- reset: forget runs of a job, so that the next start begins anew. Their keys become garbage.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 job, 3 run, 4 also what the job has seen (0/1)
-- Returns  1 when there was such a run

local name = ARGV[2] .. ':' .. ARGV[3]
local epoch = call('HGET', SHARD .. ':current', name)
if ARGV[4] == '1' then call('SADD', SHARD .. ':garbage', SHARD .. ':job:' .. ARGV[2]) end
if not epoch then return 0 end
call('SADD', SHARD .. ':garbage', SHARD .. ':run:' .. name .. ':' .. epoch)
call('ZREM', SHARD .. ':runs', name .. ':' .. epoch)
call('HDEL', SHARD .. ':current', name)
return 1
