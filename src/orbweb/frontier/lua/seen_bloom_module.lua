-- seen_bloom_module: the Bloom filter of the server's own module, one a part; it adds layers by itself.
-- See `seen.lua`.
--
-- `plan` in :seen is the error rate and the capacity of the first layer.
--
--   :seen:N  filter of part N

local SEEN_ERRS = true

local function seen_has(part, mark)
  return call('BF.EXISTS', part.key, mark) == 1
end

local function seen_put(part, mark)
  return call('BF.ADD', part.key, mark) == 1
end

local function seen_drop() end

local function seen_shape()
  return 0, 0, 0
end

local function seen_make(part)
  local rate, capacity = string.match(call('HGET', seen_base, 'plan'), '(%S+) (%S+)')
  call('BF.RESERVE', part.key, rate, capacity, 'EXPANSION', '2')
end
