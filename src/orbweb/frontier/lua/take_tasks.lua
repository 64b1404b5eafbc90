-- take_tasks: the first tasks of a list enter and the cursor moves, in one step.
--
-- ARGV  1 time, 2 token, 3 batch number (from 1), 4 final if the list is empty (0/1), 5 how many at most,
--       6 key of the list, after the shard tag
-- Returns  code (ok, duplicate, gap, stale), batches that are in, how many tasks the list had

if not begin() then return lost_run() end
local batch = tonumber(ARGV[3])
local refused = refusal(ARGV[2], batch)
if refused then return refused end
local list = SHARD .. ':waiting_tasks:' .. ARGV[6]
local TASK_PRIORITY = 300
local rows = call('LRANGE', list, 0, tonumber(ARGV[5]) - 1)
for _, row in ipairs(rows) do
  local task, payload = string.match(row, '^(%S+) (.*)$')
  push(task .. '.task', TASKS_HOST, TASK_PRIORITY, '', payload)
end
-- Only now: a torn write may take a task twice, never lose one.
if #rows > 0 then call('LTRIM', list, #rows, -1) end
return take_in(batch, ARGV[4] == '1' and #rows == 0, #rows)
