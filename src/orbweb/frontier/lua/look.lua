-- look: all that decides when hosts may be fetched, at one instant. Changes nothing.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 fields of a host and 3 of a run's meta that are wanted (with blanks between), 4 how
--       many run bases follow, then hosts
-- Returns  server's wall clock, shard's clock, wall clock when somebody last moved that, then for each
--          run its fields and what it said in :pace, then for each host its fields, when it is allowed
--          next, slots in use, what live values say of it alone (see tune.lua), and for each run how many
--          of its requests are queued ('' = there is none)

local host_fields, run_fields = {}, {}
for field in string.gmatch(ARGV[2], '%S+') do host_fields[#host_fields + 1] = field end
for field in string.gmatch(ARGV[3], '%S+') do run_fields[#run_fields + 1] = field end
local first_host = 5 + tonumber(ARGV[4])

read_wall()
local clock = call('HMGET', SHARD .. ':clock', 'wall', 'log')
local passed = math.max(0, math.min(wall - (tonumber(clock[1]) or wall), SHARD_STEP_MS))
host_now = (tonumber(clock[2]) or 0) + passed

local tuned = (tonumber(call('HGET', SHARD .. ':tuned', '@')) or 0) > host_now
local answer = {int(wall), int(host_now), clock[1] or '0'}
local function add(values, how_many)
  for i = 1, how_many do answer[#answer + 1] = values[i] or '' end
end
for i = 5, first_host - 1 do
  add(call('HMGET', ARGV[i] .. ':meta', unpack(run_fields)), #run_fields)
  answer[#answer + 1] = call('HGET', PACE, ARGV[i]) or ''
end
for i = first_host, #ARGV do
  local host = ARGV[i]
  add(call('HMGET', HOST .. host, unpack(host_fields)), #host_fields)
  answer[#answer + 1] = call('ZSCORE', NEXT, host) or ''
  answer[#answer + 1] = call('ZCOUNT', SLOTS .. host, '(' .. int(host_now), '+inf')
  answer[#answer + 1] = tuned and call('HGET', SHARD .. ':tuned', host) or ''
  for j = 5, first_host - 1 do answer[#answer + 1] = call('ZCARD', ARGV[j] .. ':queue:' .. host) end
end
return answer
