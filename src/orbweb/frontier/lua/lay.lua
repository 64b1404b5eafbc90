-- lay: every shard has its part of the run; one that is missing from now on is lost.
--
-- ARGV  1 time
-- Returns  1

if not begin() then return lost_run() end
call('HSET', META, 'laid', '1')
return 1
