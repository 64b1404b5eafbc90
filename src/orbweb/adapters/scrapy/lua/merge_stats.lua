-- merge_stats: let what one worker has counted enter the hash of all; the last worker may clear it.
--
-- KEYS  1 stats    hash  name -> JSON
--       2 workers  hash  worker -> when it spoke last (ms), number of its last batch
-- ARGV  worker, number of the batch, silence after which a worker is gone (ms), 1 if it leaves,
--       1 if the last one clears, then triples: `add`, `set`, `max`, `min` or `del`; name; JSON.
-- Returns  how many workers are left. A batch that is in already changes nothing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HGET', KEYS[2], ARGV[1])
local is_new = not known or tonumber(known:match('%d+ (%d+)')) < tonumber(ARGV[2])
for i = 6, is_new and #ARGV or 0, 3 do
  local verb, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local old = redis.call('HGET', KEYS[1], name)
  if verb == 'del' then
    redis.call('HDEL', KEYS[1], name)
  elseif verb == 'add' and old and tonumber(old) then
    local whole = not (old .. value):find('[.eE]')
    redis.call(whole and 'HINCRBY' or 'HINCRBYFLOAT', KEYS[1], name, value)
  elseif not (verb == 'max' and tonumber(old) and tonumber(old) >= tonumber(value))
    and not (verb == 'min' and tonumber(old) and tonumber(old) <= tonumber(value)) then
    redis.call('HSET', KEYS[1], name, value)
  end
end
if ARGV[4] == '1' then
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[2], ARGV[1], now .. ' ' .. ARGV[2])
end
local workers, left = redis.call('HGETALL', KEYS[2]), 0
for i = 1, #workers, 2 do
  if tonumber(workers[i + 1]:match('%d+')) < now - ARGV[3] then
    redis.call('HDEL', KEYS[2], workers[i])
  else
    left = left + 1
  end
end
if ARGV[4] == '1' and ARGV[5] == '1' and left == 0 then
  redis.call('DEL', KEYS[1])
end
return left
