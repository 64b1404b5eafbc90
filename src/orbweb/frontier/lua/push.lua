-- push: how requests enter: what was seen is dropped, what lies in another shard goes to the outbox.
-- Stands before the transitions that let requests in.

-- Seen requests: 64-bit numbers in int-sets, spread by linear hashing (W. Litwin, VLDB 1980), so that
-- the set grows one bucket at a time and no call ever moves more than one bucket per new URL.
local function seen_open()
  if seen_buckets then return end
  local v = call('HMGET', seen_base, 'buckets', 'count')
  seen_buckets, seen_count = tonumber(v[1]) or 1, tonumber(v[2]) or 0
  seen_first_count = seen_count
  seen_low = 1
  while seen_low * 2 <= seen_buckets do seen_low = seen_low * 2 end
end

local function spread(member) -- the last nine digits are as random as the fingerprint
  return tonumber(string.sub(member, -9))
end

local function bucket_key(member)
  local number = spread(member)
  local bucket = number % (seen_low * 2)
  if bucket >= seen_buckets then bucket = number % seen_low end
  return seen_base .. ':' .. bucket
end

-- Links repeat within a call, above all those of a site's menu: each is looked up once.
local function is_seen(member)
  local seen = known[member]
  if seen == nil then
    seen_open()
    seen = call('SISMEMBER', bucket_key(member), member) == 1
    known[member] = seen
  end
  return seen
end

-- Splits one bucket. The new one is filled before it is announced and the old one emptied after, so
-- a torn write leaves a superfluous copy, never a gap.
local function split_bucket()
  local from, into = seen_buckets - seen_low, seen_buckets
  local moved = {}
  for _, member in ipairs(call('SMEMBERS', seen_base .. ':' .. int(from))) do
    if spread(member) % (seen_low * 2) == into then moved[#moved + 1] = member end
  end
  local function each_thousand(command, key)
    for i = 1, #moved, 1000 do
      call(command, key, unpack(moved, i, math.min(i + 999, #moved)))
    end
  end
  each_thousand('SADD', seen_base .. ':' .. int(into))
  seen_buckets = seen_buckets + 1
  call('HSET', seen_base, 'buckets', int(seen_buckets))
  each_thousand('SREM', seen_base .. ':' .. int(from))
  if seen_buckets == seen_low * 2 then seen_low = seen_buckets end
end

local function remember(member)
  seen_open()
  known[member] = true
  if call('SADD', bucket_key(member), member) == 0 then return end
  seen_count = seen_count + 1
  if seen_count > seen_buckets * BUCKET_LOAD then split_bucket() end
end

-- Whether a page that is seen may enter all the same. One that a redirect has taken waits for the
-- fate of the redirected request: the first link to it is parked while that one is pending, and
-- enters when it has died.
local function is_free(id, host, priority, member, payload)
  local owner = call('HGET', VISITED, member)
  if not owner then return false end
  if call('HEXISTS', BODY, owner) == 1 then
    call('HSETNX', PARKED, member, id .. '\n' .. pack_body(host, priority, 0, payload))
    return false
  end
  call('HDEL', VISITED, member)
  return true
end

-- Deduplicates and enqueues: 1 when the request is new. 'seen' is written last: a torn write may
-- repeat a URL, never forget one.
local function push(id, host, priority, member, payload)
  local seen = member ~= '' and is_seen(member)
  if seen and is_visiting() and is_free(id, host, priority, member, payload) then seen = false end
  if seen or call('HEXISTS', BODY, id) == 1 then
    duplicates = duplicates + 1
    return 0
  end
  call('HSET', BODY, id, pack_body(host, priority, 0, payload))
  enqueue(id, host, priority)
  if member ~= '' then remember(member) end
  return 1
end

-- Pushes the requests that stand in ARGV from `first`, five words each: id, host, priority,
-- fingerprint ('' = not deduplicated), payload. Returns how many were new.
local function push_argv(first, how_many)
  local added = 0
  for i = first, first + (how_many - 1) * 5, 5 do
    added = added + push(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4])
  end
  return added
end

-- Puts requests of other shards, which stand in ARGV from `first` as one word each, into the outbox.
-- Returns how many were not there.
local function send_argv(first, how_many)
  local sent = 0
  for i = first, first + how_many - 1 do
    if call('ZADD', OUTBOX, 'NX', seq + 1, ARGV[i]) == 1 then
      seq = seq + 1
      sent = sent + 1
    end
  end
  return sent
end
