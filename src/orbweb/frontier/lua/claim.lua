-- claim: hand out requests whose hosts are allowed now, or so soon that a node need not ask again.
--
-- ARGV  1 time, 2 node, 3 seq of this claim, 4 how many, 5 lease ms
-- Returns  code (ok, replay, old), state, pending, ms until it is worth asking again (-1 = nothing in
--          sight, or all that was asked for was handed out), stopping (0/1), paused (0/1), requests in
--          the outbox, the server's wall clock (ms), tasks with nothing left in this of several shards, then
--          for each request: id, body, deliveries, ms to wait before it is sent, mark of the time reserved
--          for it (0 = its host has no gap)

if not begin() then return lost_run() end
local node, number, want, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
reap(100)

local WORDS = 5 -- of the answer, a request
local token = node .. ':' .. ARGV[3]
local last, held = string.match(call('HGET', CLAIMS, node) or '0', '^(%d+)(.*)$')
local out = {}
local courteous = false
local errands = 0 -- of what is handed out: tasks, which are no fetches
local some_expired -- whether any request was handed out in vain
-- Written at the end, in one call each: owners, deadlines, the line of hosts, and who leaves it.
local owners, deadlines, line, left = {}, {}, {}, {}

local function add(words, first, second)
  words[#words + 1] = first
  words[#words + 1] = second
end

local function write(command, key, words)
  for i = 1, #words, 1000 do
    call(command, key, unpack(words, i, math.min(i + 999, #words)))
  end
end

local function deliveries_of(id)
  if some_expired == nil then some_expired = call('EXISTS', EXPIRED) == 1 end
  return (some_expired and tonumber(call('HGET', EXPIRED, id)) or 0) + 1
end

local function hand_out(id, body, wait, reserved)
  out[#out + 1] = id
  out[#out + 1] = body
  out[#out + 1] = deliveries_of(id)
  out[#out + 1] = wait
  out[#out + 1] = reserved
end

-- How many of a host's slots this run holds, and how many this node.
local function slots_held(host)
  local run, this = 0, 0
  for _, member in ipairs(call('ZRANGE', SLOTS .. host, 0, -1)) do
    if string.sub(member, 1, #RUN + 1) == RUN .. ' ' then
      run = run + 1
      if string.find(member, ' ' .. node .. ':', 1, true) then this = this + 1 end
    end
  end
  return run, this
end

-- Other runs that want the host: they have looked for it not long ago, and could not have it.
local function contenders(host)
  if #others == 0 then return 0 end
  local since = host_now - RIVAL_MS - 2 * gap
  local runs = call('ZCOUNT', WAITING .. host, since, '+inf')
  local own = tonumber(call('ZSCORE', WAITING .. host, RUN))
  return own and own >= since and runs - 1 or runs
end

-- What of `free` slots the run and the node may take, so that others who want the host get theirs:
-- first each run its share, then of that each node. Whoever has stopped asking is left out, so no
-- slot stays unused for long.
local function fair(host, free)
  if most >= NO_LIMIT then return free, free end
  local runs = contenders(host)
  if runs + rivals == 0 then return free, free end
  local of_run, of_node = slots_held(host)
  local share = math.ceil(most / (runs + 1))
  local for_run = math.min(free, share - of_run)
  if gap > 0 then return for_run, for_run end -- one at a time: the nodes take turns
  return for_run, math.min(for_run, math.ceil(share / (rivals + 1)) - of_node)
end

local function look_again(host, at)
  add(line, at, host)
end

local function wait_for(host)
  call('ZREMRANGEBYSCORE', WAITING .. host, '-inf', host_now - 30 * RIVAL_MS)
  if call('ZADD', WAITING .. host, host_now, RUN) == 1 then call('EXPIRE', WAITING .. host, RECORD_TTL) end
end

local function first_end(host)
  return tonumber(call('ZRANGE', SLOTS .. host, 0, 0, 'WITHSCORES')[2])
end

local function lease_one(id, body, wait, reserved)
  add(owners, id, token)
  add(deadlines, now + lease, id)
  hand_out(id, body, wait, reserved)
end

-- Leases up to `limit` requests of a host, the best first; with a gap, as many as may begin soon.
-- Returns how many, and when the host is allowed again.
local function lease_from(host, limit, at)
  local got, slots = 0, {}
  local popped = call('ZPOPMIN', QUEUE .. host, gap > 0 and 1 or limit)
  while #popped > 0 do
    for i = 1, #popped, 2 do
      local body = call('HGET', BODY, popped[i])
      if body then
        got = got + 1
        local wait, reserved = 0, '0'
        if gap > 0 then
          wait = math.ceil(at - host_now)
          at = reserve(host, at)
          reserved = mark(at)
        end
        add(slots, host_now + fetch_ms, RUN .. ' ' .. popped[i] .. ' ' .. token)
        lease_one(popped[i], body, wait, reserved)
      end
    end
    if gap == 0 or got >= limit or at > host_now + LOOK_AHEAD_MS then break end
    popped = call('ZPOPMIN', QUEUE .. host, 1)
  end
  if got > 0 then
    write('ZADD', SLOTS .. host, slots)
    call('EXPIRE', SLOTS .. host, RECORD_TTL) -- those of a node that died would stay for good
    call('HSET', HOST .. host, 'rate', int(rate + 1000 * got), 'rate_at', int(host_now), 'last', RUN,
      'taken', int(taken + got))
    note_weight(host, rate + 1000 * got)
    if clamped then call('HINCRBY', HOST .. host, 'clamped', got) end
    if not steered then call('EXPIRE', HOST .. host, RECORD_TTL) end
  end
  return got, at
end

-- Tasks ask nobody for anything, so there is nothing to be polite about.
local function take_errands(most_errands)
  local popped = call('ZPOPMIN', QUEUE .. TASKS_HOST, math.min(want - #out / WORDS, most_errands))
  for i = 1, #popped, 2 do
    local body = call('HGET', BODY, popped[i])
    if body then
      errands = errands + 1
      lease_one(popped[i], body, 0, '0')
    end
  end
  armed[TASKS_HOST] = nil
  if call('EXISTS', QUEUE .. TASKS_HOST) == 0 then
    left[#left + 1] = TASKS_HOST
  else
    look_again(TASKS_HOST, host_now)
  end
end

-- Takes what the host allows. It has been in the line since `since`; `own` is false for one that
-- others may have a better claim to.
local function take_from(host, own, since)
  weigh(host)
  local allowed = next_allowed(host)
  local at = math.max(since, allowed)
  if at > host_now + LOOK_AHEAD_MS then
    if #others > 0 then wait_for(host) end
    return look_again(host, at)
  end
  local used = call('ZCARD', SLOTS .. host)
  if used > 0 then used = used - call('ZREMRANGEBYSCORE', SLOTS .. host, '-inf', host_now) end
  local free = most - used
  local for_node = free
  if free > 0 then free, for_node = fair(host, free) end
  if free <= 0 then
    wait_for(host)
    return look_again(host, first_end(host) or host_now)
  end
  if for_node <= 0 then
    courteous = true
    return look_again(host, host_now)
  end
  if gap > 0 then
    local its_turn = #others == 0 or last_run ~= RUN or contenders(host) == 0
    if not its_turn then courteous = true end
    local patient = its_turn and patience(own, allowed == 0 or since > allowed) or GRACE_MS
    if host_now < at + patient then return look_again(host, at) end
  end
  local got, next_at = lease_from(host, math.min(want - #out / WORDS, for_node), math.max(host_now, at))
  if call('EXISTS', QUEUE .. host) == 0 then
    left[#left + 1] = host
    call('ZREM', WAITING .. host, RUN)
  elseif gap > 0 then
    look_again(host, math.max(host_now, next_at))
  elseif got >= free then
    wait_for(host)
    look_again(host, first_end(host))
  else
    look_again(host, host_now) -- back of the line
  end
end

local function wanted()
  return want - #out / WORDS > 0
end

-- Of so many hosts at a time who holds the fewest slots comes first: else a slow host, which keeps each
-- slot for long, would in the end have all of a node's.
local function take_from_each(hosts, at_a_time)
  for first = 1, #hosts, at_a_time do
    if not wanted() then return end
    local some = {unpack(hosts, first, math.min(first + at_a_time - 1, #hosts))}
    for place, each in ipairs(some) do
      each.slots, each.place = call('ZCARD', SLOTS .. each[1]), place
    end
    table.sort(some, function(one, other)
      if one.slots ~= other.slots then return one.slots < other.slots end
      return one.place < other.place
    end)
    for _, each in ipairs(some) do
      if not wanted() then return end
      take_from(unpack(each))
    end
  end
end

-- The hosts that are due: first those of the node, then others that nobody has come for, and at last
-- those whose queues are so long that they would keep all others waiting.
local function take_from_ready_hosts()
  local MOST_SCANNED = 256
  local step = want + 20
  local most_scanned = #nodes > 1 and math.min(MOST_SCANNED, step * #nodes) or step
  local foreign, crowded, has_errands = {}, {}, false
  for first = 0, most_scanned - 1, step do
    local v = call('ZRANGEBYSCORE', READY, '-inf', host_now + LOOK_AHEAD_MS, 'WITHSCORES', 'LIMIT', first,
      math.min(step, most_scanned - first))
    local hosts = {}
    for i = 1, #v, 2 do
      local host, since, own = v[i], tonumber(v[i + 1]), is_own(v[i])
      if host == TASKS_HOST then
        has_errands = true
        take_errands(math.ceil(want / 2)) -- tasks and pages both get on
      elseif backlog_limit > 0 and call('ZCARD', QUEUE .. host) > backlog_limit then
        crowded[#crowded + 1] = {host, own, since}
      elseif own or behind then
        hosts[#hosts + 1] = {host, own, since}
      elseif delay == 0 or since - SPARE_MS <= host_now then
        foreign[#foreign + 1] = {host, own, since}
      end
    end
    take_from_each(hosts, step)
    if #v < 2 * step or not wanted() then break end
  end
  take_from_each(foreign, step)
  take_from_each(crowded, step)
  if has_errands and wanted() then take_errands(want) end
end

local function note_claim()
  local ids = {}
  for i = 1, #out, WORDS do ids[#ids + 1] = out[i] end
  call('HSET', CLAIMS, node, ARGV[3] .. ' ' .. table.concat(ids, ' '))
  if wanted() then call('ZADD', HUNGRY, now, node) else call('ZREM', HUNGRY, node) end
  local fetches = #ids - errands
  if #nodes > 1 and (fetches > 0 or is_new) then call('HSET', LOADS, node, int(load + fetches)) end
  if fetches > 0 then
    call('HSET', SHARD .. ':clock', 'rate', int(all_rate + 1000 * fetches), 'rate_at', int(host_now))
  end
end

local code = 'ok'
local paused = call('HGET', META, 'paused')
paused = paused and in_force(paused) and 1 or 0

-- The answer was lost: again what that claim got and still holds.
local function hand_out_again()
  for id in string.gmatch(held, '%S+') do
    local body = owns(id, token) and call('HGET', BODY, id)
    if body then
      call('ZADD', DEADLINE, now + lease, id)
      -- The time that was reserved may have passed: a mark of no reservation makes the node ask.
      hand_out(id, body, 0, '-1')
    end
  end
end

-- Milliseconds until it is worth asking again: the next hosts, each when this node may take it, and what
-- becomes due.
local function ms_to_wait()
  if code ~= 'ok' or not wanted() then return -1 end
  local wait = -1
  -- A clock moves one step a look at most, so whoever waits for it must look that often.
  local function sooner(at, clock, step)
    if not at then return end
    local ms = math.ceil(math.max(0, math.min(at - clock, step)))
    if wait < 0 or ms < wait then wait = ms end
  end
  local function first_of(key)
    return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  end
  local first = paused == 0 and call('ZRANGE', READY, 0, 15, 'WITHSCORES') or {}
  for i = 1, #first, 2 do
    sooner(tonumber(first[i + 1]) + patience(is_own(first[i]), false), host_now, SHARD_STEP_MS)
  end
  sooner(first_of(DELAYED), now, run_step)
  sooner(first_of(DEADLINE), now, run_step)
  return courteous and math.max(wait, COURTESY_MS) or wait
end

local function reply()
  local answer = {
    code, state, call('HLEN', BODY) + away(), ms_to_wait(), call('HEXISTS', META, 'stopping'), paused, away(),
    wall, shards > 1 and call('ZCARD', OF_TASKS.idle) or 0,
  }
  for i = 1, #out do answer[#answer + 1] = out[i] end
  return answer
end

if number < tonumber(last) then
  code = 'old'
elseif number == tonumber(last) then
  code = 'replay'
  hand_out_again()
else
  read_policy()
  read_others()
  read_turns(node)
  if paused == 0 then take_from_ready_hosts() end
  write('HSET', OWNER, owners)
  write('ZADD', DEADLINE, deadlines)
  write('ZADD', READY, line)
  write('ZREM', READY, left)
  note_claim()
end
commit()
return reply()
