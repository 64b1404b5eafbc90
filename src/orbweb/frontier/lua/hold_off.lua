-- hold_off: hosts have asked to be left alone for a while (Retry-After, too many requests).
--
-- ARGV  1 time, then pairs: host, ms
-- Returns  1; it holds for all runs of the shard, and never shortens an earlier pause

if not begin() then return lost_run() end
for i = 2, #ARGV, 2 do
  call('ZADD', NEXT, 'GT', host_now + tonumber(ARGV[i + 1]), ARGV[i])
end
return 1
