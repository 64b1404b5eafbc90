-- hosts: one page of the hosts that a part of the store names, with what they are sorted by. Changes
-- nothing.
--
-- KEYS  1 shard tag
-- ARGV  1 time (not looked at), 2 part (ready, delayed, owner: of a run; next, steered: of the shard),
--       3 cursor, 4 place of that run among the following ones (from 1), then run bases
-- Returns  next cursor, shard's clock, then for each host: host, how often the page names it, requests
--          queued in all those runs, decayed count of fetches, its time, bad answers. A part `ready`
--          leaves out the hosts that stand in the one of an earlier run.

local part, cursor, own = ARGV[2], ARGV[3], tonumber(ARGV[4])
local base = ARGV[4 + own]
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

local times, order = {}, {}
local function name(host)
  if not times[host] then
    times[host] = 0
    order[#order + 1] = host
  end
  times[host] = times[host] + 1
end

local function is_earlier(host)
  for i = 5, 3 + own do
    if call('ZSCORE', ARGV[i] .. ':ready', host) then return true end
  end
  return false
end

local members = page[2]
for i = 1, #members, part == 'steered' and 1 or 2 do
  local member = members[i]
  if part == 'ready' then
    if not is_earlier(member) then name(member) end
  elseif part == 'next' or part == 'steered' then
    name(member)
  elseif member ~= SEED then
    local body = call('HGET', base .. ':body', member)
    if body then name((unpack_body(body))) end
  end
end

local answer = {page[1], call('HGET', SHARD .. ':clock', 'log') or '0'}
for _, host in ipairs(order) do
  local queued = 0
  for i = 5, #ARGV do queued = queued + call('ZCARD', ARGV[i] .. ':queue:' .. host) end
  local facts = call('HMGET', HOST .. host, 'rate', 'rate_at', 'bad')
  answer[#answer + 1] = host
  answer[#answer + 1] = times[host]
  answer[#answer + 1] = queued
  for i = 1, 3 do answer[#answer + 1] = facts[i] or '0' end
end
return answer
