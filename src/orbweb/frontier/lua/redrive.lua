-- redrive: dead letters return to their queues with a fresh count of retries; or are dropped.
--
-- ARGV  1 time, 2 what (retry, drop), then ids
-- Returns  how many were found

if not begin() then return lost_run() end

-- A dead letter of a task is none any more, which may end it. A request of the same name may be pending.
local function absolve(id)
  local task = task_of(id)
  if not task then return end
  call('ZREM', OF_TASKS.fallen, id)
  if not has_any(OF_TASKS.fallen, task) then call('HDEL', OF_TASKS.faults, task) end
  detach(task .. '.')
end

local function remove(id)
  call('HDEL', OF_DEAD.responses, id)
  call('HDEL', DEAD, id)
  call('HDEL', OF_DEAD.why, id)
end

-- A task that has failed is open again; what was told of it is void.
local function revive(task)
  local payload = task and call('HGET', OF_TASKS.failed, task)
  if not payload then return end
  call('HSET', OF_TASKS.all, task, payload)
  call('HDEL', OF_TASKS.failed, task)
  remove(task .. '@end')
  detach(task .. '.')
end

local found = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local body = call('HGET', DEAD, id)
  -- Of several shards another may have the dead letter; this one is asked first.
  if ARGV[2] == 'retry' and (body or shards > 1) then revive(task_of(id)) end
  if body then
    found = found + 1
    absolve(id)
    if ARGV[2] == 'drop' then
      count('cancelled')
    elseif call('HEXISTS', BODY, id) == 0 then
      local host, priority, _, payload = unpack_body(body)
      attach(id)
      call('HSET', BODY, id, pack_body(host, priority, 0, payload))
      enqueue(id, host, priority)
      reopen()
    end
    remove(id)
  end
end
commit()
return found
