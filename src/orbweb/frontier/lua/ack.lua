-- ack: finish requests that the caller still holds; their children enter in the same step.
--
-- ARGV  1 time, then for each request: id, token, reason, items, error ('' = none; else it is also
--       kept as a dead letter), what was answered then ('' = nothing is kept of it), steps in which it
--       emitted children before, and how many follow of: children (five words each, see push_argv), children
--       of other shards (see send_argv), pairs of reason and number of links not taken
-- Returns  one flag a request: 1 finished, 0 lease lost, or the store has forgotten children that
--          were emitted (nothing of it was done)

if not begin() then return lost_run() end

local function body_of(id, token, emitted)
  if not owns(id, token) then return nil end
  if emitted ~= '0' and call('HGET', EMITTED, id) ~= token .. ' ' .. emitted then return nil end
  return call('HGET', BODY, id)
end

local answer = {}
local i = 2
while i <= #ARGV do
  local id, token, reason, items, text = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local emitted = ARGV[i + 6]
  local children, others, skipped = tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8]), tonumber(ARGV[i + 9])
  local first_other = i + 10 + children * 5
  local first_skipped = first_other + others
  local body = body_of(id, token, emitted)
  if body then
    push_argv(i + 10, children)
    send_argv(first_other, others)
    local host, _, retries = unpack_body(body)
    if text ~= '' then
      bury(id, body, retries + 1, reason, text, token, ARGV[i + 5])
    else
      count(reason)
    end
    end_visits(id, text ~= '')
    forget(id)
    unlease(id)
    free_slot(id, token, host)
    if emitted ~= '0' then call('HDEL', EMITTED, id) end
    for j = first_skipped, first_skipped + skipped * 2 - 1, 2 do count(ARGV[j], tonumber(ARGV[j + 1])) end
    if items > 0 then bump('items', items) end
    answer[#answer + 1] = 1
  else
    bump('fenced')
    answer[#answer + 1] = 0
  end
  i = first_skipped + skipped * 2
end
commit()
return answer
