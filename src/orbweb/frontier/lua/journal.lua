-- journal: note from now on which requests leave the run, so that an export which reads it piece by
-- piece misses none of those that were pending at this instant.
--
-- KEYS  1 shard tag, then run bases
-- ARGV  1 time, 2 what (begin, go_on, end), 3 ms after which an export that is not heard of is over
-- Returns  1, or 0 when the journal of a run has ended before its export: what was read is of no use

read_wall()
local until_ms = int(wall + tonumber(ARGV[3]))
for i = 2, #KEYS do
  use(KEYS[i])
  local meta = call('HMGET', META, 'state', 'journal')
  if ARGV[2] == 'go_on' and not (meta[1] and meta[2] and tonumber(meta[2]) > wall) then return 0 end
  if ARGV[2] == 'begin' then call('UNLINK', LEFT) end
  if ARGV[2] == 'end' then
    call('HDEL', META, 'journal')
    call('UNLINK', LEFT)
  elseif meta[1] then
    call('HSET', META, 'journal', until_ms)
  end
end
return 1
