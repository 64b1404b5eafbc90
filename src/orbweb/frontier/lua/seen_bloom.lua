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
local SIXTEEN = '<' .. string.rep('I4', 16)
local sub, words_of, pack_words = string.sub, struct.unpack, struct.pack
local POWER = {
  [0] = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
  1048576, 2097152, 4194304, 8388608, 16777216, 33554432, 67108864, 134217728, 268435456, 536870912, 1073741824,
  2147483648,
}
local memo_mark, memo_number, memo_part, memo_key, memo_offset, memo_words
local powers = {} -- of the mark that was looked at last, the bit in each word

-- Eight times five bits from ten hex digits, for the words from `first`: the second four come first.
local function choose(digits, first)
  local number = tonumber(digits, 16)
  for i = 4, 11 do
    local place = number % 32
    powers[first + i % 8] = POWER[place]
    number = (number - place) / 32
  end
end

-- Finds and reads the block of a mark, unless it is the one that was looked at last; the other 80 of
-- the 120 bits that are used choose a bit in each of its words, the same in every layer.
local function look_at(part, mark)
  if mark ~= memo_mark then
    local hex = redis.sha1hex(mark)
    memo_mark, memo_number, memo_part = mark, tonumber(sub(hex, 1, 10), 16), nil
    choose(sub(hex, 11, 20), 1)
    choose(sub(hex, 21, 30), 9)
  end
  if part == memo_part then return end
  local block = memo_number % part.size
  local within = block % 1024
  memo_part, memo_key, memo_offset = part, part.key .. string.format(':%d', (block - within) / 1024), within * 64
  local found = call('GETRANGE', memo_key, memo_offset, memo_offset + 63)
  memo_words = found ~= '' and {words_of(SIXTEEN, found)}
end

-- Bits are looked at and set in arithmetic: sixteen calls of the library would cost more than the rest.
local function seen_has(part, mark)
  look_at(part, mark)
  local words = memo_words
  if not words then return false end
  for i = 1, 16 do
    local power = powers[i]
    if words[i] % (power * 2) < power then return false end
  end
  return true
end

local function seen_put(part, mark)
  look_at(part, mark)
  local words, is_new = memo_words, false
  if not words then -- the whole segment: one that grows would be given twice the room
    local blocks = math.min(1024, part.size - tonumber(string.match(memo_key, '%d+$')) * 1024)
    call('SETRANGE', memo_key, blocks * 64 - 1, '\0')
    words = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  end
  for i = 1, 16 do
    local power = powers[i]
    if words[i] % (power * 2) < power then words[i], is_new = words[i] + power, true end
  end
  memo_part = nil
  if is_new then call('SETRANGE', memo_key, memo_offset, pack_words(SIXTEEN, unpack(words, 1, 16))) end
  return is_new
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
