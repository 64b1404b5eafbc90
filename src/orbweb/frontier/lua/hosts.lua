-- hosts: one page of the hosts that a part of the store names, with what they are sorted by. Changes
-- nothing.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 part (ready, delayed, owner: of a run; next, steered: of the shard), 3 cursor, 4 order
--       (backlog, rate, errors), 5 score: hosts of a part `ready` are told only if theirs is higher,
--       6 place of that run among the following ones (from 1), then run bases
-- Returns  next cursor, how many hosts the page names, then for those that are told: host, how often the
--          page names it, 1 when it stands in a queue, score. A part `ready` leaves out the hosts that
--          stand in the one of an earlier run.

local part, cursor, order, floor, own = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local base = ARGV[6 + own]
local in_ready = part == 'ready'
local page
if part == 'next' then
  page = call('ZSCAN', NEXT, cursor, 'COUNT', 250)
elseif part == 'steered' then
  page = call('SSCAN', SHARD .. ':steered', cursor, 'COUNT', 250)
elseif part == 'owner' then
  page = call('HSCAN', base .. ':owner', cursor, 'COUNT', 250)
else
  page = call('ZSCAN', base .. ':' .. part, cursor, 'COUNT', 250)
end

local times, names = {}, {}
local function name(host)
  if host == TASKS_HOST then return end
  if not times[host] then
    times[host] = 0
    names[#names + 1] = host
  end
  times[host] = times[host] + 1
end

local function is_earlier(host)
  for i = 7, 5 + own do
    if call('ZSCORE', ARGV[i] .. ':ready', host) then return true end
  end
  return false
end

local members = page[2]
for i = 1, #members, part == 'steered' and 1 or 2 do
  local member = members[i]
  if in_ready then
    if not is_earlier(member) then name(member) end
  elseif part == 'next' or part == 'steered' then
    name(member)
  elseif member ~= SEED then
    local body = call('HGET', base .. ':body', member)
    if body then name((unpack_body(body))) end
  end
end

local queues = {}
for i = 7, #ARGV do queues[#queues + 1] = ARGV[i] .. ':queue:' end
local function queued_for(host)
  local queued = 0
  for _, queue in ipairs(queues) do queued = queued + call('ZCARD', queue .. host) end
  return queued
end

local clock = tonumber(call('HGET', SHARD .. ':clock', 'log')) or 0
local function score_of(host, queued)
  if order == 'backlog' then return queued end
  if order == 'errors' then return tonumber(call('HGET', HOST .. host, 'bad')) or 0 end
  local v = call('HMGET', HOST .. host, 'rate', 'rate_at')
  return (tonumber(v[1]) or 0) * 2 ^ (((tonumber(v[2]) or clock) - clock) / HALF_LIFE_MS)
end

local answer = {page[1], #names}
for _, host in ipairs(names) do
  local queued = (not in_ready or order == 'backlog') and queued_for(host) or 1
  local score = score_of(host, queued)
  if not in_ready or score > floor then
    answer[#answer + 1] = host
    answer[#answer + 1] = times[host]
    answer[#answer + 1] = queued > 0 and 1 or 0
    answer[#answer + 1] = string.format('%.3f', score)
  end
end
return answer
