-- steer: an operator's word on a host, with the line that records it. It acts at once: the runs that
-- wait for the host look at it again. Touches no run.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 host, 3 the host's entry in the register as the caller knows it ('' = none, '=' = it
--       did not look), 4 its new entry ('' = none, '=' = leave it), 5 line for the audit trail ('' =
--       none), then pairs: field of the host, value ('' = delete it)
-- Returns  1, or 0 when the entry is another by now and nothing was done; then the old values of the
--          fields ('' = there was none)

local REMEMBERED = 604800 -- seconds for which a host is kept that nobody steers and nobody fetches
local TRAIL = 10000 -- lines that are kept

local host, expected, entry, line = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key, rates = HOST .. host, SHARD .. ':rates'
if expected ~= '=' and (call('HGET', rates, host) or '') ~= expected then return {0} end

local answer = {1}
for i = 6, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  answer[#answer + 1] = call('HGET', key, field) or ''
  if value == '' then call('HDEL', key, field) else call('HSET', key, field, value) end
end
if entry == '' then call('HDEL', rates, host) elseif entry ~= '=' then call('HSET', rates, host, entry) end

local words = call('HMGET', key, 'limit', 'paused', 'ceiling')
if words[1] or words[2] or words[3] then
  call('SADD', SHARD .. ':steered', host)
  call('PERSIST', key)
else
  call('SREM', SHARD .. ':steered', host)
  call('EXPIRE', key, REMEMBERED)
end
if line ~= '' then
  call('RPUSH', SHARD .. ':audit', line)
  call('LTRIM', SHARD .. ':audit', -TRAIL, -1)
end

local clock = call('HGET', SHARD .. ':clock', 'log') or '0'
local runs = call('HGETALL', SHARD .. ':current')
for i = 1, #runs, 2 do
  call('ZADD', SHARD .. ':run:' .. runs[i] .. ':' .. runs[i + 1] .. ':ready', 'XX', 'LT', clock, host)
end
return answer
