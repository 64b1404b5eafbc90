-- seed_push: one batch of seeds enters and the cursor moves, in one step.
--
-- ARGV  1 time, 2 token, 3 batch number (from 1), 4 final (0/1), 5 number of seeds, 6 number of seeds
--       of other shards, then five words a seed (see push_argv), one for each of the others (send_argv), and
--       pairs of reason and number of seeds that were not taken since start_requests began
-- Returns  code (ok, duplicate, gap, stale), batches that are in, how many seeds were new in this shard

if not begin() then return lost_run() end
local batch = tonumber(ARGV[3])
local refused = refusal(ARGV[2], batch)
if refused then return refused end
local seeds = tonumber(ARGV[5])
local added = push_argv(7, seeds)
send_argv(7 + seeds * 5, tonumber(ARGV[6]))
-- Totals: start_requests that runs again, after a crash say, refuses the same seeds again.
for i = 7 + seeds * 5 + tonumber(ARGV[6]), #ARGV, 2 do
  local field, total = 'refused:' .. ARGV[i], tonumber(ARGV[i + 1])
  local told = tonumber(call('HGET', META, field) or 0)
  if total > told then
    call('HSET', META, field, int(total))
    count(ARGV[i], total - told)
  end
end
return take_in(batch, ARGV[4] == '1', added)
