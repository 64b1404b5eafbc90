-- look_at_tasks: whether tasks have anything left in this of several shards. Changes nothing.
--
-- ARGV  1 time (not looked at), then tasks
-- Returns  for each: open (0/1), seq when a request of it entered last ('' = not known), its first dead letter
--          (see :faults; '' = none), what the shard has of the task itself (living, failed, '')

if call('HEXISTS', META, 'state') == 0 then return lost_run() end
local answer = {}
for i = 2, #ARGV do
  local task = ARGV[i]
  local kept = ''
  if call('HEXISTS', OF_TASKS.all, task) == 1 then
    kept = 'living'
  elseif call('HEXISTS', OF_TASKS.failed, task) == 1 then
    kept = 'failed'
  end
  answer[#answer + 1] = has_any(OF_TASKS.open, task) and 1 or 0
  answer[#answer + 1] = call('HGET', OF_TASKS.moved, task) or ''
  answer[#answer + 1] = call('HGET', OF_TASKS.faults, task) or ''
  answer[#answer + 1] = kept
end
return answer
