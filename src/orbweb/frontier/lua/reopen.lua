-- reopen: a finished run runs on, as another shard of it has work.
--
-- ARGV  1 time
-- Returns  1

if not begin() then return lost_run() end
reopen()
return 1
