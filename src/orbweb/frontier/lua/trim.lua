-- trim: drop from the outbox what was delivered.
--
-- ARGV  1 time, then requests, one word each, as `outbox` gave them
-- Returns  how many were there

if not begin() then return lost_run() end
local removed = 0
for i = 2, #ARGV do
  local row = ARGV[i]
  local order = call('ZSCORE', OUTBOX, row)
  if order then
    removed = removed + call('ZREM', OUTBOX, row)
    local id = string.match(row, '^[^\n]*\n([^\n]*)')
    detach(id, id .. '>' .. int(tonumber(order)))
  end
end
commit()
return removed
