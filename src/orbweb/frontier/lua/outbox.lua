-- outbox: the requests that wait longest for being taken to their shards. Changes nothing.
--
-- ARGV  1 time (not looked at), 2 how many at most
-- Returns  them, one word each, as they were sent

if call('HEXISTS', META, 'state') == 0 then return lost_run() end
return call('ZRANGE', OUTBOX, 0, tonumber(ARGV[2]) - 1)
