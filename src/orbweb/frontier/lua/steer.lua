-- steer: an operator's word on a host, with the line that records it. It acts at once: the runs that
-- wait for the host look at it again. Touches no run.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 host, 3 the host's entry in the register as the caller knows it ('' = none, '=' = it
--       did not look), 4 its new entry ('' = none, '=' = leave it), 5 line for the audit trail ('' =
--       none), then pairs: field of the host, value ('' = delete it)
-- Returns  1, or 0 when the entry is another by now and nothing was done; then the old values of the
--          fields ('' = there was none)

local TRAIL = 10000 -- lines that are kept

local host, expected, entry, line = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key, rates = HOST .. host, SHARD .. ':rates'
if expected ~= '=' and (call('HGET', rates, host) or '') ~= expected then return {0} end

local answer, set, gone = {1}, {}, {}
for i = 6, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  answer[#answer + 1] = call('HGET', key, field) or ''
  if value == '' then
    gone[#gone + 1] = field
  else
    set[#set + 1] = field
    set[#set + 1] = value
  end
end
-- One write each: a word without its end would hold for ever.
if #gone > 0 then call('HDEL', key, unpack(gone)) end
if #set > 0 then call('HSET', key, unpack(set)) end
if entry == '' then call('HDEL', rates, host) elseif entry ~= '=' then call('HSET', rates, host, entry) end

local words = call('HMGET', key, 'limit', 'paused', 'ceiling')
if words[1] or words[2] or words[3] then
  call('SADD', SHARD .. ':steered', host)
  call('PERSIST', key)
else
  call('SREM', SHARD .. ':steered', host)
  call('EXPIRE', key, RECORD_TTL)
end
if line ~= '' then
  call('RPUSH', SHARD .. ':audit', line)
  call('LTRIM', SHARD .. ':audit', -TRAIL, -1)
end

-- The gap since the last fetch follows the word that holds now, be it looser or stricter. Until when
-- the host asked to be left alone stays.
read_wall()
host_now = tonumber(call('HGET', SHARD .. ':clock', 'log')) or 0
local rules = call('HGETALL', PACE)
local longest = 0
others = {}
for i = 1, #rules, 2 do
  use(rules[i])
  local meta = call('HMGET', META, 'delay', 'concurrency', 'policy')
  if meta[3] then
    delay, concurrency = tonumber(meta[1]), tonumber(meta[2])
    read_policy()
    weigh(host)
    longest = math.max(longest, gap)
  end
end
local v = call('HMGET', key, 'began', 'held')
if v[1] and #rules > 0 then
  local at = math.max(tonumber(v[1]) + longest + 5, tonumber(v[2]) or 0)
  if at > host_now then call('ZADD', NEXT, string.format('%.4f', at), host) else call('ZREM', NEXT, host) end
end

local runs = call('HGETALL', SHARD .. ':current')
for i = 1, #runs, 2 do
  call('ZADD', SHARD .. ':run:' .. runs[i] .. ':' .. runs[i + 1] .. ':ready', 'XX', 'LT', int(host_now), host)
end
return answer
