-- emit: children of a very long page enter before its ack.
--
-- ARGV  1 time, 2 id, 3 token, 4 number of children, then five words a child (see push_argv)
-- Returns  1, or 0 when the lease is lost

if not begin() then return lost_run() end
if not owns(ARGV[2], ARGV[3]) then return 0 end
push_argv(5, tonumber(ARGV[4]))
commit()
return 1
