-- fetched: the bodies have arrived, give the hosts' politeness slots back; the leases stay.
--
-- ARGV  1 time, then pairs: id, token
-- Returns  1

if not begin() then return lost_run() end
for i = 2, #ARGV, 2 do
  if owns(ARGV[i], ARGV[i + 1]) then
    local body = call('HGET', BODY, ARGV[i])
    if body then free_slot(ARGV[i], ARGV[i + 1], (unpack_body(body))) end
  end
end
return 1
