-- trim: drop from the outbox what was delivered.
--
-- ARGV  1 time, then requests, one word each, as `outbox` gave them
-- Returns  how many were there

if not begin() then return lost_run() end
local removed = 0
for i = 2, #ARGV do removed = removed + call('ZREM', OUTBOX, ARGV[i]) end
commit()
return removed
