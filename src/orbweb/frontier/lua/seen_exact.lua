-- seen_exact: 64-bit numbers in int-sets that split one at a time as they grow (linear hashing: W. Litwin,
-- VLDB 1980), so no call ever moves more than one bucket per new URL. See `seen.lua`.
--
-- A bucket is a range of numbers. An int-set is sorted, so a split takes its upper half as it is.
--
--   :seen:N:B  set  bucket of part N whose range begins at B (hex) / 2^32 of all numbers; `size` is
--                   the number of buckets

local SEEN_ERRS = false
local BUCKET_LOAD = 128 -- the fullest bucket holds about twice that; an int-set ends at 512
local floor, tohex = math.floor, bit.tohex
local ALL = 4294967296
local BEYOND = 18446744073709555712 -- the first number after 2^64 that a double can be

-- How many buckets there are when all are split equally, at the least.
local function low_of(part)
  local low = 1
  while low * 2 <= part.size do low = low * 2 end
  part.low, part.prefix = low, part.key .. ':'
  return low
end

-- Where in the range of all numbers, from 0 to just below 1, a mark lies; a bucket knows it only as
-- exactly.
local function spread(mark)
  return mark / BEYOND + 0.5
end

local memo_part, memo_mark, memo_key

-- Finds the bucket of a mark, unless it is the one that was found last.
local function find(part, mark)
  if mark == memo_mark and part == memo_part then return end
  local low = part.low or low_of(part)
  local at = (mark / BEYOND + 0.5) * low
  local bucket, width = at - at % 1, ALL / low
  if bucket < part.size - low then
    at, width = at * 2, width / 2
    bucket = at - at % 1
  end
  memo_part, memo_mark, memo_key = part, mark, part.prefix .. tohex(bucket * width)
end

local function seen_has(part, mark)
  find(part, mark)
  return call('SISMEMBER', memo_key, mark) == 1
end

-- Which members of a bucket lie at or above a border.
local function upper(key, border)
  local members = call('SMEMBERS', key)
  if call('OBJECT', 'ENCODING', key) ~= 'intset' then
    table.sort(members, function(one, other) return spread(one) < spread(other) end)
  end
  local first, past = 1, #members + 1
  while first < past do
    local middle = floor((first + past) / 2)
    if spread(members[middle]) < border then first = middle + 1 else past = middle end
  end
  return members, first
end

-- Splits one bucket. The new one is filled before it is announced and the old one emptied after, so
-- a torn write leaves a superfluous copy, never a gap.
local function split_bucket(part)
  local from = part.size - part.low
  local border = (from * 2 + 1) / (part.low * 2)
  local old = part.prefix .. tohex(from * (ALL / part.low))
  local members, first = upper(old, border)
  local new = part.prefix .. tohex(border * ALL)
  for i = first, #members, 1000 do
    call('SADD', new, unpack(members, i, math.min(i + 999, #members)))
  end
  part.size = part.size + 1
  call('HSET', seen_base, 'size', int(part.size))
  call('SDIFFSTORE', old, old, new)
  if part.size == part.low * 2 then part.low = part.size end
  memo_mark = nil
end

local function seen_put(part, mark)
  if mark ~= memo_mark or part ~= memo_part then find(part, mark) end
  if call('SADD', memo_key, mark) == 0 then return false end
  if part.count + 1 > part.size * BUCKET_LOAD then split_bucket(part) end
  return true
end

local function seen_drop(part, mark)
  find(part, mark)
  return call('SREM', memo_key, mark) == 1
end

local function seen_shape()
  return 1, 0, 0
end

local function seen_make() end
