-- Reads the hit that begins at a byte of ARGV[1].
local algorithm, kind, denied, unit, slot, cost, capacity, limit, w, most, patience, after =
  struct.unpack('<BBBBI4I5I6I4I5I7I7', ARGV[1], at)
local leaky, calendar = algorithm == 2, unit == 2
local now, ms = micros, 1000 -- in the unit of its window, and how many units a millisecond has
if unit > 0 then now, ms = math.floor(micros / 1000), 1 end
local first, second, third -- calendar windows: where this one begins, the next, and the one after it
if calendar then
  first, second, third, after = struct.unpack('<I6I6I6', ARGV[1], after)
end
