-- open: make a run or join it.
--
-- KEYS  1 shard tag
-- ARGV  1 time ('' = server's), 2 job, 3 run, 4 epoch to use if the run is new, 5 finished ttl ms,
--       6 run ttl ms (0 = never collected), 7 keep alive (0/1), 8 dedup scope (run, spider),
--       9 concurrency (0 = no limit), 10 delay ms, 11 fetch timeout ms, 12 clock step ms,
--       13 max retries, 14 max deliveries, 15 what else it wants of hosts: see read_policy in host.lua
-- Returns  state it was found in (new, running, done), epoch

read_wall()
local name = ARGV[2] .. ':' .. ARGV[3]
local epoch = call('HGET', SHARD .. ':current', name)
local found, old = false, nil
if epoch then
  use(SHARD .. ':run:' .. name .. ':' .. epoch)
  local v = call('HMGET', META, 'state', 'finished')
  found = v[1]
  if found == 'done' and wall - tonumber(v[2]) > tonumber(ARGV[5]) then
    old, found = epoch, false
  end
end
if not found then
  epoch = ARGV[4]
  use(SHARD .. ':run:' .. name .. ':' .. epoch)
  call('HSET', BODY, SEED, pack_body(SEED, 0, 0, '')) -- seeding is pending before the run exists
  call('HSET', META, 'state', 'running', 'started', int(wall), 'finished', '0', 'seq', '0', 'cursor', '0')
end
local seen = RUN .. ':seen'
if ARGV[8] == 'spider' then
  call('HSETNX', SHARD .. ':jobs', ARGV[2], ARGV[4])
  seen = SHARD .. ':job:' .. ARGV[2] .. ':' .. call('HGET', SHARD .. ':jobs', ARGV[2]) .. ':seen'
end
call('HSET', META, 'concurrency', ARGV[9] == '0' and int(NO_LIMIT) or ARGV[9], 'delay', ARGV[10], 'fetch', ARGV[11],
  'step', ARGV[12], 'retries', ARGV[13], 'deliveries', ARGV[14], 'ttl', ARGV[6], 'seen', seen,
  'policy', ARGV[15])
call('HDEL', META, 'stopping')
call('HSET', SHARD .. ':current', name, epoch)
if old then give_up(name .. ':' .. old) end
begin()
speak()
call('ZADD', SHARD .. ':runs', ARGV[6] == '0' and 'inf' or wall + tonumber(ARGV[6]), name .. ':' .. epoch)
if ARGV[7] == '1' then
  call('HSET', BODY, HOLD, pack_body(HOLD, 0, 0, ''))
  reopen()
end
return {found or 'new', epoch}
