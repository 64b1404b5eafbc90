-- ack: finish requests that the caller still holds; their children enter in the same step.
--
-- ARGV  1 time, then for each request: id, token, reason, items, error ('' = none; else it is also
--       kept as a dead letter), number of children, number of other fingerprints that are seen now
--       (targets of redirects), five words a child (see push_argv), and those fingerprints
-- Returns  one flag a request: 1 finished, 0 lease lost (nothing of it was done)

if not begin() then return lost_run() end
local answer = {}
local i = 2
while i <= #ARGV do
  local id, token, reason, items, text = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local children, also = tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
  local after = i + 7 + children * 5
  local body = owns(id, token) and call('HGET', BODY, id)
  if body then
    push_argv(i + 7, children)
    local host, _, retries = unpack_body(body)
    if text ~= '' then
      bury(id, body, retries + 1, reason, text)
    else
      count(reason)
    end
    forget(id)
    unlease(id)
    free_slot(id, token, host)
    for j = after, after + also - 1 do remember(ARGV[j]) end
    if items > 0 then bump('items', items) end
    answer[#answer + 1] = 1
  else
    bump('fenced')
    answer[#answer + 1] = 0
  end
  i = after + also
end
commit()
return answer
