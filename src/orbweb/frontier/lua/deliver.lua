-- deliver: requests enter that wait in the outbox of another shard.
--
-- ARGV  1 time, 2 number of requests, then five words a request (see push_argv)
-- Returns  how many were new

if not begin() then return lost_run() end
local added = push_argv(3, tonumber(ARGV[2]))
if added > 0 then reopen() end
commit()
return added
