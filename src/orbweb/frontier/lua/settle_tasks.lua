-- settle_tasks: what came of looking at tasks in all shards.
--
-- ARGV  1 time, then for each: task, seq that was seen ('' = not known), what came of it (over, and here it
--       ends; gone, it has ended; open, something is left elsewhere), reason ('' = it is done)
-- Returns  for each whether it was done (0/1): not when a request of it has entered here since

if not begin() then return lost_run() end
local answer = {}
for i = 2, #ARGV, 4 do
  local task, verdict = ARGV[i], ARGV[i + 2]
  local still = not has_any(OF_TASKS.open, task) and (call('HGET', OF_TASKS.moved, task) or '') == ARGV[i + 1]
  if still then
    if verdict == 'over' then end_task(task, ARGV[i + 3]) end
    call('ZREM', OF_TASKS.idle, task)
    if verdict ~= 'open' then call('HDEL', OF_TASKS.moved, task) end
  end
  answer[#answer + 1] = still and 1 or 0
end
commit()
return answer
