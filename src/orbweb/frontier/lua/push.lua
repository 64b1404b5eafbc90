-- push: how requests enter: what was seen is dropped, what lies in another shard goes to the outbox.
-- Stands, behind `seen.lua`, in front of the transitions that let requests in.

-- The id of a request as one of the owner's task. A page belongs to the task that took it first: the
-- other one is not kept open for it, and may have ended when the link enters.
local function adopted(id, owner)
  return (string.match(owner, '^[^.]*%.') or '') .. string.match(id, '[^.]*$')
end

-- Whether a page that is seen may enter all the same. One that a redirect has taken waits for the
-- fate of the redirected request: the first link to it is parked while that one is pending, and
-- enters when it has died.
local function is_free(id, host, priority, member, payload)
  local owner = call('HGET', VISITED, member)
  if not owner then return false end
  if call('HEXISTS', BODY, owner) == 1 then
    if host ~= TASKS_HOST then id = adopted(id, owner) end
    call('HSETNX', PARKED, member, id .. '\n' .. pack_body(host, priority, 0, payload))
    return false
  end
  call('HDEL', VISITED, member)
  return true
end

-- Whether a task is open, or its end was not told yet.
local function is_known(task)
  return call('HEXISTS', OF_TASKS.all, task) == 1 or call('HEXISTS', BODY, task .. '@end') == 1
end

-- Deduplicates and enqueues: 1 when the request is new. 'seen' is written last: a torn write may
-- repeat a URL, never forget one.
local function push(id, host, priority, member, payload)
  local seen = member ~= '' and is_seen(member, host)
  if seen and is_visiting() and is_free(id, host, priority, plain(member), payload) then seen = false end
  if seen or call('HEXISTS', BODY, id) == 1 or (host == TASKS_HOST and is_known(task_of(id))) then
    duplicates = duplicates + 1
    return 0
  end
  attach(id)
  call('HSET', BODY, id, pack_body(host, priority, 0, payload))
  if host == TASKS_HOST then call('HSET', OF_TASKS.all, task_of(id), payload) end
  enqueue(id, host, priority)
  if member ~= '' then remember(member, host) end
  return 1
end

-- Pushes the requests that stand in ARGV from `first`, five words each: id, host, priority,
-- fingerprint ('' = not deduplicated), payload. Returns how many were new.
local function push_argv(first, how_many)
  local added = 0
  for i = first, first + (how_many - 1) * 5, 5 do
    added = added + push(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4])
  end
  return added
end

-- Notes that a request of a task is on its way.
local function attach_row(row, order)
  local id = string.match(row, '^[^\n]*\n([^\n]*)')
  attach(id, id .. '>' .. int(order))
end

-- Puts requests of other shards, which stand in ARGV from `first` as one word each, into the outbox.
-- Returns how many were not there.
local function send_argv(first, how_many)
  local sent = 0
  for i = first, first + how_many - 1 do
    local row = ARGV[i]
    if not call('ZSCORE', OUTBOX, row) then
      attach_row(row, seq + 1)
      call('ZADD', OUTBOX, seq + 1, row)
      seq = seq + 1
      sent = sent + 1
    end
  end
  return sent
end
