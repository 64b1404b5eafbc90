-- seen_exact: 64-bit numbers in int-sets that split one at a time as they grow (linear hashing: W. Litwin,
-- VLDB 1980), so no call ever moves more than one bucket per new URL. See `seen.lua`.
--
-- A bucket is a range of numbers. An int-set is sorted, so a split takes its upper half as it is.
--
--   :seen:N:B  set  bucket of part N whose range begins at B / 2^30 of all numbers; `size` is the
--                   number of buckets

local SEEN_ERRS = false
local BUCKET_LOAD = 192 -- the fullest bucket holds about twice that; an int-set ends at 512
local format, floor = string.format, math.floor

-- How many buckets there are when all are split equally, at the least.
local function low_of(part)
  local low = 1
  while low * 2 <= part.size do low = low * 2 end
  part.low = low
  part.pattern = string.gsub(part.key, '%%', '%%%%') .. ':%d'
  return low
end

-- Where in the range of all numbers, from 0 to 1, a mark lies; a bucket knows it only as exactly.
local function spread(mark)
  return tonumber(mark) / 18446744073709551616 + 0.5
end

local memo_part, memo_mark, memo_key

local function bucket_key(part, mark)
  if mark == memo_mark and part == memo_part then return memo_key end
  local low = part.low or low_of(part)
  local at = spread(mark)
  local buckets, bucket = low, floor(at * low)
  if bucket < part.size - low then buckets, bucket = low * 2, floor(at * low * 2) end
  if bucket == buckets then bucket = bucket - 1 end
  memo_part, memo_mark, memo_key = part, mark, format(part.pattern, bucket * (1073741824 / buckets))
  return memo_key
end

local function seen_has(part, mark)
  return call('SISMEMBER', bucket_key(part, mark), mark) == 1
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
  local old = format(part.pattern, from * (1073741824 / part.low))
  local members, first = upper(old, border)
  local function each_thousand(command, key)
    for i = first, #members, 1000 do
      call(command, key, unpack(members, i, math.min(i + 999, #members)))
    end
  end
  each_thousand('SADD', format(part.pattern, border * 1073741824))
  part.size = part.size + 1
  call('HSET', seen_base, 'size', int(part.size))
  each_thousand('SREM', old)
  if part.size == part.low * 2 then part.low = part.size end
  memo_mark = nil
end

local function seen_put(part, mark)
  if call('SADD', bucket_key(part, mark), mark) == 0 then return false end
  if part.count + 1 > part.size * BUCKET_LOAD then split_bucket(part) end
  return true
end

local function seen_drop(part, mark)
  return call('SREM', bucket_key(part, mark), mark) == 1
end

local function seen_shape()
  return 1, 0, 0
end

local function seen_make() end
