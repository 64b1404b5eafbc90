-- seed_claim: take over the seeding of the run if nobody holds it.
--
-- ARGV  1 time, 2 node, 3 seq, 4 lease ms
-- Returns  code (ok, busy, done), batches that are in, token

if not begin() then return lost_run() end
reap(100)
local cursor = call('HGET', META, 'cursor')
local token = ARGV[2] .. ':' .. ARGV[3]
local code = 'ok'
if call('HEXISTS', BODY, SEED) == 0 then
  code = 'done'
elseif call('HEXISTS', OWNER, SEED) == 1 and not owns(SEED, token) then
  code = 'busy'
else
  call('HSET', OWNER, SEED, token)
  call('ZADD', DEADLINE, now + tonumber(ARGV[4]), SEED)
end
commit()
return {code, tonumber(cursor), token}
