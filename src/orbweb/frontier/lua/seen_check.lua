-- seen_check: whether requests count as seen, in the order in which they are given. Changes nothing,
-- but that an old generation may end with it.
--
-- KEYS  1 shard tag, 2 what is seen
-- ARGV  1 time, then pairs: fingerprint, host
-- Returns  one flag a request

read_wall()
seen_base = KEYS[2]
local answer = {}
for i = 2, #ARGV, 2 do answer[#answer + 1] = is_seen(ARGV[i], ARGV[i + 1]) and 1 or 0 end
return answer
