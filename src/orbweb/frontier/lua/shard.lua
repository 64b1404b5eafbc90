-- shard: the pieces that transitions are made of. Stands in front of each of them; no transition itself.
--
-- KEYS  1 shard tag, "{prefix:0}"
--       2 run base, "{prefix:0}:run:job:run:epoch" (all but open and collect, which find it)
-- ARGV  1 time in ms for tests that turn their own clock; '' in production: the server's clock
--
-- Every other key is one of these two with a suffix, so all of them lie in one slot. The names of a
-- host's keys cannot come in KEYS: only the claim itself learns which hosts are ready.
--
-- Shard (shared by all jobs of a prefix)
--   :clock      hash  wall, log              monotone clock of politeness
--   :slots:HOST zset  run base + id + token -> latest end of that fetch (ms)
--   :next       zset  host -> next allowed time (ms, sixteenths); only hosts that must be waited for
--   :waiting:HOST zset run base -> when it last could not have the host (ms); both go a week after the
--                     last fetch, as :host:HOST does, with what nodes and runs that died have left there
--   :host:HOST  hash  what is known of a host
--                       taken, rate, rate_at   fetches handed out; decayed count of them (thousandths)
--                       last                   run that had the host last
--                       good, bad, streak      answers that showed it well and ill; ill in a row
--                       opens, open_until      circuit: how often it opened since it was well
--                       began, held            start that was reserved last; until when it asked to be left alone
--                       refusals               in a row, without saying for how long
--                       crawl                  gap that robots.txt asks for (ms)
--                       limit, ceiling         least gaps that an operator has set, that are approved (ms)
--                       paused                 nothing is fetched until then (wall ms, 0 = until it is resumed)
--                       limit_until, ceiling_until   wall ms, 0 = no end; *_by, *_why   whose words, for people
--                       clamped                fetches that the ceiling, or the lack of one, slowed down
--                       auto, top, window, answers, failures, latency, base, settle   see report.lua
--   :tuned      hash  host -> what live values say of it alone: delay, until when, fetches at once, until
--                     when ('-' = nothing): the strictest of what nodes say, and from where they have the one
--                     and the other (s, o: see tune.lua); @ -> until when all of it counts (ms)
--   :tuned_by   hash  node -> until when it counts (ms), version, name of its words; = and that name ->
--                     the words, see tune.lua; @ -> latest version of the store's live values
--   :config     hash  version, values        the live values; :config:history list, :config:acks hash node ->
--                     wall ms \n what it said, :config:acked zset node -> wall ms; all opaque to the scripts
--   :steered    set   hosts with a limit, a pause or a ceiling
--   :rates      hash  host -> JSON           the register of rates, and :audit list JSON: what operators did,
--                     the last 10,000 times; both opaque to the scripts
--   :role:NAME  hash  holder, until, lease, rank, fence, deputy, deputy_until: see lead.lua; and
--                     :role:NAME:record what the holder has put down. :alerts:PART hashes of notes for
--                     the judge of alarms, opaque to the scripts
--   :pace       hash  run base -> delay, concurrency, when its nodes last spoke (ms)
--   :current    hash  job:run -> epoch       which incarnation of a run is the living one
--   :jobs       hash  job -> generation      of what its runs have seen, when they share it
--   :waiting_tasks:KEY list  task and its JSON: what `take_tasks` lets into a run
--   :runs       zset  job:run:epoch -> when it may be collected (wall ms, inf = never)
--   :garbage    set   run bases that nobody can reach any more, and parts of what is seen: a key,
--                     how many keys begin with it, and the kind
--   :alerts:deliveries hash  result and channel -> tries; no script reads it
-- Run
--   :meta       hash  state, counters, configuration, the run's own clock (wall, log)
--   :body       hash  id -> host \n priority \n retries \n payload     THE set of pending requests
--   :queue:HOST zset  id by priority, then order of arrival            queued
--   :ready      zset  host -> when to look at it (ms); exactly the hosts with a queue
--   :delayed    zset  id -> when it returns to its queue               waiting for a retry
--   :deadline   zset  id -> end of its lease, and :owner hash id -> fence token   leased
--   :expired    hash  id -> deliveries that nobody answered
--   :emitted    hash  id -> token, and in how many steps its page has given links before the ack
--   :visited    hash  fingerprint -> id of the request whose redirect took that page, and
--                     :visits hash id -> its fingerprints
--   :parked     hash  fingerprint -> first link to such a page, as id \n body: enters if the request dies
--   :hungry     zset  node -> when it last got less than it asked for
--   :loads      hash  node -> how much it was handed out; :homes hash: nodes, whose the hosts are, heavy hosts
--   :claims     hash  node -> seq of its last claim and the ids it got
--   :nodes      zset  node -> last beat (run's clock), :beats hash node -> wall ms \n what it said
--   :dead       hash  id -> body, and :why hash id -> reason \n tries \n wall ms \n node \n error
--   :responses  hash  id of a dead letter -> what was answered last, packed; of so many as :meta says
--   :reasons    hash  reason -> how many requests ended or were dropped for it
--   :left       hash  id -> body of requests that ended while an export read the run, >id -> its
--                     fingerprints in :visits, <fingerprint -> what was in :parked
--   :seen       hash  which requests are seen (under the job when shared): see `seen.lua`
--   :outbox     zset  request for another shard, as one word -> order of arrival; pending like :body
--   :tasks      hash  task -> JSON of each task that has not ended; in shard 0 only
--   :open       zset  id of each pending request of a task, id>order of one in the outbox; all scores 0. The
--                     ids of a task's requests begin with the task and a dot, so one look tells whether any is left
--   :fallen     zset  id of each dead letter of a task, in the same way; :faults hash task -> wall ms \n reason
--                     of its first one
--   :failed_tasks hash task -> JSON of those that have failed, as long as their dead letters are kept
--   :moved      hash  task -> seq when a request of it entered last, and :idle zset task -> seq: those with none
--                     left here; both only in a run of several shards, where none knows of the end
--   :items      set   keys of items that are stored (under the job when shared), :marks hash item -> page,
--                     :failed_items hash and :quality hash: plain values, see `frontier/items.py`
--   :counts     hash  node -> what it has counted, '' -> the sum of nodes that left; see `frontier/totals.py`

local call = redis.call
local SHARD = KEYS[1]
local SEED, HOLD, TASKS_HOST = '@seed', '@hold', '@tasks'
local SHARD_STEP_MS = 1000
local NO_LIMIT = 1000000
local RIVAL_MS = 1000 -- who has asked within this time is taken to want a slot still
local COURTESY_MS = 20
local PRIORITY_STEP = 4294967296

local RUN, META, BODY, QUEUE, READY, DELAYED, DEADLINE, OWNER
local EXPIRED, EMITTED, VISITED, VISITS, PARKED, LEFT, HUNGRY
local LOADS, HOMES, CLAIMS, NODES, BEATS, DEAD, REASONS, OUTBOX
-- The keys that only tasks have, and what is kept beside dead letters; Lua has no more than 200 local names.
local OF_TASKS, OF_DEAD = {}, {}
local SLOTS, NEXT, WAITING = SHARD .. ':slots:', SHARD .. ':next', SHARD .. ':waiting:'
local HOST, PACE = SHARD .. ':host:', SHARD .. ':pace'

local wall, now, host_now -- server's clock; the run's clock; the shard's clock
local state, seq, concurrency, delay, fetch_ms, max_retries, max_deliveries, seen_base
local first_seq, run_step
local shards -- over how many the run is spread; alone, this one knows the end by itself
local reasons, counters = {}, {}
local visiting
local duplicates = 0
local left_tasks = {} -- tasks of which a request has left: this may have been the last
local armed = {} -- hosts that are in the line
-- What `seen.lua` still has to write.
local on_commit
local journal -- an export runs: requests that leave are noted

local function use(base)
  RUN = base
  META, BODY, QUEUE, READY = base .. ':meta', base .. ':body', base .. ':queue:', base .. ':ready'
  DELAYED, DEADLINE, OWNER = base .. ':delayed', base .. ':deadline', base .. ':owner'
  EXPIRED, EMITTED = base .. ':expired', base .. ':emitted'
  VISITED, VISITS, PARKED, LEFT = base .. ':visited', base .. ':visits', base .. ':parked', base .. ':left'
  HUNGRY, LOADS, HOMES = base .. ':hungry', base .. ':loads', base .. ':homes'
  CLAIMS, NODES, BEATS = base .. ':claims', base .. ':nodes', base .. ':beats'
  DEAD, REASONS, OUTBOX = base .. ':dead', base .. ':reasons', base .. ':outbox'
  OF_DEAD = {why = base .. ':why', responses = base .. ':responses'}
  OF_TASKS = {
    all = base .. ':tasks', open = base .. ':open', fallen = base .. ':fallen', faults = base .. ':faults',
    failed = base .. ':failed_tasks', moved = base .. ':moved', idle = base .. ':idle',
  }
end

local function int(number)
  return string.format('%d', number)
end

local function read_wall()
  if ARGV[1] ~= '' then
    wall = tonumber(ARGV[1])
  else
    local time = call('TIME')
    wall = time[1] * 1000 + math.floor(time[2] / 1000)
  end
end

-- Moves a clock by what passed since its last call: never back, and at most one step, so that an
-- outage, NTP or a failover neither expires leases in a mass nor shortens a politeness gap.
local function tick(key, last_wall, log, step)
  local passed = wall - (tonumber(last_wall) or wall)
  if passed < 0 then passed = 0 elseif passed > step then passed = step end
  log = (tonumber(log) or 0) + passed
  call('HSET', key, 'wall', int(wall), 'log', int(log))
  return log
end

-- Reads the run and moves its clocks. Every transition calls it first; nil when the run is gone.
local function begin()
  read_wall()
  local meta = call('HMGET', META, 'state', 'wall', 'log', 'step', 'seq', 'concurrency', 'delay',
    'fetch', 'retries', 'deliveries', 'seen', 'journal', 'shards')
  if not meta[1] then return nil end
  state, seq, concurrency, delay = meta[1], tonumber(meta[5]), tonumber(meta[6]), tonumber(meta[7])
  fetch_ms, max_retries, max_deliveries, seen_base = tonumber(meta[8]), tonumber(meta[9]), tonumber(meta[10]), meta[11]
  journal = meta[12] and tonumber(meta[12]) > wall
  first_seq = seq
  run_step = tonumber(meta[4])
  shards = tonumber(meta[13] or 1)
  now = tick(META, meta[2], meta[3], run_step)
  local shard = call('HMGET', SHARD .. ':clock', 'wall', 'log')
  host_now = tick(SHARD .. ':clock', shard[1], shard[2], SHARD_STEP_MS)
  return true
end

-- Notes what the run wants of its hosts, and that its nodes live: as long as they do, it has a say.
local function speak()
  call('HSET', PACE, RUN, int(delay) .. ' ' .. int(concurrency) .. ' ' .. int(host_now))
end

local function lost_run()
  return redis.error_reply('RUNLOST ' .. tostring(RUN))
end

-- Takes an incarnation, job:run:epoch, out of use: its nodes find it lost from now on.
local function give_up(name)
  local base = SHARD .. ':run:' .. name
  call('SADD', SHARD .. ':garbage', base)
  call('ZREM', SHARD .. ':runs', name)
  call('HDEL', SHARD .. ':pace', base)
  call('HDEL', base .. ':meta', 'state')
end

-- How many keys a part of what is seen has after its own (see `seen.lua`), and how they end.
local function seen_keys(kind, size)
  if kind == 'bloom' then return math.ceil(size / 1024) end
  return size
end

local function seen_key(kind, number)
  if kind ~= 'exact' then return ':' .. int(number) end
  if number == 0 then return ':00000000' end
  local low = 1 -- buckets of `exact` are numbered as they were split off, and named by their range
  while low * 2 <= number do low = low * 2 end
  return ':' .. bit.tohex((2 * (number - low) + 1) / (2 * low) * 4294967296)
end

local function count(reason, n)
  reasons[reason] = (reasons[reason] or 0) + (n or 1)
end

local function bump(counter, n)
  counters[counter] = (counters[counter] or 0) + (n or 1)
end

local function away()
  return shards > 1 and call('ZCARD', OUTBOX) or 0
end

local function mark_done()
  state = 'done'
  call('HSET', META, 'state', 'done', 'finished', int(wall))
end

-- Marks the run done when nothing is pending. The truth is the set of bodies, not a counter. One shard
-- of several cannot know: there it is marked by `close`.
local function finish()
  if shards == 1 and state == 'running' and call('HLEN', BODY) == 0 then mark_done() end
end

local function reopen()
  if state == 'done' then
    state = 'running'
    call('HSET', META, 'state', 'running', 'finished', '0')
  end
end

local function pack_body(host, priority, retries, payload)
  return host .. '\n' .. int(priority) .. '\n' .. int(retries) .. '\n' .. payload
end

local function unpack_body(body)
  local host, priority, retries, rest = string.match(body, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n()')
  return host, tonumber(priority), tonumber(retries), string.sub(body, rest)
end

local function enqueue(id, host, priority)
  seq = seq + 1
  call('ZADD', QUEUE .. host, priority * PRIORITY_STEP + seq, id)
  if not armed[host] then
    call('ZADD', READY, 'NX', host_now, host)
    armed[host] = true
  end
end

-- The task that a request belongs to; nil for a request of none.
local function task_of(id)
  local dot = string.find(id, '.', 1, true)
  return dot and string.sub(id, 1, dot - 1)
end

-- Notes that a request of a task is pending, or (`mark`) on its way. Stands before it is: a torn write may
-- keep a task open, which a repair finds, but never end one too soon.
local function attach(id, mark)
  local task = task_of(id)
  if not task then return end
  call('ZADD', OF_TASKS.open, 0, mark or id)
  if shards > 1 then call('HSET', OF_TASKS.moved, task, int(seq + 1)) end
end

-- Notes that a request of a task has left. Stands behind it.
local function detach(id, mark)
  local task = task_of(id)
  if not task then return end
  call('ZREM', OF_TASKS.open, mark or id)
  if left_tasks[task] then return end
  left_tasks[task] = true
  left_tasks[#left_tasks + 1] = task
end

-- Whether an index has a request of the task: '/' is what comes after the dot.
local function has_any(index, task)
  return #call('ZRANGEBYLEX', index, '[' .. task .. '.', '(' .. task .. '/', 'LIMIT', 0, 1) > 0
end

-- Ends a task that has nothing left anywhere: '' is well. If the spider wants to be told, that is pending
-- before the task leaves; what it was to be told of it before, and was not, is void.
local function end_task(task, reason)
  local payload = call('HGET', OF_TASKS.all, task)
  if not payload then
    if reason == '' then call('HDEL', OF_TASKS.failed, task) end
    return
  end
  count(reason == '' and 'task_done' or 'task_failed')
  if string.find(call('HGET', META, 'tells') or '', reason == '' and 'done' or 'failed', 1, true) then
    local id, priority = task .. '@end', 0
    if call('HEXISTS', BODY, id) == 1 then
      call('HDEL', OWNER, id)
      call('ZREM', DEADLINE, id)
      call('ZREM', DELAYED, id)
    end
    call('HSET', BODY, id, pack_body(TASKS_HOST, priority, 0, reason .. '\n' .. payload))
    enqueue(id, TASKS_HOST, priority)
  end
  if reason ~= '' then call('HSET', OF_TASKS.failed, task, payload) end
  call('HDEL', OF_TASKS.all, task)
end

-- Ends the tasks that have nothing left. Of several shards none knows: there they are noted for those who look.
local function end_tasks()
  for _, task in ipairs(left_tasks) do
    local is_open = has_any(OF_TASKS.open, task)
    if not is_open and shards > 1 then
      call('ZADD', OF_TASKS.idle, int(seq), task)
    elseif not is_open then
      end_task(task, string.match(call('HGET', OF_TASKS.faults, task) or '', '\n(.*)$') or '')
    end
  end
end

-- Writes what the transition counted, and ends the run if it is over. Every transition ends with it.
local function commit()
  end_tasks()
  if seq ~= first_seq then call('HSET', META, 'seq', int(seq)) end
  if duplicates > 0 then count('duplicate_request', duplicates) end
  for reason, n in pairs(reasons) do call('HINCRBY', REASONS, reason, n) end
  for counter, n in pairs(counters) do call('HINCRBY', META, counter, n) end
  if on_commit then on_commit() end
  finish()
  -- The server collects Lua's garbage at every 50th script, which waits for that of all 50: a step each
  -- time costs the same in all, and halves the time of the slowest.
  collectgarbage('step', 1)
end

-- Whether redirects have taken pages: only then is there anything to look up.
local function is_visiting()
  if visiting == nil then visiting = call('EXISTS', VISITED, VISITS) > 0 end
  return visiting
end

-- The fate of a request whose redirects took pages: they are its own when it has ended well; when
-- it died, what was parked enters, and the rest is free for whoever asks first. Stands before the
-- request leaves the pending ones.
local function end_visits(id, died)
  local members = is_visiting() and call('HGET', VISITS, id)
  if not members then return end
  for member in string.gmatch(members, '%S+') do
    local link, body = string.match(call('HGET', PARKED, member) or '', '^([^\n]*)\n(.*)$')
    if link and died and call('HEXISTS', BODY, link) == 0 then
      local host, priority = unpack_body(body)
      attach(link)
      call('HSET', BODY, link, body)
      enqueue(link, host, priority)
    end
    if link or not died then call('HDEL', VISITED, member) end
    if link then
      if journal then call('HSET', LEFT, '<' .. member, link .. '\n' .. body) end
      call('HDEL', PARKED, member)
    end
  end
  if journal then call('HSET', LEFT, '>' .. id, members) end
  call('HDEL', VISITS, id)
end

local function owns(id, token)
  return call('HGET', OWNER, id) == token
end

-- Gives a politeness slot back and tells the runs that wait for the host when it is allowed again.
local function free_slot(id, token, host)
  if call('ZREM', SLOTS .. host, RUN .. ' ' .. id .. ' ' .. token) == 0 then return end
  local runs = call('ZRANGE', WAITING .. host, 0, -1)
  if #runs == 0 then return end
  local at = math.max(host_now, tonumber(call('ZSCORE', NEXT, host)) or 0)
  for _, run in ipairs(runs) do call('ZADD', run .. ':ready', 'XX', at, host) end
end

-- Whether the host is one that is fetched with gaps, whoever asks for them.
local function has_gap(host)
  if delay > 0 then return true end
  local v = call('HMGET', HOST .. host, 'limit', 'crawl', 'ceiling', 'auto')
  if v[1] or v[2] or v[3] or v[4] or call('HEXISTS', SHARD .. ':tuned', host) == 1 then return true end
  local rules = call('HGETALL', PACE)
  for i = 1, #rules, 2 do
    local asks = string.sub(rules[i + 1], 1, 2) ~= '0 '
    if asks and call('EXISTS', rules[i] .. ':queue:' .. host) == 1 then return true end
  end
  return false
end

local function unlease(id)
  call('HDEL', OWNER, id)
  call('ZREM', DEADLINE, id)
end

-- Keeps a request as a dead letter, and what was answered last as long as there is room for it. It leaves
-- the pending ones only after that.
local function bury(id, body, tries, reason, text, token, response)
  local task = task_of(id)
  if task then
    call('ZADD', OF_TASKS.fallen, 0, id)
    call('HSETNX', OF_TASKS.faults, task, int(wall) .. '\n' .. reason)
  end
  call('HDEL', OF_DEAD.responses, id)
  local node = string.match(token or '', '^(.*):') or ''
  call('HSET', OF_DEAD.why, id, reason .. '\n' .. int(tries) .. '\n' .. int(wall) .. '\n' .. node .. '\n' .. text)
  call('HSET', DEAD, id, body)
  local room = response and response ~= '' and tonumber(call('HGET', META, 'responses') or 0)
  if room and call('HLEN', OF_DEAD.responses) < room then
    call('HSET', OF_DEAD.responses, id, response)
  end
  count(reason)
end

local function forget(id)
  if journal then call('HSET', LEFT, id, call('HGET', BODY, id) or '') end
  call('HDEL', BODY, id)
  call('HDEL', EXPIRED, id)
  detach(id)
end

-- Returns what is due: leases that ran out, and retries whose time has come. At most `limit` of each.
local function reap(limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', DEADLINE, '-inf', now, 'LIMIT', 0, limit)) do
    local body, token = call('HGET', BODY, id), call('HGET', OWNER, id)
    unlease(id)
    bump('reaped')
    if body and id ~= SEED then
      local host, priority, retries = unpack_body(body)
      -- Of a host with a gap the slot stays in quarantine until the fetch must have ended: the node
      -- that lost the lease may be slow, not dead.
      if token and not has_gap(host) then free_slot(id, token, host) end
      local deliveries = call('HINCRBY', EXPIRED, id, 1)
      if deliveries >= max_deliveries then
        local text = 'handed out ' .. int(deliveries) .. ' times, never answered'
        bury(id, body, retries + deliveries, 'poison', text, token)
        end_visits(id, true)
        forget(id)
      else
        enqueue(id, host, priority)
      end
    end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, limit)) do
    local body = call('HGET', BODY, id)
    if body then
      local host, priority = unpack_body(body)
      enqueue(id, host, priority)
    end
    call('ZREM', DELAYED, id)
  end
end
