-- open_tasks: a page of the tasks that have not ended, or whose end was not told yet. Changes nothing.
--
-- ARGV  1 time (not looked at), 2 part (tasks, body, dead), 3 cursor
-- Returns  next cursor, then pairs: task, its JSON; of `body` and `dead` the pseudo-requests at tasks' ends

if call('HEXISTS', META, 'state') == 0 then return lost_run() end
local keys = {tasks = OF_TASKS.all, body = BODY, dead = DEAD}
local page = call('HSCAN', keys[ARGV[2]], ARGV[3], 'COUNT', 250)
local answer, found = {page[1]}, page[2]
for i = 1, #found, 2 do
  local task, value = found[i], found[i + 1]
  if ARGV[2] ~= 'tasks' then
    task = string.match(task, '^(.*)@end$')
    if task then
      local _, _, _, payload = unpack_body(value)
      value = string.match(payload, '\n(.*)$')
    end
  end
  if task then
    answer[#answer + 1] = task
    answer[#answer + 1] = value
  end
end
return answer
