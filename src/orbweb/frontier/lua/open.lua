-- open: make a run or join it.
--
-- KEYS  1 shard tag
-- ARGV  1 time ('' = server's), 2 job, 3 run, 4 epoch to use if the run is new, 5 finished ttl ms,
--       6 run ttl ms (0 = never collected), 7 keep alive (0/1), 8 dedup scope (run, spider),
--       9 concurrency (0 = no limit), 10 delay ms, 11 fetch timeout ms, 12 clock step ms,
--       13 max retries, 14 max deliveries, 15 what else it wants of hosts: see read_policy in host.lua,
--       16 kind of what is seen, 17 its plan, 18 size and 19 capacity of its first part, 20 age ms after
--       which a part is old (0 = never),
--       21 number of shards, 22 for a part of the run in another shard than the first: when the run was
--       started, else '', 23 the part may be made (0/1), 24 a source of tasks is to be asked anew (0/1),
--       25 which ends of tasks are told (done, failed; with a blank between), 26 of how many dead letters
--       the response is kept
-- Returns  state it was found in (new, running, done), epoch, every shard has its part (0/1), the plan
--          that holds; or, when nothing was done: 'shards' and how many the run has; 'kind', what is of
--          another kind (run, job), its kind; 'module', what the server says of its commands

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

local name, part = ARGV[2] .. ':' .. ARGV[3], ARGV[22] ~= ''
local epoch = call('HGET', SHARD .. ':current', name)
local found, old, started = false, nil, part and tonumber(ARGV[22]) or wall
local spread_over
if epoch then
  use(SHARD .. ':run:' .. name .. ':' .. epoch)
  local v = call('HMGET', META, 'state', 'finished', 'started', 'shards')
  found, spread_over = v[1], v[1] and (v[4] or '1')
  if part and epoch ~= ARGV[4] then
    -- Never the other way round: a node that slept must not put an old run in the place of a new one.
    if found and tonumber(v[3]) >= started then return lost_run() end
    old, found = epoch, false
  elseif not part and found == 'done' and wall - tonumber(v[2]) > tonumber(ARGV[5]) then
    old, found = epoch, false
    started = math.max(wall, tonumber(v[3]) + 1)
  end
end
local generation = ARGV[8] == 'spider' and (call('HGET', SHARD .. ':jobs', ARGV[2]) or ARGV[4])
local job_seen = generation and SHARD .. ':job:' .. ARGV[2] .. ':' .. generation .. ':seen'
local run_kind = found and call('HGET', META, 'kind')
if not found then
  use(SHARD .. ':run:' .. name .. ':' .. ARGV[4])
  if part and ARGV[23] == '0' then return lost_run() end
  spread_over = job_seen and call('EXISTS', job_seen) == 1 and (call('HGET', job_seen, 'shards') or '1')
end
if run_kind and run_kind ~= kind then return {'kind', 'run', run_kind} end
local job_kind = job_seen and call('HGET', job_seen, 'kind')
if job_kind and job_kind ~= kind then return {'kind', 'job', job_kind} end
if spread_over and spread_over ~= ARGV[21] then return {'shards', spread_over} end
local seen = job_seen or RUN .. ':seen'
local refused = make_seen(seen)
if refused then return refused end
if not found then
  epoch = ARGV[4]
  if not part then -- seeding is pending before the run exists
    call('HSET', BODY, SEED, pack_body(SEED, 0, 0, ''))
    if ARGV[21] ~= '1' then call('HSET', META, 'laid', '0') end
  end
  if ARGV[21] ~= '1' then call('HSET', META, 'shards', ARGV[21]) end
  call('HSET', META, 'state', 'running', 'started', int(started), 'finished', '0', 'seq', '0', 'cursor', '0')
end
if job_seen then
  call('HSET', SHARD .. ':jobs', ARGV[2], generation)
  if ARGV[21] ~= '1' then call('HSET', job_seen, 'shards', ARGV[21]) end
end
call('HSET', META, 'concurrency', ARGV[9] == '0' and int(NO_LIMIT) or ARGV[9], 'delay', ARGV[10], 'fetch', ARGV[11],
  'step', ARGV[12], 'retries', ARGV[13], 'deliveries', ARGV[14], 'ttl', ARGV[6], 'seen', seen,
  'policy', ARGV[15], 'kind', kind, 'tells', ARGV[25], 'responses', ARGV[26])
call('HDEL', META, 'stopping')
call('HSET', SHARD .. ':current', name, epoch)
if old then give_up(name .. ':' .. old) end
begin()
speak()
call('ZADD', SHARD .. ':runs', ARGV[6] == '0' and 'inf' or wall + tonumber(ARGV[6]), name .. ':' .. epoch)
local wakes = ARGV[24] == '1' and not part and call('HSETNX', BODY, SEED, pack_body(SEED, 0, 0, '')) == 1
if ARGV[7] == '1' then
  call('HSET', BODY, HOLD, pack_body(HOLD, 0, 0, ''))
  wakes = true
end
if wakes then
  seq = seq + 1
  reopen()
  commit()
end
return {found or 'new', epoch, call('HGET', META, 'laid') == '0' and 0 or 1, call('HGET', seen, 'plan')}
