-- Deletes a counter of a fixed window that plain INCRBYs made, and nobody since gave a
-- tag and a time to live (see plain.go).
-- KEYS: its name. ARGV: none. Reply: how many were deleted.
local v = redis.pcall('GET', KEYS[1])
v = type(v) == 'string' and tonumber(v)
if v and v < 8589934592 and redis.call('PTTL', KEYS[1]) == -1 then
  return {redis.call('DEL', KEYS[1])}
end
return {0}
