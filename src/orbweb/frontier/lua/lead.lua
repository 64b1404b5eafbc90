-- lead: take, keep or give back a role that one process of the fleet has at a time. Who asks in vain
-- becomes its deputy, if there is none.
--
-- KEYS  1 shard tag
-- ARGV  1 time, 2 role, 3 who asks, 4 lease ms (0 = give it back), 5 rank: a higher one takes the role
--       from its holder at once
-- Returns  the caller's fence (0 = another has the role), ms until that one's lease ends, 1 when the
--          caller is the deputy, wall clock

local WEEK_MS = 604800000

local key, who, lease, rank = SHARD .. ':role:' .. ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
read_wall()
local known = call('HMGET', key, 'holder', 'until', 'lease', 'rank', 'fence', 'deputy', 'deputy_until')
-- No lease is longer than it was asked for, also when the clock is set back.
local left = math.min((tonumber(known[2]) or 0) - wall, tonumber(known[3]) or 0)
local fence = tonumber(known[5]) or 0

if lease == 0 then
  if known[1] == who then call('HDEL', key, 'holder', 'until', 'lease', 'rank') end
  if known[6] == who then call('HDEL', key, 'deputy', 'deputy_until') end
  return {0, 0, 0, int(wall)}
end

local mine = known[1] == who
if mine or not known[1] or left <= 0 or rank > tonumber(known[4]) then
  -- Times are fences that no earlier incarnation of the role has used.
  if not mine then fence = math.max(fence + 1, wall) end
  call('HSET', key, 'holder', who, 'until', int(wall + lease), 'lease', lease, 'rank', rank, 'fence', int(fence))
  call('PEXPIRE', key, WEEK_MS)
  if known[6] == who then call('HDEL', key, 'deputy', 'deputy_until') end
  return {int(fence), lease, 0, int(wall)}
end

local deputy_left = (tonumber(known[7]) or 0) - wall
if known[6] == who or deputy_left <= 0 or deputy_left > lease then
  call('HSET', key, 'deputy', who, 'deputy_until', int(wall + lease))
  call('PEXPIRE', key, WEEK_MS)
  return {0, int(left), 1, int(wall)}
end
return {0, int(left), 0, int(wall)}
