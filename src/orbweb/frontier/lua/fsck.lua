-- fsck: repair, piece by piece, what a torn write or a rollback may have left. Changes nothing in a
-- sound state, so it may run at any time beside the other transitions.
--
-- ARGV  1 time, 2 name of the check: all who give the same one share its pieces
-- Returns  whether pieces are left (0/1), repairs made

if not begin() then return lost_run() end
local check = call('HMGET', META, 'check', 'check_part', 'check_cursor')
local part, cursor = 'body', '0'
if check[1] == ARGV[2] then part, cursor = check[2], check[3] end
if part == 'end' then return {0, 0} end
local fixed = 0

local function fix()
  fixed = fixed + 1
end

local function scan(command, key)
  local answer = call(command, key, cursor, 'COUNT', 200)
  cursor = answer[1]
  return answer[2]
end

-- Every pending request stands in exactly one place: leased, delayed or queued.
local function place(id, body)
  if id == SEED or id == HOLD then return end
  local host, priority = unpack_body(body)
  local queued = call('ZSCORE', QUEUE .. host, id)
  if call('HEXISTS', OWNER, id) == 1 then
    if queued then call('ZREM', QUEUE .. host, id) fix() end
    if not call('ZSCORE', DEADLINE, id) then call('ZADD', DEADLINE, now, id) fix() end
    if call('ZREM', DELAYED, id) == 1 then fix() end
  elseif call('ZSCORE', DELAYED, id) then
    if queued then call('ZREM', QUEUE .. host, id) fix() end
  elseif not queued then
    enqueue(id, host, priority)
    fix()
  elseif call('ZADD', READY, 'NX', host_now, host) == 1 then
    fix()
  end
end

-- Looks at the head of a queue only: what stands further back without a body is passed over by the
-- claim that comes to it.
local function trim_queue(host)
  for _, id in ipairs(call('ZRANGE', QUEUE .. host, 0, 199)) do
    if call('HEXISTS', BODY, id) == 0 then call('ZREM', QUEUE .. host, id) fix() end
  end
  if call('EXISTS', QUEUE .. host) == 0 and call('ZREM', READY, host) == 1 then fix() end
end

-- What is known of tasks follows from what is pending and what is dead.
local function place_in_index(id, body)
  local task = task_of(id)
  if not task then return end
  if not call('ZSCORE', OF_TASKS.open, id) then
    attach(id)
    fix()
  end
  local host, _, _, payload = unpack_body(body)
  if host == TASKS_HOST and call('HSETNX', OF_TASKS.all, task, payload) == 1 then fix() end
end

local function leave_index(mark)
  local id, order = string.match(mark, '^(.*)>(%d+)$')
  if order then
    if #call('ZRANGEBYSCORE', OUTBOX, order, order) > 0 then return end
  elseif call('HEXISTS', BODY, mark) == 1 then
    return
  end
  detach(id or mark, mark)
  fix()
end

local function index_dead(id, why)
  local task = task_of(id)
  if not task or call('ZSCORE', OF_TASKS.fallen, id) then return end
  local reason, at = string.match(why, '^([^\n]*)\n[^\n]*\n(%d+)')
  call('ZADD', OF_TASKS.fallen, 0, id)
  call('HSETNX', OF_TASKS.faults, task, at .. '\n' .. reason)
  fix()
end

-- Of several shards this one cannot know whether anything is left elsewhere: it has the task looked at.
local function end_forgotten(task)
  if has_any(OF_TASKS.open, task) or call('ZSCORE', OF_TASKS.idle, task) then return end
  detach(task .. '.')
  if shards == 1 then fix() end
end

local following = {
  body = 'owner', owner = 'deadline', deadline = 'delayed', delayed = 'why', why = 'ready', ready = 'outbox',
  outbox = 'open', open = 'fallen', fallen = 'faults', faults = 'tasks', tasks = 'end',
}
if part == 'body' then
  local page = scan('HSCAN', BODY)
  for i = 1, #page, 2 do
    place(page[i], page[i + 1])
    place_in_index(page[i], page[i + 1])
  end
elseif part == 'owner' then
  local page = scan('HSCAN', OWNER)
  for i = 1, #page, 2 do
    if call('HEXISTS', BODY, page[i]) == 0 then
      unlease(page[i])
      fix()
    elseif not call('ZSCORE', DEADLINE, page[i]) then
      call('ZADD', DEADLINE, now, page[i])
      fix()
    end
  end
elseif part == 'deadline' then
  local page = scan('ZSCAN', DEADLINE)
  for i = 1, #page, 2 do
    if call('HEXISTS', OWNER, page[i]) == 0 then call('ZREM', DEADLINE, page[i]) fix() end
  end
elseif part == 'delayed' then
  local page = scan('ZSCAN', DELAYED)
  for i = 1, #page, 2 do
    if call('HEXISTS', BODY, page[i]) == 0 then call('ZREM', DELAYED, page[i]) fix() end
  end
elseif part == 'why' then
  local page = scan('HSCAN', OF_DEAD.why)
  for i = 1, #page, 2 do
    if call('HEXISTS', DEAD, page[i]) == 0 then
      call('HDEL', OF_DEAD.why, page[i])
      fix()
    else
      index_dead(page[i], page[i + 1])
    end
  end
elseif part == 'ready' then
  local page = scan('ZSCAN', READY)
  for i = 1, #page, 2 do trim_queue(page[i]) end
elseif part == 'outbox' then
  local page = scan('ZSCAN', OUTBOX)
  for i = 1, #page, 2 do
    local id, order = string.match(page[i], '^[^\n]*\n([^\n]*)'), int(tonumber(page[i + 1]))
    if task_of(id) and not call('ZSCORE', OF_TASKS.open, id .. '>' .. order) then
      attach(id, id .. '>' .. order)
      fix()
    end
  end
elseif part == 'open' then
  local page = scan('ZSCAN', OF_TASKS.open)
  for i = 1, #page, 2 do leave_index(page[i]) end
elseif part == 'fallen' then
  local page = scan('ZSCAN', OF_TASKS.fallen)
  for i = 1, #page, 2 do
    if call('HEXISTS', DEAD, page[i]) == 0 then call('ZREM', OF_TASKS.fallen, page[i]) fix() end
  end
elseif part == 'faults' then
  local page = scan('HSCAN', OF_TASKS.faults)
  for i = 1, #page, 2 do
    if not has_any(OF_TASKS.fallen, page[i]) then call('HDEL', OF_TASKS.faults, page[i]) fix() end
  end
elseif part == 'tasks' then
  local page = scan('HSCAN', OF_TASKS.all)
  for i = 1, #page, 2 do end_forgotten(page[i]) end
end
if cursor == '0' then part = following[part] end
end_tasks()
if part == 'end' and state == 'done' and call('HLEN', BODY) + away() + call('HLEN', OF_TASKS.all) > 0 then
  reopen()
  fix()
end
if fixed > 0 then bump('repaired', fixed) end
call('HSET', META, 'check', ARGV[2], 'check_part', part, 'check_cursor', cursor)
commit()
return {part == 'end' and 0 or 1, fixed}
