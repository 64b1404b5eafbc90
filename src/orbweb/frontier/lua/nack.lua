-- nack: give requests back that the caller still holds.
--
-- ARGV  1 time, then for each request: id, token, backoff ms, kind (0 clean release, 1 counted
--       retry, 2 dead letter at once), reason, error, payload ('' = keep the stored one)
-- Returns  one code a request: 0 lease lost, 1 queued again, 2 dead letter

if not begin() then return lost_run() end
local answer = {}
for i = 2, #ARGV, 7 do
  local id, token, backoff, kind = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local body = owns(id, token) and call('HGET', BODY, id)
  if body and id == SEED then -- the seeding is given back: whoever asks next takes it
    unlease(id)
    answer[#answer + 1] = 1
  elseif not body then
    bump('fenced')
    answer[#answer + 1] = 0
  else
    local host, priority, retries, payload = unpack_body(body)
    if ARGV[i + 6] ~= '' then payload = ARGV[i + 6] end
    if kind ~= '0' then
      retries = retries + 1
      call('HDEL', EXPIRED, id)
    end
    body = pack_body(host, priority, retries, payload)
    if kind == '2' or (kind == '1' and retries > max_retries) then
      bury(id, body, retries, ARGV[i + 4], ARGV[i + 5], token)
      end_visits(id, true)
      forget(id)
      unlease(id)
      answer[#answer + 1] = 2
    else
      if kind ~= '0' then bump('retried') end
      call('HSET', BODY, id, body)
      unlease(id)
      if backoff > 0 then call('ZADD', DELAYED, now + backoff, id) else enqueue(id, host, priority) end
      answer[#answer + 1] = 1
    end
    free_slot(id, token, host)
  end
end
commit()
return answer
