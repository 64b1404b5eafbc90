-- seen_compact: a fingerprint is a bucket and 32 other bits of it in that bucket's int-set. See `seen.lua`.
--
-- Four bytes a member are possible only because the bucket says the rest, so a member cannot move to
-- another bucket. Growth is therefore a further part with twice as many buckets: a full part holds
-- 384 a bucket on the average (an int-set ends at 512), and errs on 384 / 2^32 = 9e-8 of new URLs.
--
--   :seen:N:B  set  bucket B of part N; `size` is the number of buckets

local SEEN_ERRS = true

local sub, format = string.sub, string.format
local memo_mark, memo_low, memo_member

-- The bucket comes from the last nine digits, the member from the others: 1 / 2^32 up to a hundredth.
local function place(part, mark)
  if mark ~= memo_mark then
    local high = tonumber(sub(mark, 1, -10)) or 0
    memo_mark, memo_low = mark, tonumber(sub(mark, -9))
    memo_member = format('%d', high % 4294967296 - 2147483648)
  end
  if mark ~= part.mark then
    part.mark, part.bucket = mark, part.key .. format(':%d', memo_low % part.size)
  end
  return part.bucket, memo_member
end

local function seen_has(part, mark)
  return call('SISMEMBER', place(part, mark)) == 1
end

local function seen_put(part, mark)
  return call('SADD', place(part, mark)) == 1
end

local function seen_drop(part, mark)
  return call('SREM', place(part, mark)) == 1
end

local function seen_shape(part, full)
  if full then return part.size * 2, part.capacity * 2, part.layer + 1 end
  return part.size, part.capacity, part.layer
end

local function seen_make() end
