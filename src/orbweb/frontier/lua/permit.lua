-- permit: the right to send a request, asked for right before it as the time that the claim reserved
-- has passed, or for one more request under the same lease.
--
-- ARGV  1 time, 2 id, 3 token, 4 mark of the time that was reserved last (0 = none), 5 how late it may
--       be sent (ms)
-- Returns  code (0 granted, 1 later, 2 lost), ms to wait before sending, mark

if not begin() then return lost_run() end
local id = ARGV[2]
local body = owns(id, ARGV[3]) and call('HGET', BODY, id)
if not body then return {2, 0, '0'} end
local host = unpack_body(body)
read_policy()
read_others()
weigh(host)
local at = math.max(host_now, next_allowed(host))
if ARGV[4] ~= '0' and mark(tonumber(call('ZSCORE', NEXT, host)) or 0) == ARGV[4] then
  at = math.max(host_now, closed_until) -- nobody has reserved the host since
end
if at > host_now + LATEST_MS then return {1, 0, '0'} end
-- The slot is kept as long as this fetch can take. One that the host took back meanwhile, as no fetch
-- takes so long, must be had again.
local slot = RUN .. ' ' .. id .. ' ' .. ARGV[3]
if not call('ZSCORE', SLOTS .. host, slot) then
  call('ZREMRANGEBYSCORE', SLOTS .. host, '-inf', host_now)
  if call('ZCARD', SLOTS .. host) >= most then return {1, 0, '0'} end
end
call('ZADD', SLOTS .. host, math.ceil(at) + fetch_ms, slot)
call('EXPIRE', SLOTS .. host, RECORD_TTL)
local reserved = gap > 0 and mark(reserve(host, at, tonumber(ARGV[5]))) or '0'
return {0, math.ceil(at - host_now), reserved}
