-- seed_push: one batch of seeds enters and the cursor moves, in one step.
--
-- ARGV  1 time, 2 token, 3 batch number (from 1), 4 final (0/1), 5 number of seeds, 6 number of seeds
--       of other shards, then five words a seed (see push_argv) and one for each of the others (send_argv)
-- Returns  code (ok, duplicate, gap, stale), batches that are in, how many seeds were new in this shard

if not begin() then return lost_run() end
local batch = tonumber(ARGV[3])
local refused = refusal(ARGV[2], batch)
if refused then return refused end
local seeds = tonumber(ARGV[5])
local added = push_argv(7, seeds)
send_argv(7 + seeds * 5, tonumber(ARGV[6]))
return take_in(batch, ARGV[4] == '1', added)
