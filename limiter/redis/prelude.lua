-- What every script begins with. A script is this, the algorithms it needs, and
-- single.lua, multi.lua or giveback.lua. Functions are made anew each time that a
-- script runs, at about 0.1 µs each, so those that few requests need stand in the
-- second half of an algorithm's file, and are made only then (see script.go).
--
-- KEYS: one for each counter of the request, then the queues that they overflow into.
-- ARGV[1]: a record for each hit, as read.lua says; numbers are prepared in Go, so
--   that Lua only adds, compares and stores whole numbers below 2^53.
-- ARGV[2]: the time in µs since 1970, for tests; else Redis's own.
-- Reply: whole numbers, for each of them costs too. {-1} if no given calendar
--   window has the time in it: nothing is charged. Else how many counters were
--   dropped for being too far ahead of the clock, and how many were foreign or had
--   no time to live and were healed; then for each hit three numbers, or four: 1 if
--   it passes alone, plus 2 if there is a fourth; used (in cost); the time until
--   reset; and the delay of a pass, or the time after which a refused hit passes.
--   Times are in the unit of the limit's window. A refusal without the fourth:
--   waiting cannot help. Plus 4 if the request is to wait in the hit's queue.
--   Or one to three numbers, used, the time until reset and Redis's clock: the one
--   hit passes, and nothing was dropped or healed.
local dropped, healed, outside, foreign = 0, 0, false, false
local turn -- only buckets have one
local micros, slack = ARGV[2] and tonumber(ARGV[2]), 0
if micros then
  slack = 60000 -- keys live a minute longer, since Redis's own time goes on beside the test's
else
  local t = redis.call('TIME')
  micros = t[1] * 1000000 + t[2]
end

-- Kinds of hits.
local SHADOW, QUOTA, REFUND = 1, 2, 3
