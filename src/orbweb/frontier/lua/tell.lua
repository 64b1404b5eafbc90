-- tell: put down what a node has counted so far, in the place of what it said before.
--
-- ARGV  1 time, 2 node, 3 counts, 4 1 = it has told before, 5 seconds for which counts are kept
-- Returns  1; or 0 when what it told before is not there any more (see `fold`): nothing was done

local counts = RUN .. ':counts'
if ARGV[4] == '1' and call('HEXISTS', counts, ARGV[2]) == 0 then return 0 end
call('HSET', counts, ARGV[2], ARGV[3])
call('EXPIRE', counts, ARGV[5])
return 1
