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
local WORDS = '<' .. string.rep('I4', 16)
local NO_BLOCK = string.rep('\0', 64)
local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift
local sub, unpack_words = string.sub, struct.unpack

-- The key and offset of a fingerprint's block, and 80 bits that choose a bit in each of its words.
local function place(part, mark)
  local hex = redis.sha1hex(mark)
  local block = tonumber(sub(hex, 1, 10), 16) % part.size
  local segment = (block - block % 1024) / 1024
  return part.key .. ':' .. segment, (block % 1024) * 64, hex
end

-- Reads a block. A segment is made whole: one that grows would be given twice the room.
local function read_block(part, key, offset)
  local block = call('GETRANGE', key, offset, offset + 63)
  if #block == 64 then return block end
  local segment = tonumber(string.match(key, '%d+$'))
  call('SETRANGE', key, math.min(1024, part.size - segment * 1024) * 64 - 1, '\0')
  return NO_BLOCK
end

local function seen_has(part, mark)
  local key, offset, hex = place(part, mark)
  local block = call('GETRANGE', key, offset, offset + 63)
  if #block < 64 then return false end
  for group = 0, 3 do
    local bits = tonumber(sub(hex, 11 + group * 5, 15 + group * 5), 16)
    local a, b, c, d = unpack_words('<I4I4I4I4', block, group * 16 + 1)
    if band(rshift(a, band(bits, 31)), 1) == 0 then return false end
    if band(rshift(b, band(rshift(bits, 5), 31)), 1) == 0 then return false end
    if band(rshift(c, band(rshift(bits, 10), 31)), 1) == 0 then return false end
    if band(rshift(d, rshift(bits, 15)), 1) == 0 then return false end
  end
  return true
end

local function seen_put(part, mark)
  local key, offset, hex = place(part, mark)
  local block = read_block(part, key, offset)
  local words = {unpack_words(WORDS, block)}
  for group = 0, 3 do
    local bits = tonumber(sub(hex, 11 + group * 5, 15 + group * 5), 16)
    for word = group * 4 + 1, group * 4 + 4 do
      words[word] = bor(words[word], lshift(1, band(bits, 31))) % 4294967296
      bits = rshift(bits, 5)
    end
  end
  local filled = struct.pack(WORDS, unpack(words, 1, 16))
  if filled == block then return false end
  call('SETRANGE', key, offset, filled)
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
