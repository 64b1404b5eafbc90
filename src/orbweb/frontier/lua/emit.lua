-- emit: children of a very long page enter before its ack, in numbered steps.
--
-- ARGV  1 time, 2 id, 3 token, 4 step (from 1), 5 number of children, 6 number of children of other
--       shards, then five words a child (see push_argv) and one for each of the others (send_argv)
-- Returns  1 also for a step that is in already; 0 when the lease is lost, or the store has
--          forgotten an earlier step

if not begin() then return lost_run() end
local id, token, step = ARGV[2], ARGV[3], tonumber(ARGV[4])
if not owns(id, token) then return 0 end
local by, last = string.match(call('HGET', EMITTED, id) or '', '^(%S+) (%d+)$')
last = by == token and tonumber(last) or 0
if step <= last then return 1 end
if step > last + 1 then return 0 end
local children = tonumber(ARGV[5])
push_argv(7, children)
send_argv(7 + children * 5, tonumber(ARGV[6]))
call('HSET', EMITTED, id, token .. ' ' .. int(step))
commit()
return 1
