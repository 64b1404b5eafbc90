-- renew: extend leases that are still held, and note that the node lives.
--
-- ARGV  1 time, 2 node, 3 lease ms, 4 beat ('' = keep the last), then pairs: id, token
-- Returns  stopping (0/1), then for each lease that is lost its place among the pairs (from 0)

if not begin() then return lost_run() end
local node, lease = ARGV[2], tonumber(ARGV[3])
local answer = {call('HEXISTS', META, 'stopping')}
for i = 5, #ARGV, 2 do
  if owns(ARGV[i], ARGV[i + 1]) then
    call('ZADD', DEADLINE, 'XX', now + lease, ARGV[i])
  else
    answer[#answer + 1] = (i - 5) / 2
  end
end
call('ZADD', NODES, now, node)
speak()
if ARGV[4] ~= '' then call('HSET', BEATS, node, int(wall) .. '\n' .. ARGV[4]) end
-- Nodes that have been silent for long cannot come back under the same name: it is new per process.
for _, silent in ipairs(call('ZRANGEBYSCORE', NODES, '-inf', now - 20 * lease, 'LIMIT', 0, 20)) do
  call('ZREM', NODES, silent)
  call('HDEL', BEATS, silent)
  call('HDEL', CLAIMS, silent)
  call('HDEL', LOADS, silent)
end
-- Hosts that may be fetched again need no entry; the beats of nodes keep their number small.
for _, host in ipairs(call('ZRANGEBYSCORE', NEXT, '-inf', host_now, 'LIMIT', 0, 500)) do
  call('ZREM', NEXT, host)
end
local ttl = call('HGET', META, 'ttl')
if ttl ~= '0' then
  call('ZADD', SHARD .. ':runs', 'XX', wall + tonumber(ttl), string.sub(RUN, #SHARD + 6))
end
return answer
