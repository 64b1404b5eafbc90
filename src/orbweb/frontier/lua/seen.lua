-- seen: which of these fingerprints the run has taken already. Changes nothing.
--
-- ARGV  1 time (not looked at), then fingerprints
-- Returns  one flag a fingerprint

local meta = call('HMGET', META, 'state', 'seen')
if not meta[1] then return lost_run() end
seen_base = meta[2]
local answer = {}
for i = 2, #ARGV do answer[#answer + 1] = is_seen(ARGV[i]) and 1 or 0 end
return answer
