-- tune: what a run wants of its hosts changes while it runs, and what single hosts are fetched by, as
-- the live values say. It acts at once: hosts that wait are looked at again, a piece of them a call.
--
-- ARGV  1 time, 2 version of the live values, 3 concurrency (0 = no limit), 4 delay ms, 5 fetch timeout
--       ms, 6 max retries, 7 what else it wants of hosts: see read_policy in host.lua, 8 and 9 where to
--       go on among the waiting hosts, and then among the run's own (0 = at the first, -1 = there are no
--       more; both -1 at first: the node only repeats what it says of hosts), 10 node, 11 what it says of
--       single hosts ('-' = it has just said so): lines of host, delay ms, until when, fetches at once,
--       until when (wall ms, 0 = no end; '-' = the run's), 's' (the store's live values) or 'o'
-- Returns  1, or 0 when a later version holds and nothing was done; 8 and 9 for the next call

local PIECE = 500 -- hosts that are looked at in one call, about
local SAID_MS = 60000 -- what a node says of hosts counts for so long, by the shard's clock

local had = call('HMGET', META, 'state', 'tuned')
if not had[1] then return lost_run() end
local version = tonumber(ARGV[2])
if (tonumber(had[2]) or 0) > version then return {0, '-1', '-1'} end
local repeats = ARGV[8] == '-1' and ARGV[9] == '-1'
if not repeats then
  call('HSET', META, 'tuned', int(version), 'concurrency', ARGV[3] == '0' and int(NO_LIMIT) or ARGV[3],
    'delay', ARGV[4], 'fetch', ARGV[5], 'retries', ARGV[6], 'policy', ARGV[7])
end
begin()
speak()
read_policy()

local LINE = '(%S+) (%S+) (%d+) (%S+) (%d+) (%a)\n'

-- How strict a word is: a long delay, few fetches at once.
local function of_delay(value) return tonumber(value) end
local function of_most(value) return value == '0' and -NO_LIMIT or -tonumber(value) end

-- Of two words on one thing the stricter one; of the same the one that holds longer, then the store's.
local function stricter(old, value, till, from, strictness)
  if value == '-' then return old end
  local new = {value, tonumber(till), strictness(value), from}
  if not old or new[3] > old[3] then return new end
  if new[3] < old[3] then return old end
  local is_longer = old[2] ~= 0 and (new[2] == 0 or new[2] > old[2])
  if is_longer or (new[2] == old[2] and from == 's') then return new end
  return old
end

local values, said = SHARD .. ':tuned', SHARD .. ':tuned_by'

-- Nodes need not know the same: of what those say that live, the strictest holds. What they have from
-- the store's live values counts in its latest version only. All of it ends with the last of their words,
-- also when nobody is left to say so.
local function merge()
  local newest, words, living = math.max(tonumber(call('HGET', said, '@')) or 0, version), {}, {}
  local last = 0
  if newest > 0 then call('HSET', said, '@', int(newest)) end
  local all = call('HGETALL', said)
  for i = 1, #all, 2 do
    local till, its_version, name = string.match(all[i + 1], '^(%d+) (%d+) (%x+)$')
    if string.sub(all[i], 1, 1) == '=' then
      words[string.sub(all[i], 2)] = all[i + 1]
    elseif till and tonumber(till) > host_now then
      living[name] = math.max(living[name] or 0, tonumber(its_version))
      last = math.max(last, tonumber(till))
    elseif till then
      call('HDEL', said, all[i])
    end
  end
  local hosts, delays, mosts = {}, {}, {}
  for name, lines in pairs(words) do
    if not living[name] then call('HDEL', said, '=' .. name) end
    for host, its_delay, delay_till, its_most, most_till, from in string.gmatch(living[name] and lines or '', LINE) do
      if from == 'o' or living[name] == newest then
        delays[host] = stricter(delays[host], its_delay, delay_till, from, of_delay)
        mosts[host] = stricter(mosts[host], its_most, most_till, from, of_most)
        hosts[host] = true
      end
    end
  end
  local wanted = {}
  for host in pairs(hosts) do
    local its_gap, its_most = delays[host] or {'-', 0, 0, '-'}, mosts[host] or {'-', 0, 0, '-'}
    local words_on = {its_gap[1], int(its_gap[2]), its_most[1], int(its_most[2]), its_gap[4], its_most[4]}
    wanted['@'], wanted[host] = int(last), table.concat(words_on, ' ')
  end
  local stored, known = call('HGETALL', values), {}
  for i = 1, #stored, 2 do
    if wanted[stored[i]] then known[stored[i]] = stored[i + 1] else call('HDEL', values, stored[i]) end
  end
  for name, word in pairs(wanted) do
    if known[name] ~= word then call('HSET', values, name, word) end
  end
end

if ARGV[11] ~= '-' then
  if ARGV[11] == '' then
    call('HDEL', said, ARGV[10])
  else
    local name = redis.sha1hex(ARGV[11])
    local till = int(host_now + SAID_MS)
    call('HSET', said, '=' .. name, ARGV[11], ARGV[10], till .. ' ' .. int(version) .. ' ' .. name)
  end
  merge()
end
read_others()

-- The gap since the last fetch follows what holds now, be it looser or stricter. Until when the host
-- asked to be left alone stays. Hosts that only other runs fetch are theirs.
local function move(host)
  local v = call('HMGET', HOST .. host, 'began', 'held', 'last')
  if not v[1] or (v[3] ~= RUN and call('EXISTS', QUEUE .. host) == 0) then return end
  weigh(host)
  local at = math.max(tonumber(v[1]) + gap + SLACK_MS, tonumber(v[2]) or 0)
  if at > host_now then call('ZADD', NEXT, string.format('%.4f', at), host) else call('ZREM', NEXT, host) end
end

local function wake(host)
  call('ZADD', READY, math.max(host_now, tonumber(call('ZSCORE', NEXT, host)) or 0), host)
end

-- Does it to a piece of those that wait beyond now; returns where the next piece begins. It is a scan:
-- who is moved changes its place in the order of times, and others behind it theirs.
local function each_waiting(key, cursor, act)
  local page = call('ZSCAN', key, cursor, 'COUNT', PIECE)
  for i = 1, #page[2], 2 do
    if tonumber(page[2][i + 1]) > host_now then act(page[2][i]) end
  end
  return page[1] == '0' and '-1' or page[1]
end

-- Hosts are woken by when they are allowed next, so all of those come first.
local waiting, own = ARGV[8], ARGV[9]
if waiting ~= '-1' then waiting = each_waiting(NEXT, waiting, move) end
if waiting == '-1' and own ~= '-1' then own = each_waiting(READY, own, wake) end
return {1, waiting, own}
