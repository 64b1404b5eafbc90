-- close: mark a run of several shards done. Only shard 0 is asked, after all were found empty.
--
-- ARGV  1 time, 2 version that the shard had then
-- Returns  1 when the run is done; 0 when something has entered this shard since

if not begin() then return lost_run() end
local left = call('HLEN', BODY) + away() + call('HLEN', OF_TASKS.all)
if state == 'running' and seq == tonumber(ARGV[2]) and left == 0 then mark_done() end
return state == 'done' and 1 or 0
