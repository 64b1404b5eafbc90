-- redrive: dead letters return to their queues with a fresh count of retries; or are dropped.
--
-- ARGV  1 time, 2 what (retry, drop), then ids
-- Returns  how many were found

if not begin() then return lost_run() end
local found = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local body = call('HGET', DEAD, id)
  if body then
    found = found + 1
    if ARGV[2] == 'drop' then
      count('cancelled')
    elseif call('HEXISTS', BODY, id) == 0 then
      local host, priority, _, payload = unpack_body(body)
      call('HSET', BODY, id, pack_body(host, priority, 0, payload))
      enqueue(id, host, priority)
      reopen()
    end
    call('HDEL', DEAD, id)
    call('HDEL', WHY, id)
  end
end
commit()
return found
