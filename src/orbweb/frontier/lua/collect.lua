-- collect: unlink runs that nobody can reach any more or whose time has passed, a bounded piece a call.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 how many keys at most
-- Returns  keys unlinked, then job:run:epoch and pending requests of runs that were given up unfinished

read_wall()
local budget = tonumber(ARGV[2])
local answer = {0}
for _, name in ipairs(call('ZRANGEBYSCORE', SHARD .. ':runs', '-inf', wall, 'LIMIT', 0, 10)) do
  use(SHARD .. ':run:' .. name)
  local pending = call('HLEN', BODY)
  if pending > 0 then
    answer[#answer + 1] = name
    answer[#answer + 1] = int(pending)
  end
  local run, epoch = string.match(name, '^(.*):([^:]*)$')
  if call('HGET', SHARD .. ':current', run) == epoch then call('HDEL', SHARD .. ':current', run) end
  give_up(name)
end

local removed = 0

-- Unlinks the buckets from the last to the first; what is announced always covers what is left.
local function remove_seen(base)
  local buckets = tonumber(call('HGET', base, 'buckets')) or 1
  while buckets > 0 and removed < budget do
    buckets = buckets - 1
    call('UNLINK', base .. ':' .. int(buckets))
    removed = removed + 1
  end
  if buckets > 0 then call('HSET', base, 'buckets', int(buckets)) return false end
  call('UNLINK', base)
  return true
end

local function remove_queues()
  for _, host in ipairs(call('ZRANGE', READY, 0, budget - removed - 1)) do
    call('UNLINK', QUEUE .. host)
    call('ZREM', READY, host)
    removed = removed + 1
  end
  return call('EXISTS', READY) == 0
end

local base = call('SRANDMEMBER', SHARD .. ':garbage')
if base then
  use(base)
  if remove_seen(base .. ':seen') and removed < budget and remove_queues() then
    call('UNLINK', META, BODY, DELAYED, DEADLINE, OWNER, EXPIRED, EMITTED, VISITED, VISITS, PARKED, HUNGRY,
      LOADS, HOMES, CLAIMS, NODES, BEATS, DEAD, WHY, REASONS, base .. ':items', base .. ':marks',
      base .. ':failed_items', base .. ':quality')
    call('SREM', SHARD .. ':garbage', base)
    removed = removed + 1
  end
end
answer[1] = removed
return answer
