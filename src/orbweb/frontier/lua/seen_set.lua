-- seen_set: one plain set a part. See `seen.lua`.
--
--   :seen:N  set  the fingerprints of part N

local SEEN_ERRS = false

local function seen_has(part, mark)
  return call('SISMEMBER', part.key, mark) == 1
end

local function seen_put(part, mark)
  return call('SADD', part.key, mark) == 1
end

local function seen_drop(part, mark)
  return call('SREM', part.key, mark) == 1
end

local function seen_shape()
  return 0, 0, 0
end

local function seen_make() end
