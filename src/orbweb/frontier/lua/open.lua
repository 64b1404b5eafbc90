-- open: make a run or join it.
--
-- KEYS  1 shard tag
-- ARGV  1 time ('' = server's), 2 job, 3 run, 4 epoch to use if the run is new, 5 finished ttl ms,
--       6 run ttl ms (0 = never collected), 7 keep alive (0/1), 8 dedup scope (run, spider),
--       9 concurrency (0 = no limit), 10 delay ms, 11 fetch timeout ms, 12 clock step ms,
--       13 max retries, 14 max deliveries, 15 what else it wants of hosts: see read_policy in host.lua,
--       16 kind of what is seen, 17 its plan, 18 size and 19 capacity of its first part, 20 age ms after
--       which a part is old (0 = never)
-- Returns  state it was found in (new, running, done), epoch, the plan that holds; or 'kind', what is
--          of another kind (run, job), its kind; or 'module', what the server says of its commands

read_wall()
local kind = ARGV[16]

-- Makes an empty memory of what is seen, unless there is one. Its module may be missing, so it comes
-- before all else that is written.
local function make_seen(base)
  if call('HEXISTS', base, 'kind') == 1 then return end
  if kind == 'bloom-module' and call('EXISTS', base .. ':1') == 0 then
    local rate, capacity = string.match(ARGV[17], '(%S+) (%S+)')
    local made = redis.pcall('BF.RESERVE', base .. ':1', rate, capacity, 'EXPANSION', '2')
    if made.err then return {'module', made.err} end
  end
  call('HSET', base, 'kind', kind, 'plan', ARGV[17], 'age', ARGV[20], 'part', '1', 'first', '1', 'count', '0',
    'size', ARGV[18], 'capacity', ARGV[19], 'layer', '0', 'begun', int(wall))
end

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
local run_kind = found and call('HGET', META, 'kind')
if run_kind and run_kind ~= kind then return {'kind', 'run', run_kind} end
local shared = ARGV[8] == 'spider'
local generation = shared and (call('HGET', SHARD .. ':jobs', ARGV[2]) or ARGV[4])
local job_seen = shared and SHARD .. ':job:' .. ARGV[2] .. ':' .. generation .. ':seen'
local job_kind = shared and call('HGET', job_seen, 'kind')
if job_kind and job_kind ~= kind then return {'kind', 'job', job_kind} end
if not found then
  epoch = ARGV[4]
  use(SHARD .. ':run:' .. name .. ':' .. epoch)
end
local seen = job_seen or RUN .. ':seen'
local refused = make_seen(seen)
if refused then return refused end
if not found then
  call('HSET', BODY, SEED, pack_body(SEED, 0, 0, '')) -- seeding is pending before the run exists
  call('HSET', META, 'state', 'running', 'started', int(wall), 'finished', '0', 'seq', '0', 'cursor', '0')
end
if shared then call('HSETNX', SHARD .. ':jobs', ARGV[2], generation) end
call('HSET', META, 'concurrency', ARGV[9] == '0' and int(NO_LIMIT) or ARGV[9], 'delay', ARGV[10], 'fetch', ARGV[11],
  'step', ARGV[12], 'retries', ARGV[13], 'deliveries', ARGV[14], 'ttl', ARGV[6], 'seen', seen,
  'policy', ARGV[15], 'kind', kind)
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
return {found or 'new', epoch, call('HGET', seen, 'plan')}
