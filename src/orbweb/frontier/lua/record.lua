-- record: put down what the holder of a role knows, unless another has the role by now.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 role, 3 fence, 4 what is put down
-- Returns  1, or 0 when the fence is old and nothing was written

local key = SHARD .. ':role:' .. ARGV[2]
if call('HGET', key, 'fence') ~= ARGV[3] then return 0 end
call('SET', key .. ':record', ARGV[4], 'PX', 30 * 86400000)
return 1
