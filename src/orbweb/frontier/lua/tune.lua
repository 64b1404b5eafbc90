-- tune: what a run wants of its hosts changes while it runs, and what single hosts are fetched by, as
-- the live values say. It acts at once: hosts that wait are looked at again, a piece of them a call.
--
-- ARGV  1 time, 2 version of the live values, 3 concurrency (0 = no limit), 4 delay ms, 5 fetch timeout
--       ms, 6 max retries, 7 what else it wants of hosts: see read_policy in host.lua, 8 and 9 how many of
--       the waiting hosts and of the run's own were looked at and stay (-1 = all), then pairs: host, what
--       holds for it alone: delay ms, until when, fetches at once, until when (wall ms, 0 = no end; '-' =
--       the run's)
-- Returns  1, or 0 when a later version holds and nothing was done; 8 and 9 for the next call (-1 = done)

local PIECE = 500 -- hosts that are looked at in one call

local had = call('HMGET', META, 'state', 'tuned')
if not had[1] then return lost_run() end
local version = tonumber(ARGV[2])
if (tonumber(had[2]) or 0) > version then return {0, -1, -1} end
call('HSET', META, 'tuned', int(version), 'concurrency', ARGV[3] == '0' and int(NO_LIMIT) or ARGV[3], 'delay', ARGV[4],
  'fetch', ARGV[5], 'retries', ARGV[6], 'policy', ARGV[7])
local values = SHARD .. ':tuned'
if (tonumber(call('HGET', values, '')) or 0) <= version then
  call('DEL', values)
  if #ARGV > 9 then call('HSET', values, '', int(version), unpack(ARGV, 10)) end
end
begin()
speak()
read_policy()
read_others()

-- The gap since the last fetch follows what holds now, be it looser or stricter. Until when the host
-- asked to be left alone stays.
local function move(host)
  weigh(host)
  local v = call('HMGET', HOST .. host, 'began', 'held')
  if not v[1] then return true end
  local at = math.max(tonumber(v[1]) + gap + SLACK_MS, tonumber(v[2]) or 0)
  if at > host_now then
    call('ZADD', NEXT, string.format('%.4f', at), host)
    return true
  end
  call('ZREM', NEXT, host)
end

local function wake(host)
  local at = math.max(host_now, tonumber(call('ZSCORE', NEXT, host)) or 0)
  call('ZADD', READY, at, host)
  return at > host_now
end

-- Does it to a piece of those that wait beyond now; returns how many of all so far still do.
local function each_waiting(key, skip, act)
  if skip < 0 then return -1 end
  local hosts = call('ZRANGEBYSCORE', key, '(' .. int(host_now), '+inf', 'LIMIT', skip, PIECE)
  for _, host in ipairs(hosts) do
    if act(host) then skip = skip + 1 end
  end
  return #hosts == PIECE and skip or -1
end

local waiting = each_waiting(NEXT, tonumber(ARGV[8]), move)
return {1, waiting, each_waiting(READY, tonumber(ARGV[9]), wake)}
