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
local SIXTEEN, FOUR = '<' .. string.rep('I4', 16), '<I4I4I4I4'
local sub, words_of, pack_words = string.sub, struct.unpack, struct.pack
local POWER = {
  [0] = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
  1048576, 2097152, 4194304, 8388608, 16777216, 33554432, 67108864, 134217728, 268435456, 536870912, 1073741824,
  2147483648,
}
local memo_mark, digest, memo_number -- the mark that was looked at last, and what tells its places
local powers, chosen = {}, 0 -- its bit in each word; of how many words that is known

-- Eight times five bits from the next ten hex digits: the second four come first.
local function choose()
  local first = 11 + chosen / 8 * 10
  local bits = tonumber(sub(digest, first, first + 9), 16)
  for i = 4, 11 do
    local place = bits % 32
    powers[chosen + 1 + i % 8] = POWER[place]
    bits = (bits - place) / 32
  end
  chosen = chosen + 8
end

-- Finds and reads the block of a mark, unless the part was looked at for it last; the other 80 of the
-- 120 bits that are used choose a bit in each of its words, the same in every layer.
local function look_at(part, mark)
  if mark ~= memo_mark then
    memo_mark, digest, chosen = mark, redis.sha1hex(mark), 0
    memo_number = tonumber(sub(digest, 1, 10), 16)
  end
  if part.mark == mark then return end
  local block = memo_number % part.size
  local within = block % 1024
  part.mark, part.segment, part.offset = mark, part.key .. string.format(':%d', (block - within) / 1024), within * 64
  part.block = call('GETRANGE', part.segment, part.offset, part.offset + 63)
end

-- Four words at a time: the first of them tell of most marks that they are new. In arithmetic, as calls of
-- the library would cost more than the rest.
local function seen_has(part, mark)
  look_at(part, mark)
  local block = part.block
  if block == '' then return false end
  for word = 1, 13, 4 do
    if word > chosen then choose() end
    local a, b, c, d = words_of(FOUR, block, word * 4 - 3)
    local power = powers[word]
    if a % (power * 2) < power then return false end
    power = powers[word + 1]
    if b % (power * 2) < power then return false end
    power = powers[word + 2]
    if c % (power * 2) < power then return false end
    power = powers[word + 3]
    if d % (power * 2) < power then return false end
  end
  return true
end

local function seen_put(part, mark)
  look_at(part, mark)
  local words
  local is_new = false
  if part.block ~= '' then
    words = {words_of(SIXTEEN, part.block)}
  else -- the whole segment: one that grows would be given twice the room
    local blocks = math.min(1024, part.size - tonumber(string.match(part.segment, '%d+$')) * 1024)
    call('SETRANGE', part.segment, blocks * 64 - 1, '\0')
    words = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  end
  while chosen < 16 do choose() end
  for word = 1, 16 do
    local power = powers[word]
    if words[word] % (power * 2) < power then words[word], is_new = words[word] + power, true end
  end
  part.mark = nil
  if is_new then call('SETRANGE', part.segment, part.offset, pack_words(SIXTEEN, unpack(words, 1, 16))) end
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
