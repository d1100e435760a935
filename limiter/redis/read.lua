-- Reads p, the hit that begins at a byte of ARGV[1]. A table made with all its
-- fields at once is cheaper than one that grows.
local algorithm, kind, denied, unit, slot, cost, capacity, limit, w, most, patience, after =
  struct.unpack('<BBBBI4I5I6I4I5I7I7', ARGV[1], at)
local p = {
  algorithm = algorithm, kind = kind, denied = denied == 1, slot = slot, cost = cost, capacity = capacity, limit = limit,
  w = w, most = most, patience = patience, leaky = algorithm == 2, after = after, calendar = unit == 2,
  now = unit == 0 and micros or math.floor(micros / 1000), ms = unit == 0 and 1000 or 1, -- units in a millisecond
  allowed = false, delay = 0, ahead = 0, f = false, s = false,
}
if unit == 2 then
  p.first, p.second, p.third, p.after = struct.unpack('<I6I6I6', ARGV[1], after)
end
