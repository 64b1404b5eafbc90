-- visit: a redirect of a request leads to another page, which this request takes for its own.
--
-- ARGV  1 time, 2 id, 3 token, 4 fingerprint of the page
-- Returns  1 it is the request's (also when it was in an earlier attempt), 0 the page was taken
--          before, -1 the lease is lost

if not begin() then return lost_run() end
local id, member = ARGV[2], ARGV[4]
if not owns(id, ARGV[3]) then return -1 end
if is_seen(member) then return call('HGET', VISITED, member) == id and 1 or 0 end
call('HSET', VISITED, member, id)
remember(member)
commit()
return 1
