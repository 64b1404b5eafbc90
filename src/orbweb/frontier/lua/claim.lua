-- claim: hand out requests whose hosts are allowed now.
--
-- ARGV  1 time, 2 node, 3 seq of this claim, 4 how many, 5 lease ms
-- Returns  code (ok, replay, old), state, pending, ms until something is due (-1 = nothing in
--          sight), stopping (0/1), the server's wall clock (ms), then for each request: id, body,
--          deliveries

if not begin() then return lost_run() end
local node, number, want, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
reap(100)

local token = node .. ':' .. ARGV[3]
local last, held = string.match(call('HGET', CLAIMS, node) or '0', '^(%d+)(.*)$')
local out = {}
local courteous = false

-- Other nodes of this run that could do with more.
call('ZREMRANGEBYSCORE', HUNGRY, '-inf', now - RIVAL_MS)
local rivals = call('ZCARD', HUNGRY) - (call('ZSCORE', HUNGRY, node) and 1 or 0)

local function hand_out(id, body)
  out[#out + 1] = id
  out[#out + 1] = body
  out[#out + 1] = (tonumber(call('HGET', EXPIRED, id)) or 0) + 1
end

local function begins(text, with)
  return string.sub(text, 1, #with) == with
end

-- How many of a host's slots this run holds, and how many this node.
local function slots_held(host)
  local run, this = 0, 0
  for _, member in ipairs(call('ZRANGE', SLOTS .. host, 0, -1)) do
    if begins(member, RUN .. ' ') then
      run = run + 1
      if string.find(member, ' ' .. node .. ':', 1, true) then this = this + 1 end
    end
  end
  return run, this
end

-- What of `free` slots the run and the node may take, so that others who want the host get theirs:
-- first each run its share, then of that each node. Whoever has stopped asking is left out, so no
-- slot stays unused for long.
local function fair(host, free)
  if concurrency >= NO_LIMIT then return free, free end
  local since = host_now - RIVAL_MS
  local runs = call('ZCOUNT', WAITING .. host, since, '+inf')
  local own = tonumber(call('ZSCORE', WAITING .. host, RUN))
  if own and own >= since then runs = runs - 1 end
  if runs + rivals == 0 then return free, free end
  local of_run, of_node = slots_held(host)
  local share = math.ceil(concurrency / (runs + 1))
  local for_run = math.min(free, share - of_run)
  return for_run, math.min(for_run, math.ceil(share / (rivals + 1)) - of_node)
end

-- When the host is allowed again; nil when it is now, with how many may go at once: none when they
-- are left to the other nodes of the run.
local function look_at(host)
  local next_at = tonumber(call('ZSCORE', NEXT, host)) or 0
  if next_at > host_now then return next_at end
  call('ZREMRANGEBYSCORE', SLOTS .. host, '-inf', host_now)
  local free = concurrency - call('ZCARD', SLOTS .. host)
  local for_node = free
  if free > 0 then free, for_node = fair(host, free) end
  if free > 0 then return nil, delay > 0 and math.min(1, for_node) or for_node end
  call('ZREMRANGEBYSCORE', WAITING .. host, '-inf', host_now - 30 * RIVAL_MS)
  call('ZADD', WAITING .. host, host_now, RUN)
  return tonumber(call('ZRANGE', SLOTS .. host, 0, 0, 'WITHSCORES')[2])
end

-- Leases up to `most` requests of a host, the best first.
local function lease_from(host, most)
  local popped = call('ZPOPMIN', QUEUE .. host, most)
  local got = 0
  for i = 1, #popped, 2 do
    local id = popped[i]
    local body = call('HGET', BODY, id)
    if body then
      got = got + 1
      call('HSET', OWNER, id, token)
      call('ZADD', DEADLINE, now + lease, id)
      call('ZADD', SLOTS .. host, host_now + fetch_ms, RUN .. ' ' .. id .. ' ' .. token)
      hand_out(id, body)
    end
  end
  return got
end

local function take_from_ready_hosts()
  local ids = {}
  for _, host in ipairs(call('ZRANGEBYSCORE', READY, '-inf', host_now, 'LIMIT', 0, want + 20)) do
    local wanted = want - #out / 3
    if wanted <= 0 then break end
    local allowed_at, free = look_at(host)
    if allowed_at then
      call('ZADD', READY, allowed_at, host)
    elseif free <= 0 then
      call('ZADD', READY, host_now, host)
      courteous = true
    else
      local got = lease_from(host, math.min(wanted, free))
      if delay > 0 and got > 0 then call('ZADD', NEXT, host_now + delay, host) end
      if call('EXISTS', QUEUE .. host) == 0 then
        call('ZREM', READY, host)
        call('ZREM', WAITING .. host, RUN)
      else
        -- Back of the line, or when it is allowed again.
        call('ZADD', READY, look_at(host) or host_now, host)
      end
    end
  end
  if #out / 3 < want then call('ZADD', HUNGRY, now, node) else call('ZREM', HUNGRY, node) end
  for i = 1, #out, 3 do ids[#ids + 1] = out[i] end
  call('HSET', CLAIMS, node, ARGV[3] .. ' ' .. table.concat(ids, ' '))
end

local code = 'ok'
if number < tonumber(last) then
  code = 'old'
elseif number == tonumber(last) then -- the answer was lost: again what that claim got and still holds
  code = 'replay'
  for id in string.gmatch(held, '%S+') do
    local body = owns(id, token) and call('HGET', BODY, id)
    if body then
      call('ZADD', DEADLINE, now + lease, id)
      hand_out(id, body)
    end
  end
else
  take_from_ready_hosts()
end
commit()

local wait = -1
if #out == 0 then
  -- A clock moves one step a look at most, so whoever waits for it must look that often.
  local function sooner(key, clock, step)
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] then
      local ms = math.max(0, math.min(tonumber(first[2]) - clock, step))
      if wait < 0 or ms < wait then wait = ms end
    end
  end
  sooner(READY, host_now, SHARD_STEP_MS)
  sooner(DELAYED, now, run_step)
  sooner(DEADLINE, now, run_step)
  if courteous then wait = COURTESY_MS end
end
local answer = {code, state, call('HLEN', BODY), wait, call('HEXISTS', META, 'stopping'), wall}
for i = 1, #out do answer[#answer + 1] = out[i] end
return answer
