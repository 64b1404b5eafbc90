-- seen_forget: let requests enter again that count as seen.
--
-- KEYS  1 shard tag, 2 what is seen
-- ARGV  1 time, 2 what (url, host, older), 3 fingerprint, host or age in ms, 4 host of the url
-- Returns  url: 1 it counted as seen, 0 it did not, -1 this kind cannot forget one; host: how often it
--          was forgotten; older: how many requests were

read_wall()
seen_base = KEYS[2]
seen_open()

local function forget_url()
  local found = 0
  read_member(ARGV[3], ARGV[4])
  table.insert(older, 1, newest)
  for _, part in ipairs(older) do
    local dropped = seen_drop(part, mark)
    if dropped == nil then return -1 end
    if dropped then
      found, part.count = 1, part.count - 1
      if part ~= newest then
        local record = call('HGET', seen_base .. ':parts', int(part.number))
        call('HSET', seen_base .. ':parts', int(part.number), (string.gsub(record, '^%d+', int(part.count))))
      end
    end
  end
  if SEEN_ERRS and call('SREM', seen_base .. ':sure', mark) == 1 then found = 1 end
  on_commit()
  return found
end

-- A part is older than the moment in which the next one began; so is what comes before an old part,
-- whatever the clock said then.
local function forget_older(age)
  local forgotten, begun, old = 0, newest.begun, false
  local kind = call('HGET', seen_base, 'kind')
  for _, part in ipairs(older) do
    if old or wall - begun >= age then
      if not old then call('HSET', seen_base, 'first', int(part.number + 1)) end
      old = true
      call('SADD', SHARD .. ':garbage', part.key .. ' ' .. int(seen_keys(kind, part.size)) .. ' ' .. kind)
      call('HDEL', seen_base .. ':parts', int(part.number))
      forgotten = forgotten + part.count
    end
    begun = part.begun
  end
  return forgotten
end

if ARGV[2] == 'url' then return forget_url() end
if ARGV[2] == 'older' then return forget_older(tonumber(ARGV[3])) end
call('HSET', seen_base, 'hosts', '1')
return call('HINCRBY', seen_base .. ':hosts', ARGV[3], 1)
