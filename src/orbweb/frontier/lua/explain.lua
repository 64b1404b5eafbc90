-- explain: all that a shard knows of one request, at one instant. Changes nothing.
--
-- KEYS  1 shard tag, 2 run base
-- ARGV  1 time, 2 id, 3 fingerprint, 4 host
-- Returns  server's wall clock, state of the run, then of the request: body ('' = it is not pending);
--          queued, delayed, leased or '' and, as that says, how many stand before it at its host, when it
--          returns or its lease ends (wall ms), token and since when it is held (wall ms, 0 = not known);
--          deliveries that nobody answered; body and reason as a dead letter; id of the request whose
--          redirect took the page; whether a link to it is parked; then of what is seen: part that has it
--          (0 = none), when that began (wall ms), how many parts there are, 1 when the job's runs share
--          it, kind, 1 when it is kept apart exactly, how often the host was forgotten

read_wall()
local meta = call('HMGET', META, 'state', 'wall', 'log', 'step', 'fetch', 'seen', 'kind')
if not meta[1] then return lost_run() end
local id, member, host = ARGV[2], ARGV[3], ARGV[4]

local function clock(last_wall, log, step)
  return (tonumber(log) or 0) + math.max(0, math.min(wall - (tonumber(last_wall) or wall), step))
end
now = clock(meta[2], meta[3], tonumber(meta[4]))
local shard = call('HMGET', SHARD .. ':clock', 'wall', 'log')
host_now = clock(shard[1], shard[2], SHARD_STEP_MS)

-- Since when a lease is held: the start of its fetch, as long as it has not given its slot back.
local function held_since(token)
  local ends = call('ZSCORE', SLOTS .. host, RUN .. ' ' .. id .. ' ' .. token)
  return ends and wall - (host_now - (ends - tonumber(meta[5]))) or 0
end

local function stand()
  local token = call('HGET', OWNER, id)
  if token then
    local ends = tonumber(call('ZSCORE', DEADLINE, id)) or now
    return {'leased', 0, int(wall + ends - now), token, int(held_since(token))}
  end
  local returns = call('ZSCORE', DELAYED, id)
  if returns then return {'delayed', 0, int(wall + returns - now), '', '0'} end
  local before = call('ZRANK', QUEUE .. host, id)
  if before then return {'queued', before, '0', '', '0'} end
  return {'', 0, '0', '', '0'}
end

local answer = {int(wall), meta[1], call('HGET', BODY, id) or ''}
for _, word in ipairs(stand()) do answer[#answer + 1] = word end
answer[#answer + 1] = call('HGET', EXPIRED, id) or '0'
answer[#answer + 1] = call('HGET', DEAD, id) or ''
answer[#answer + 1] = call('HGET', OF_DEAD.why, id) or ''
answer[#answer + 1] = call('HGET', VISITED, member) or ''
answer[#answer + 1] = call('HEXISTS', PARKED, member)

seen_base = meta[6]
local part, begun, is_sure = 0, 0, 0
if seen_read() then
  read_member(member, host)
  table.insert(older, 1, newest)
  for i = #older, 1, -1 do
    if part == 0 and seen_has(older[i], mark) then part, begun = older[i].number, older[i].begun end
  end
  is_sure = call('SISMEMBER', seen_base .. ':sure', mark)
end
local forgotten = salted and call('HGET', seen_base .. ':hosts', host) or '0'
for _, word in ipairs({
  int(part), int(begun), older and #older or 0, seen_base ~= RUN .. ':seen' and 1 or 0, meta[7] or '', is_sure,
  forgotten,
}) do answer[#answer + 1] = word end
return answer
