-- host: what decides when a host may be fetched, the same for all runs of the shard. Stands behind
-- shard.lua in front of the transitions that ask for it; no transition itself.

local LOOK_AHEAD_MS = 50 -- a claim reserves times that lie so near, so that nodes need not ask on the dot
local SPARE_MS = 20 -- what a host's own nodes have not reserved so long before is anybody's, so no time is lost
local GRACE_MS = 10 -- how long a host that is free waits for the run whose turn it is
local NOTICE_MS = 50 -- how long a host of which its own nodes could not know waits for them
local SLACK_MS = 5
local LATEST_MS = 1000 -- a permit that lies further ahead is refused: better give the request back
local ACTIVE_MS = 30000 -- a run whose nodes have not spoken for so long has no say
local HALF_LIFE_MS = 30000 -- of the rates
local RECORD_TTL = 604800 -- seconds that a host is remembered after what was last heard of it, if nobody steers it

-- Of the host that weigh() has looked at.
local gap -- least ms between the starts of two fetches; 0 = none
local most -- fetches at once
local closed_until -- shard's clock; paused, or the circuit is open
local clamped -- the approved rate is what slows it down
local steered -- an operator has had a word
local rate, taken, last_run -- decayed count of fetches (thousandths); all of them; the run of the last one

local random_gap, auto, auto_start, auto_longest, circuit_threshold, circuit_cooldown, refused_pause
local needs_approval, unapproved, backlog_limit
local others -- runs with a say, three values each: base, delay, concurrency; .tuned: hosts have live values

local function read_policy()
  local next_word = string.gmatch(call('HGET', META, 'policy'), '%S+')
  local function word() return tonumber(next_word()) end
  random_gap, backlog_limit, refused_pause, circuit_threshold = word(), word(), word(), word()
  circuit_cooldown, auto, auto_start, auto_longest = word(), word(), word(), word()
  needs_approval, unapproved = word(), word()
end

-- The rules of a run hold for its hosts whoever fetches them: the strictest one wins.
local function read_others()
  others = {}
  local rules = call('HGETALL', PACE)
  for i = 1, #rules, 2 do
    local its_delay, its_concurrency, spoke = string.match(rules[i + 1], '^(%d+) (%d+) (%d+)$')
    if rules[i] ~= RUN and tonumber(spoke) > host_now - ACTIVE_MS then
      others[#others + 1] = rules[i]
      others[#others + 1] = tonumber(its_delay)
      others[#others + 1] = tonumber(its_concurrency)
    end
  end
end

local function in_force(until_wall)
  local at = tonumber(until_wall) or 0
  return at == 0 or at > wall
end

-- A number from 0 to 1 that is the same for the same words.
local function chance(words)
  return tonumber(string.sub(redis.sha1hex(words), 1, 8), 16) / 4294967296
end

local function jitter(host, ms)
  return math.floor(ms * chance(host .. ' ' .. int(host_now)))
end

local function decayed(value, at)
  local since = host_now - (tonumber(at) or host_now)
  return math.floor((tonumber(value) or 0) * 2 ^ (-since / HALF_LIFE_MS))
end

local function weigh(host)
  local v = call('HMGET', HOST .. host, 'limit', 'limit_until', 'paused', 'crawl', 'ceiling', 'ceiling_until',
    'opens', 'open_until', 'auto', 'rate', 'rate_at', 'last', 'taken')
  gap, most, closed_until, clamped = delay, concurrency, 0, false
  for i = 1, #others, 3 do
    if call('EXISTS', others[i] .. ':queue:' .. host) == 1 then
      gap = math.max(gap, others[i + 1])
      most = math.min(most, others[i + 2])
    end
  end
  -- What live values say of the host alone takes the place of what the runs want.
  if others.tuned == nil then others.tuned = (tonumber(call('HGET', SHARD .. ':tuned', '@')) or 0) > host_now end
  local own = others.tuned and call('HGET', SHARD .. ':tuned', host)
  if own then
    local its_gap, gap_until, its_most, most_until = string.match(own, '^(%S+) (%S+) (%S+) (%S+)')
    if its_gap ~= '-' and in_force(gap_until) then gap = tonumber(its_gap) end
    if its_most ~= '-' and in_force(most_until) then most = its_most == '0' and NO_LIMIT or tonumber(its_most) end
  end
  steered = v[1] or v[3] or v[5]
  if v[1] and in_force(v[2]) then gap = math.max(gap, tonumber(v[1])) end
  if v[4] then gap = math.max(gap, tonumber(v[4])) end
  if auto == 1 then gap = math.max(gap, tonumber(v[9]) or auto_start) end
  local ceiling = needs_approval == 1 and unapproved or 0
  if v[5] and in_force(v[6]) then ceiling = tonumber(v[5]) end
  if ceiling > gap then gap, clamped = ceiling, true end
  if v[3] and in_force(v[3]) then closed_until = host_now + LATEST_MS * 5 end
  if v[7] and v[7] ~= '0' then
    local open_until = tonumber(v[8])
    if open_until > host_now then
      closed_until = math.max(closed_until, open_until)
    else
      most = 1 -- one request tries whether the host is well again
    end
  end
  rate, taken, last_run = decayed(v[10], v[11]), tonumber(v[13]) or 0, v[12]
end

local function next_allowed(host)
  return math.max(tonumber(call('ZSCORE', NEXT, host)) or 0, closed_until)
end

-- What is heard of a host goes by itself in time, also when the host is never claimed.
local function forget_later(host)
  if call('SISMEMBER', SHARD .. ':steered', host) == 0 then call('EXPIRE', HOST .. host, RECORD_TTL) end
end

-- Leaves the host alone until then, whatever its gap is.
local function hold(host, at)
  call('ZADD', NEXT, 'GT', at, host)
  if at > (tonumber(call('HGET', HOST .. host, 'held')) or 0) then call('HSET', HOST .. host, 'held', int(at)) end
  forget_later(host)
end

local function mark(at)
  return int(at * 16)
end

-- Reserves the host from `at` on; returns when it is allowed next. `slack` is added to the gap (to a
-- short one less), so that a request which is sent so late does not come too near to the following one.
local function reserve(host, at, slack)
  local length = gap + (slack or math.min(SLACK_MS, math.floor(gap * 0.8) / 16))
  if random_gap == 1 then length = length + math.floor(gap * 8 * chance(host .. ' ' .. mark(at))) / 16 end
  call('HSET', HOST .. host, 'began', string.format('%.4f', at))
  call('ZADD', NEXT, string.format('%.4f', at + length), host)
  return at + length
end
