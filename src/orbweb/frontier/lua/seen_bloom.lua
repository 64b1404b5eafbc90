-- seen_bloom: a blocked Bloom filter a part (F. Putze, P. Sanders, J. Singler, WEA 2007): all bits of a
-- fingerprint lie in one block of 64 bytes, one in each of its 16 words, so a look is one read. The
-- parts are layers (P. Almeida et al., 2007): each holds twice as many and errs half as often. See
-- `seen.lua`.
--
-- `plan` in :seen is the list of the layers: blocks and capacity of each. The last one takes what comes
-- after it is full, and errs more and more: `dedup stats` and a line in the log say so.
--
--   :seen:N:S  string  segment S of part N: up to 1024 blocks; `size` is the number of blocks

local SEEN_ERRS = true
local FOUR, NO_BLOCK = '<I4I4I4I4', string.rep('\0', 64)
local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift
local sub, words_of, pack_words = string.sub, struct.unpack, struct.pack
local memo_part, memo_mark, memo_key, memo_offset, memo_hex, memo_block

-- Finds and reads the block of a mark, unless it is the one that was looked at last; the other 80 of
-- the 120 bits that are used choose a bit in each of its words.
local function look_at(part, mark)
  if mark == memo_mark and part == memo_part then return end
  local hex = redis.sha1hex(mark)
  local block = tonumber(sub(hex, 1, 10), 16) % part.size
  local within = block % 1024
  memo_part, memo_mark, memo_hex = part, mark, hex
  memo_key, memo_offset = part.key .. string.format(':%d', (block - within) / 1024), within * 64
  memo_block = call('GETRANGE', memo_key, memo_offset, memo_offset + 63)
end

local function bits_of(group)
  return tonumber(sub(memo_hex, 11 + group * 5, 15 + group * 5), 16)
end

local function seen_has(part, mark)
  look_at(part, mark)
  if memo_block == '' then return false end
  for group = 0, 3 do
    local bits = bits_of(group)
    local a, b, c, d = words_of(FOUR, memo_block, group * 16 + 1)
    if band(rshift(a, band(bits, 31)), 1) == 0 then return false end
    if band(rshift(b, band(rshift(bits, 5), 31)), 1) == 0 then return false end
    if band(rshift(c, band(rshift(bits, 10), 31)), 1) == 0 then return false end
    if band(rshift(d, rshift(bits, 15)), 1) == 0 then return false end
  end
  return true
end

local function with_bits(group, block)
  local bits = bits_of(group)
  local a, b, c, d = words_of(FOUR, block, group * 16 + 1)
  return pack_words(
    FOUR, bor(a, lshift(1, band(bits, 31))), bor(b, lshift(1, band(rshift(bits, 5), 31))),
    bor(c, lshift(1, band(rshift(bits, 10), 31))), bor(d, lshift(1, rshift(bits, 15))))
end

local function seen_put(part, mark)
  look_at(part, mark)
  local block = memo_block
  if block == '' then -- the whole segment: one that grows would be given twice the room
    local blocks = math.min(1024, part.size - tonumber(string.match(memo_key, '%d+$')) * 1024)
    call('SETRANGE', memo_key, blocks * 64 - 1, '\0')
    block = NO_BLOCK
  end
  local filled = with_bits(0, block) .. with_bits(1, block) .. with_bits(2, block) .. with_bits(3, block)
  memo_mark = nil
  if filled == block then return false end
  call('SETRANGE', memo_key, memo_offset, filled)
  return true
end

local function seen_drop() end

local function seen_shape(part, full)
  if not full then return part.size, part.capacity, part.layer end
  local number = 0
  for size, capacity in string.gmatch(call('HGET', seen_base, 'plan'), '(%d+) (%d+)') do
    if number == part.layer + 1 then return tonumber(size), tonumber(capacity), number end
    number = number + 1
  end
end

local function seen_make() end
