-- Before prelude.lua, in the script for one hit in a window of fixed length. Where Go
-- knows Redis's clock it says in which window that is, in the place of the record's
-- patience: its tag (see fixed.lua) and 1; else 0. A counter that has this tag lives
-- no longer than its window, so Redis need not look at its clock again, which would
-- take a third of its time: the reply is one number, used. What is not as expected
-- is decided as ever, by Redis's clock; added is what adding has told by then.
local added
do
  local cost, capacity, expected = struct.unpack('<xxxxxxxxI5I6xxxxxxxxxxxxxxxxI7', ARGV[1])
  if expected > 0 then
    added = redis.pcall('INCRBY', KEYS[1], cost)
    if type(added) == 'number' then
      local used = added - (expected - 1) * 8589934592
      if used > cost and used <= capacity then return {used} end
    end
  end
end
