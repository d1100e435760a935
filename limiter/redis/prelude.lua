-- What every script begins with. Each is this, the algorithms it needs, and
-- single.lua or multi.lua.
--
-- KEYS: one for each counter of the request.
-- ARGV[1]: a record for each hit, as read says; numbers are prepared in Go, so
--   that Lua only adds, compares and stores whole numbers below 2^53.
-- ARGV[2]: the time in µs since 1970, for tests; else Redis's own.
-- Reply: whole numbers. {-1} if no given calendar window has the time in it:
--   nothing is charged. Else how many counters were dropped for being too far
--   ahead of the clock and how many were foreign or had no time to live and were
--   healed; then for each hit: 1 if it passes alone, used (in cost), and reset,
--   retry and delay in the unit of the limit's window. Retry 0 of a refusal:
--   waiting cannot help.
local dropped, healed, outside, turn = 0, 0, false, nil
local micros = ARGV[2] and tonumber(ARGV[2])
if not micros then
  local t = redis.call('TIME')
  micros = t[1] * 1000000 + t[2]
end

-- Kinds of hits.
local SHADOW, QUOTA, REFUND = 1, 2, 3

-- read reads the hit that begins at a byte of ARGV[1].
local function read(at)
  local p = {}
  p.algorithm, p.kind, p.denied, p.unit, p.slot, p.cost, p.capacity, p.limit, p.w, p.most, p.patience, p.after =
    struct.unpack('<BBBBI4I5I6I4I5I7I7', ARGV[1], at)
  p.leaky = p.algorithm == 2
  if p.unit == 2 then
    p.calendar = true
    p.first, p.second, p.third, p.after = struct.unpack('<I6I6I6', ARGV[1], p.after)
  end
  return p
end

-- clock is now in the unit of the hit's window.
local function clock(p)
  if p.unit == 0 then return micros end
  return math.floor(micros / 1000)
end

-- ttl is a time in the unit of the hit's window as a time to live in ms. With a
-- time from tests it is a minute longer, since Redis's own goes on beside it.
local function ttl(left, p)
  if p.unit == 0 then left = math.ceil(left / 1000) end
  return math.max(1, left) + (ARGV[2] and 60000 or 0)
end

-- heal removes what is no counter of ours.
local function heal(key, s)
  redis.call('DEL', key)
  healed = healed + 1
  return s
end
