-- take: entries that others have pushed into a list, set or sorted set become one request of the run.
--
-- KEYS  1 shard tag, 2 run base, 3 list (from the left), sorted set (highest score first) or set
-- ARGV  1 time, 2 id of the request, 3 its host, 4 most entries, 5 what its payload begins with;
--       there follow the key and each entry, each behind its length and a colon
-- Returns  how many entries were taken

if not begin() then return lost_run() end
local id, host, most = ARGV[2], ARGV[3], tonumber(ARGV[4])
local kind = call('TYPE', KEYS[3]).ok
local entries = {}
if kind == 'list' then
  entries = call('LRANGE', KEYS[3], 0, most - 1)
elseif kind == 'zset' then
  entries = call('ZREVRANGE', KEYS[3], 0, most - 1)
elseif kind == 'set' then
  entries = call('SRANDMEMBER', KEYS[3], most)
end
if #entries == 0 then return 0 end

local words = {#KEYS[3] .. ':' .. KEYS[3]}
for _, entry in ipairs(entries) do words[#words + 1] = #entry .. ':' .. entry end
-- They leave last: a torn write repeats entries, it does not lose them.
call('HSET', BODY, id, pack_body(host, 0, 0, ARGV[5] .. table.concat(words)))
enqueue(id, host, 0)
reopen()
commit()
if kind == 'list' then
  call('LTRIM', KEYS[3], #entries, -1)
else
  local remove = kind == 'zset' and 'ZREM' or 'SREM'
  for i = 1, #entries, 1000 do call(remove, KEYS[3], unpack(entries, i, math.min(i + 999, #entries))) end
end
return #entries
