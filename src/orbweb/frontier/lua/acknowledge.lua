-- acknowledge: what a node says of the live values that it goes by. Nodes that have said nothing for a day
-- are forgotten.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 node, 3 what it says
-- Returns  1

local DAY_MS = 86400000

read_wall()
local acks, acked = SHARD .. ':config:acks', SHARD .. ':config:acked'
call('ZADD', acked, int(wall), ARGV[2]) -- first: what is not in it is never forgotten
call('HSET', acks, ARGV[2], int(wall) .. '\n' .. ARGV[3])
local silent = call('ZRANGEBYSCORE', acked, '-inf', int(wall - DAY_MS), 'LIMIT', 0, 100)
for _, node in ipairs(silent) do
  call('HDEL', acks, node)
  call('ZREM', acked, node)
end
return 1
