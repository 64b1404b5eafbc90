-- seen_learn: let requests count as seen that were exported elsewhere.
--
-- KEYS  1 shard tag, 2 what is seen
-- ARGV  1 time, then fingerprints as they stood in the export
-- Returns  how many of them were new

read_wall()
seen_base = KEYS[2]
seen_open()
salted, simple = nil, not (SEEN_ERRS or older[1]) -- what was exported is the number of its forgotten host already
local learned = 0
for i = 2, #ARGV do
  if not is_seen(ARGV[i], '') then
    remember(ARGV[i], '')
    learned = learned + 1
  end
end
on_commit()
return learned
