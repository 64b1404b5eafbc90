-- batch: how a numbered step of the seeding is taken in, whatever it brings. Stands in front of the
-- transitions that take one; no transition itself.

-- The answer to a step that is not taken in: its node has lost the seeding, it is in already, or one
-- before it is missing. Nil for the one that is due.
local function refusal(token, batch)
  local cursor = tonumber(call('HGET', META, 'cursor'))
  if not owns(SEED, token) then return {'stale', cursor, 0} end
  if batch <= cursor then return {'duplicate', cursor, 0} end
  if batch > cursor + 1 then return {'gap', cursor, 0} end
end

-- Moves the cursor, when all that the step brings is in; `is_last` ends the seeding. Returns the answer.
local function take_in(batch, is_last, number)
  call('HSET', META, 'cursor', int(batch))
  if is_last then
    forget(SEED)
    unlease(SEED)
  end
  commit()
  return {'ok', batch, number}
end
