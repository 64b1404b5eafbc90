-- seen: which requests were taken before. Stands in front of the transitions that push, behind the
-- file of the kind (`seen_exact.lua` and so on) that the run's requests are remembered in.
--
-- What is seen lies in parts: what is new goes into the last one, what is looked for may be in any.
-- A part begins when the last one is full (compact, bloom) or old (the setting DEDUP_GENERATION),
-- and old ones can be forgotten as a whole.
--
--   :seen        hash  kind, plan and age of the whole, `first` and `part`: numbers of the first and
--                      the last part; of the last part count, size, capacity (0 = no end), layer,
--                      begun (wall ms); `hosts` when hosts were forgotten; `warned`, `full`: alerts
--   :seen:parts  hash  number of an older part -> its count, size, capacity, layer, begun
--   :seen:N      what part N holds, and keys with this as their beginning: the kind's own business
--   :seen:sure   set   requests that no error of an inexact kind may drop (`dedup="exact"`)
--   :seen:hosts  hash  host -> how often it was forgotten
--
-- The file of a kind defines: SEEN_ERRS, whether it can take a new request for a seen one; and of a
-- part seen_has, seen_put (false when it was in), seen_drop (true when it was in; nil: this kind
-- cannot forget one), seen_shape(part, full): size, capacity and layer of the part that follows it
-- because it is full or old, nil when none may; seen_make: makes an empty part.

local known = {} -- fingerprints that were found or remembered in this call
local newest, older, salted
local simple -- one part of a kind that does not err, no host forgotten: a fingerprint is its own mark
local first_count

local function seen_part(number, held, size, capacity, layer, begun)
  return {
    number = tonumber(number), key = seen_base .. ':' .. number, count = tonumber(held), size = tonumber(size),
    capacity = tonumber(capacity), layer = tonumber(layer), begun = tonumber(begun),
  }
end

-- Begins the part that follows the last. What is torn off leaves a record that is written again.
local function next_part(full)
  local size, capacity, layer = seen_shape(newest, full)
  if not size then return end
  local part = seen_part(int(newest.number + 1), 0, size, capacity, layer, wall)
  seen_make(part)
  call('HSET', seen_base .. ':parts', int(newest.number), table.concat({
    int(newest.count), int(newest.size), int(newest.capacity), int(newest.layer), int(newest.begun)}, ' '))
  call('HSET', seen_base, 'part', int(part.number), 'count', '0', 'size', int(size), 'capacity', int(capacity),
    'layer', int(layer), 'begun', int(wall))
  table.insert(older, 1, newest)
  newest, first_count = part, 0
end

-- Reads which parts there are; the age that a generation has, nil when what was seen was reset.
local function seen_read()
  local v = call('HMGET', seen_base, 'part', 'count', 'size', 'capacity', 'layer', 'begun', 'first', 'age', 'hosts')
  if not v[1] then return nil end
  newest = seen_part(v[1], v[2], v[3], v[4], v[5], v[6])
  first_count, older, salted = newest.count, {}, v[9]
  for number = newest.number - 1, tonumber(v[7]), -1 do -- some layers, and the generations that are kept
    local record = call('HGET', seen_base .. ':parts', int(number))
    older[#older + 1] = seen_part(int(number), string.match(record, '(%d+) (%d+) (%d+) (%d+) (%d+)'))
  end
  return tonumber(v[8])
end

local function seen_open()
  local age = seen_read()
  if not age then error('RUNLOST what the job has seen was reset') end
  if age > 0 and wall - newest.begun >= age then
    if newest.count > 0 then
      next_part(false)
    else -- a generation begins when there is something in it
      newest.begun = wall
      call('HSET', seen_base, 'begun', int(wall))
    end
  end
  simple = not (SEEN_ERRS or salted or older[1])
end

on_commit = function()
  if newest and newest.count ~= first_count then call('HSET', seen_base, 'count', int(newest.count)) end
end

-- The number that stands for a request of a host that was forgotten: another one each time, so that
-- nothing that was remembered before fits it.
local function after_forgetting(mark, times)
  local hex = redis.sha1hex(times .. ' ' .. mark)
  local sign = string.sub(hex, 1, 1) < '8' and '-' or ''
  local high = tonumber(string.sub(hex, 2, 11), 16) % 9223372035 + 1
  return string.format('%s%d%09d', sign, high, tonumber(string.sub(hex, 12, 21), 16) % 1000000000)
end

-- The fingerprint of a member: one that no error of the kind may drop begins with '='.
local function plain(member)
  return SEEN_ERRS and string.byte(member) == 61 and string.sub(member, 2) or member
end

local read, mark, sure -- the member that was read last, its mark, and whether no error may drop it

local function read_member(member, host)
  if member == read then return end
  read, mark = member, plain(member)
  sure = mark ~= member
  local times = salted and call('HGET', seen_base .. ':hosts', host)
  if times then mark = after_forgetting(mark, times) end
end

local function look_up(member, host)
  read_member(member, host)
  if sure then return call('SISMEMBER', seen_base .. ':sure', mark) == 1 end
  if seen_has(newest, mark) then return true end
  for i = 1, #older do
    if seen_has(older[i], mark) then return true end
  end
  return false
end

-- Links repeat within a call, above all those of a site's menu: each is looked up once.
local function is_seen(member, host)
  if known[member] then return true end
  if not newest then seen_open() end
  local seen
  if simple then seen = seen_has(newest, member) else seen = look_up(member, host) end
  if seen then known[member] = true end
  return seen
end

-- Remembers a request that was looked up before in this call.
local function remember(member, host)
  if known[member] then return end
  known[member] = true
  if simple then read, mark = member, member else read_member(member, host) end
  if newest.capacity > 0 and newest.count >= newest.capacity then next_part(true) end
  if seen_put(newest, mark) then newest.count = newest.count + 1 end
  if sure then call('SADD', seen_base .. ':sure', mark) end
end
