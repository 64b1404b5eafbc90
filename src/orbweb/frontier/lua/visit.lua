-- visit: a redirect of a request leads to another page, which this request takes for its own.
--
-- ARGV  1 time, 2 id, 3 token, 4 fingerprint of the page, 5 its host
-- Returns  1 it is the request's (also when it was in an earlier attempt), 0 the page was taken
--          before, -1 the lease is lost

if not begin() then return lost_run() end
local id, member = ARGV[2], ARGV[4]
if not owns(id, ARGV[3]) then return -1 end
if is_seen(member, ARGV[5]) then
  local owner = call('HGET', VISITED, member)
  if not owner then return 0 end
  if owner ~= id and call('HEXISTS', BODY, owner) == 1 then return 0 end
end
local visits = call('HGET', VISITS, id) or ''
if not string.find(visits .. ' ', ' ' .. member .. ' ', 1, true) then
  call('HSET', VISITS, id, visits .. ' ' .. member)
end
call('HSET', VISITED, member, id)
remember(member, ARGV[5])
commit()
return 1
