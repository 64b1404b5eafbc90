-- pause: an operator holds a run, or lets it go on, with the line that records it.
--
-- ARGV  1 time, 2 until (wall ms, 0 = until it is resumed; '' = go on), 3 who, 4 why, 5 line for the
--       audit trail
-- Returns  until when it was paused ('' = it was not), by whom, why

if not begin() then return lost_run() end
local before = call('HMGET', META, 'paused', 'paused_by', 'paused_why')
if ARGV[2] == '' then
  if not before[1] then return {'', '', ''} end
  call('HDEL', META, 'paused', 'paused_by', 'paused_why')
else
  call('HSET', META, 'paused', ARGV[2], 'paused_by', ARGV[3], 'paused_why', ARGV[4])
end
call('RPUSH', SHARD .. ':audit', ARGV[5])
call('LTRIM', SHARD .. ':audit', -10000, -1)
return {before[1] or '', before[2] or '', before[3] or ''}
