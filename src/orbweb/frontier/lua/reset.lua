-- reset: forget runs of a job, so that the next start begins anew. Their keys become garbage.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 job, 3 run, 4 also what the job has seen (0/1), 5 only this incarnation ('' or
--       missing = whichever), 6 line for the audit trail ('' or missing = none)
-- Returns  1 when there was such a run

local name = ARGV[2] .. ':' .. ARGV[3]
local epoch = call('HGET', SHARD .. ':current', name)
if ARGV[5] and ARGV[5] ~= '' and epoch ~= ARGV[5] then return 0 end
if ARGV[6] and ARGV[6] ~= '' then
  call('RPUSH', SHARD .. ':audit', ARGV[6])
  call('LTRIM', SHARD .. ':audit', -10000, -1)
end
local generation = ARGV[4] == '1' and call('HGET', SHARD .. ':jobs', ARGV[2])
if generation then
  call('SADD', SHARD .. ':garbage', SHARD .. ':job:' .. ARGV[2] .. ':' .. generation)
  call('HDEL', SHARD .. ':jobs', ARGV[2])
  call('UNLINK', SHARD .. ':job:' .. ARGV[2] .. ':items')
end
if not epoch then return 0 end
call('HDEL', SHARD .. ':current', name)
give_up(name .. ':' .. epoch)
return 1
