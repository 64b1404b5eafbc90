-- seen_exact: 64-bit numbers in int-sets, spread by linear hashing (W. Litwin, VLDB 1980), so that the
-- set grows one bucket at a time and no call ever moves more than one bucket per new URL. See `seen.lua`.
--
--   :seen:N:B  set  bucket B of part N; `size` is the number of buckets

local SEEN_ERRS = false
local BUCKET_LOAD = 192 -- the fullest bucket holds about twice that; an int-set ends at 512

local function spread(mark) -- the last nine digits are as random as the fingerprint
  return tonumber(string.sub(mark, -9))
end

local function bucket_key(part, mark)
  local low = part.low
  if not low then
    low = 1
    while low * 2 <= part.size do low = low * 2 end
    part.low = low
  end
  local number = spread(mark)
  local bucket = number % (low * 2)
  if bucket >= part.size then bucket = number % low end
  return part.key .. ':' .. bucket
end

local function seen_has(part, mark)
  return call('SISMEMBER', bucket_key(part, mark), mark) == 1
end

-- Splits one bucket. The new one is filled before it is announced and the old one emptied after, so
-- a torn write leaves a superfluous copy, never a gap.
local function split_bucket(part)
  local from, into = part.size - part.low, part.size
  local moved = {}
  for _, mark in ipairs(call('SMEMBERS', part.key .. ':' .. int(from))) do
    if spread(mark) % (part.low * 2) == into then moved[#moved + 1] = mark end
  end
  local function each_thousand(command, key)
    for i = 1, #moved, 1000 do
      call(command, key, unpack(moved, i, math.min(i + 999, #moved)))
    end
  end
  each_thousand('SADD', part.key .. ':' .. int(into))
  part.size = part.size + 1
  call('HSET', seen_base, 'size', int(part.size))
  each_thousand('SREM', part.key .. ':' .. int(from))
  if part.size == part.low * 2 then part.low = part.size end
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
