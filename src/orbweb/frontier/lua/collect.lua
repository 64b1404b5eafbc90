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
  local pending = call('HLEN', BODY) + call('ZCARD', OUTBOX)
  if pending > 0 then
    answer[#answer + 1] = name
    answer[#answer + 1] = int(pending)
  end
  local run, epoch = string.match(name, '^(.*):([^:]*)$')
  if call('HGET', SHARD .. ':current', run) == epoch then call('HDEL', SHARD .. ':current', run) end
  give_up(name)
end

local removed = 0

-- Unlinks a part of what is seen, from its last key to its first: `name` is its key, how many more are
-- named after it, and the kind.
local function remove_part(name)
  local key, keys, kind = string.match(name, '^(%S+) (%d+) (%S+)$')
  local left = tonumber(keys)
  call('SREM', SHARD .. ':garbage', name)
  while left > 0 and removed < budget do
    left = left - 1
    call('UNLINK', key .. seen_key(kind, left))
    removed = removed + 1
  end
  if left > 0 then
    call('SADD', SHARD .. ':garbage', key .. ' ' .. int(left) .. ' ' .. kind)
  else
    call('UNLINK', key)
    removed = removed + 1
  end
end

-- What is seen becomes garbage part by part.
local function give_up_seen(base)
  local kind = call('HGET', base, 'kind')
  if not kind then return end
  local parts = call('HGETALL', base .. ':parts')
  for i = 1, #parts, 2 do
    local size = tonumber(string.match(parts[i + 1], '^%d+ (%d+)'))
    call('SADD', SHARD .. ':garbage', base .. ':' .. parts[i] .. ' ' .. int(seen_keys(kind, size)) .. ' ' .. kind)
  end
  local v = call('HMGET', base, 'part', 'size')
  call('SADD', SHARD .. ':garbage', base .. ':' .. v[1] .. ' ' .. int(seen_keys(kind, tonumber(v[2]))) .. ' ' .. kind)
  call('UNLINK', base, base .. ':parts', base .. ':sure', base .. ':hosts')
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
if base and string.find(base, ' ', 1, true) then
  remove_part(base)
elseif base then
  use(base)
  give_up_seen(base .. ':seen')
  if remove_queues() then
    call('UNLINK', META, BODY, DELAYED, DEADLINE, OWNER, EXPIRED, EMITTED, VISITED, VISITS, PARKED, LEFT, HUNGRY,
      LOADS, HOMES, CLAIMS, NODES, BEATS, DEAD, REASONS, OUTBOX, base .. ':items', base .. ':marks',
      base .. ':failed_items', base .. ':quality', base .. ':counts')
    for _, key in pairs(OF_TASKS) do call('UNLINK', key) end
    for _, key in pairs(OF_DEAD) do call('UNLINK', key) end
    call('SREM', SHARD .. ':garbage', base)
    removed = removed + 1
  end
end
answer[1] = removed
return answer
