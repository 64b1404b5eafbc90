-- status: exact counts of the run at one instant. Changes nothing.
--
-- ARGV  1 time
-- Returns  state, pending, leased, delayed, dead, hosts, items, retried, reaped, fenced, repaired,
--          seed batches, seeding (0/1), somebody seeds (0/1), hold (0/1), stopping (0/1), paused (0/1),
--          started, finished (wall ms), in the outbox, version, number of shards, tasks that have not
--          ended, then pairs: reason, number

local meta = call('HMGET', META, 'state', 'items', 'retried', 'reaped', 'fenced', 'repaired', 'cursor',
  'stopping', 'paused', 'started', 'finished', 'seq', 'shards')
if not meta[1] then return lost_run() end
read_wall()
local paused = meta[9] and (meta[9] == '0' or tonumber(meta[9]) > wall)
local function number(value) return tonumber(value) or 0 end
local others = call('ZCARD', OUTBOX)
local hosts = call('ZCARD', READY)
if call('ZSCORE', READY, TASKS_HOST) then hosts = hosts - 1 end
local answer = {
  meta[1], call('HLEN', BODY) + others, call('ZCARD', DEADLINE), call('ZCARD', DELAYED), call('HLEN', DEAD),
  hosts, number(meta[2]), number(meta[3]), number(meta[4]), number(meta[5]),
  number(meta[6]), number(meta[7]), call('HEXISTS', BODY, SEED), call('HEXISTS', OWNER, SEED),
  call('HEXISTS', BODY, HOLD),
  meta[8] and 1 or 0, paused and 1 or 0, number(meta[10]), number(meta[11]), others, number(meta[12]),
  number(meta[13] or 1), call('HLEN', OF_TASKS.all),
}
for _, word in ipairs(call('HGETALL', REASONS)) do answer[#answer + 1] = word end
return answer
