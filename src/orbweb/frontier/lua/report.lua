-- report: what a node has met at hosts. It decides for the whole fleet when to slow down, to leave a
-- host alone, and to try again.
--
-- ARGV  1 time, then for each host: host, good answers, bad ones, bad ones since the last good one,
--       refusals, sum of latencies (ms), crawl delay of robots.txt (ms, -1 = not read)
-- Returns  1

if not begin() then return lost_run() end
read_policy()

local WINDOW_MS = 1000
local FEW = 3 -- fewer answers than this say nothing of a host's speed
local LONGEST_WINDOW_MS = 10000
local SEARCH = 0.000014 -- of the rate a second, times the square of the seconds since it was too high
local FASTEST_SEARCH = 0.03 -- of the rate a second
local LONGEST_COOLDOWN = 16 -- times the first one
local MOST_REFUSALS = 7

local key, host, good, bad

local function number(value)
  return tonumber(value) or 0
end

-- Circuit breaker (M. Nygard, Release It!, 2007): closed, open for a time, then one trial.
local function judge_circuit(streak)
  local v = call('HMGET', key, 'streak', 'opens', 'open_until')
  local row, opens = (good > 0 and 0 or number(v[1])) + streak, number(v[2])
  if number(v[3]) > host_now then return end -- sent before it opened: says nothing new
  if opens > 0 and good > 0 then
    call('HDEL', key, 'opens', 'open_until')
  elseif circuit_threshold > 0 and (row >= circuit_threshold or (opens > 0 and bad > 0)) then
    local cooldown = circuit_cooldown * math.min(2 ^ opens, LONGEST_COOLDOWN)
    row = 0
    cooldown = cooldown + jitter(host, math.floor(cooldown / 4))
    call('HSET', key, 'opens', int(opens + 1), 'open_until', int(host_now + cooldown))
  end
  if row ~= number(v[1]) then call('HSET', key, 'streak', int(row)) end
end

-- A host that refuses without saying for how long is left alone, each time for twice as long.
local function back_off(refused)
  local refusals = number(call('HGET', key, 'refusals'))
  if refused == 0 then
    if refusals > 0 and good > 0 then call('HDEL', key, 'refusals') end
  elseif number(call('ZSCORE', NEXT, host)) <= host_now + LATEST_MS then
    local pause = refused_pause * 2 ^ refusals
    hold(host, host_now + pause + jitter(host, math.floor(pause / 2)))
    call('HSET', key, 'refusals', int(math.min(refusals + 1, MOST_REFUSALS)))
  end
end

-- A higher rate, after `passed` ms at the present one. `top` is the rate that was too much last (0 =
-- not known yet), `since` the seconds since then. It is approached quickly and passed slowly, and the
-- slower search speeds up the longer nothing happens, as that of CUBIC does (RFC 9438): a host that
-- serves twice as much as before is found out within a minute.
local function raised(its_rate, top, since, passed)
  if top == 0 then return its_rate + math.ceil(its_rate / 10) end
  if its_rate < top * 0.7 then return its_rate + math.ceil(its_rate / 4) end
  if its_rate < top * 0.95 then return its_rate + math.ceil(top / 20) end
  local growth = math.min(since * since * SEARCH, FASTEST_SEARCH)
  return its_rate + math.floor(its_rate * growth * passed / 1000)
end

-- The gap at which the host is fetched without harm: additive increase, multiplicative decrease
-- (D. Chiu, R. Jain, 1989). Decided from one window of answers at a time, or as soon as it refuses.
local function throttle(latency, refused)
  local v = call('HMGET', key, 'auto', 'top', 'window', 'answers', 'failures', 'latency', 'base', 'settle')
  local settle = number(v[8])
  if host_now < settle then return end -- sent before the last change
  local began = tonumber(v[3]) or host_now
  local answers, failures, sum = number(v[4]) + good + bad, number(v[5]) + bad, number(v[6]) + latency
  local passed = host_now - began
  if refused == 0 and (passed < WINDOW_MS or (answers < FEW and passed < LONGEST_WINDOW_MS)) then
    call('HSET', key, 'window', int(began), 'answers', int(answers), 'failures', int(failures), 'latency', int(sum))
    return
  end
  -- Rates are requests in a thousand seconds.
  local now_rate = math.floor(1000000 / (tonumber(v[1]) or auto_start))
  local top, base, mean = number(v[2]), number(v[7]), math.floor(sum / answers)
  local slow = base > 0 and answers >= FEW and mean > base * 2 + 50
  if refused > 0 or failures * 5 > answers or slow then
    local served = math.floor(now_rate * 0.9) -- too short a look says nothing
    if passed >= WINDOW_MS / 2 then served = math.floor((answers - failures) * 1000000 / passed) end
    top = math.min(now_rate, math.max(served, math.floor(now_rate * 0.9)))
    now_rate = math.max(math.floor(now_rate / 2), math.floor(math.min(now_rate, served) * 0.95))
    settle = host_now + WINDOW_MS + math.min(mean, LONGEST_WINDOW_MS)
    -- A host that stays slow however little it is asked for has changed: that is its speed now.
    if slow then base = base + math.floor((mean - base) / 8) end
  else
    if base == 0 or mean < base then base = math.max(mean, 1) end
    if answers * 1000000 / passed >= now_rate * 0.7 then -- it is this rate that was tried
      now_rate = raised(now_rate, top, (host_now - settle) / 1000, passed)
    end
  end
  local sixteenths = math.max(1, math.floor(16000000 / math.max(1, now_rate)))
  local its_gap = math.min(sixteenths / 16, auto_longest)
  call('HSET', key, 'auto', string.format('%.4f', its_gap), 'top', int(top), 'window', int(math.max(host_now, settle)),
    'answers', '0', 'failures', '0', 'latency', '0', 'base', int(base), 'settle', int(settle))
end

for i = 2, #ARGV, 7 do
  host, good, bad = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  key = HOST .. host
  local crawl_delay = tonumber(ARGV[i + 6])
  if crawl_delay > 0 then
    call('HSET', key, 'crawl', int(crawl_delay))
  elseif crawl_delay == 0 then
    call('HDEL', key, 'crawl')
  end
  if good + bad > 0 then
    call('HINCRBY', key, 'good', good)
    call('HINCRBY', key, 'bad', bad)
    judge_circuit(tonumber(ARGV[i + 3]))
    back_off(tonumber(ARGV[i + 4]))
    if auto == 1 then throttle(tonumber(ARGV[i + 5]), tonumber(ARGV[i + 4])) end
  end
  forget_later(host)
end
return 1
