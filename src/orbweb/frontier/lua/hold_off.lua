-- hold_off: hosts have asked to be left alone for a while (Retry-After).
--
-- ARGV  1 time, then pairs: host, ms
-- Returns  1; it holds for all runs of the shard, and never shortens an earlier pause. Up to a half is
--          added, so that hosts that were blocked together do not return together.

if not begin() then return lost_run() end
for i = 2, #ARGV, 2 do
  local ms = tonumber(ARGV[i + 1])
  hold(ARGV[i], host_now + ms + jitter(ARGV[i], math.floor(ms / 2)))
end
return 1
