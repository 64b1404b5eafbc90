-- fold: put the sum of what nodes have counted in the place of their counts, if none has changed meanwhile.
--
-- ARGV  1 time, 2 sum of the nodes that left before ('' = there is none), 3 the new sum, then pairs: node
--       and what it has counted
-- Returns  1; or 0 when something has changed, or a node is not gone: nothing was done

local counts = RUN .. ':counts'
if (call('HGET', counts, '') or '') ~= ARGV[2] then return 0 end
for i = 4, #ARGV, 2 do
  local is_gone = call('HEXISTS', BEATS, ARGV[i]) == 0
  if not is_gone or call('HGET', counts, ARGV[i]) ~= ARGV[i + 1] then return 0 end
end
-- One write puts all in its place: after one that is torn no node is counted twice, or not at all.
local folded = counts .. ':folded'
call('COPY', counts, folded, 'REPLACE')
call('HSET', folded, '', ARGV[3])
for i = 4, #ARGV, 2 do call('HDEL', folded, ARGV[i]) end
call('RENAME', folded, counts)
return 1
