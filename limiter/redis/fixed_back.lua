-- Before prelude.lua, in the script for a hit that a plain INCRBY has counted (see
-- plain.go) and that must be decided otherwise: takes off again what it added. The
-- record's patience is the tag of what that was added to; a counter of another tag
-- has taken its place since.
local added
do
  local cost, tag = struct.unpack('<xxxxxxxxI5xxxxxxxxxxxxxxxxxxxxxxI7', ARGV[1])
  local v = redis.pcall('GET', KEYS[1])
  v = type(v) == 'string' and tonumber(v)
  if v and v % 1 == 0 and math.floor(v / 8589934592) == tag and v % 8589934592 >= cost then
    if v == cost then redis.call('DEL', KEYS[1]) else redis.call('DECRBY', KEYS[1], cost) end
  end
end
