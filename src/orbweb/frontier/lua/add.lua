-- add: requests from outside enter; a finished run runs again.
--
-- ARGV  1 time, 2 number of requests, 3 number of requests of other shards, then five words a request
--       (see push_argv) and one for each of the others (send_argv)
-- Returns  how many were new in this shard

if not begin() then return lost_run() end
local requests = tonumber(ARGV[2])
local added = push_argv(4, requests)
local sent = send_argv(4 + requests * 5, tonumber(ARGV[3]))
if added + sent > 0 then reopen() end
commit()
return added
