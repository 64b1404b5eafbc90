-- restore: requests of an exported run enter, whatever counts as seen; with the pages that redirects
-- had taken for them, and the links to those that were held back.
--
-- ARGV  1 time, then for each request: id, host, priority, payload, and how many pairs follow of:
--       fingerprint of a page that it took, link that was held back ('' = none)
-- Returns  how many were not pending

if not begin() then return lost_run() end

local function take(id, first, pages)
  local members = ''
  for i = first, first + (pages - 1) * 2, 2 do
    local member, link = ARGV[i], ARGV[i + 1]
    members = members .. ' ' .. member
    call('HSET', VISITED, member, id)
    if link ~= '' then call('HSETNX', PARKED, member, link) end
  end
  if pages > 0 then call('HSET', VISITS, id, members) end
end

local added = 0
local i = 2
while i <= #ARGV do
  local id, host, priority, pages = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 4])
  if call('HEXISTS', BODY, id) == 0 then
    take(id, i + 5, pages)
    attach(id)
    call('HSET', BODY, id, pack_body(host, priority, 0, ARGV[i + 3]))
    enqueue(id, host, priority)
    added = added + 1
  end
  i = i + 5 + pages * 2
end
if added > 0 then reopen() end
commit()
return added
