-- stop: ask every node of the run to stop, and let a resident run end.
--
-- ARGV  1 time
-- Returns  1

if not begin() then return lost_run() end
call('HSET', META, 'stopping', int(wall))
forget(HOLD)
commit()
return 1
