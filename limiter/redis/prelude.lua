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
--   healed; then for each hit three numbers, or four: 1 if it passes alone, plus 2
--   if there is a fourth; used (in cost); the time until reset; and the delay of a
--   pass, or the time after which a refused hit passes. Times are in the unit of
--   the limit's window. A refusal without that time: waiting cannot help.
local dropped, healed, outside, turn = 0, 0, false, nil
local micros = ARGV[2] and tonumber(ARGV[2])
if not micros then
  local t = redis.call('TIME')
  micros = t[1] * 1000000 + t[2]
end

-- Kinds of hits.
local SHADOW, QUOTA, REFUND = 1, 2, 3

-- read reads the hit that begins at a byte of ARGV[1]. A table made with all its
-- fields at once is cheaper than one that grows.
local function read(at)
  local algorithm, kind, denied, unit, slot, cost, capacity, limit, w, most, patience, after =
    struct.unpack('<BBBBI4I5I6I4I5I7I7', ARGV[1], at)
  local p = {
    kind = kind, denied = denied == 1, unit = unit, slot = slot, cost = cost, capacity = capacity, limit = limit,
    w = w, most = most, patience = patience, leaky = algorithm == 2, calendar = unit == 2, after = after,
    algorithm = algorithm, now = unit == 0 and micros or math.floor(micros / 1000), allowed = false, delay = 0, ahead = 0, f = false, s = false,
  }
  if unit == 2 then
    p.first, p.second, p.third, p.after = struct.unpack('<I6I6I6', ARGV[1], after)
  end
  return p
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

-- append adds a hit to the reply. Each number in it costs.
local function append(reply, allowed, used, reset, wait)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = allowed and 1 or 0, used, reset
  if wait > 0 then
    reply[n + 1], reply[n + 4] = reply[n + 1] + 2, wait
  end
end
