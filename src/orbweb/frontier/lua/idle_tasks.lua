-- idle_tasks: tasks that have nothing left in this of several shards and wait to be looked at. Changes
-- nothing.
--
-- ARGV  1 time (not looked at), 2 how many at most
-- Returns  them, those first that have waited longest

if call('HEXISTS', META, 'state') == 0 then return lost_run() end
return call('ZRANGE', OF_TASKS.idle, 0, tonumber(ARGV[2]) - 1)
