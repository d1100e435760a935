-- Removes a queue that is empty, and whose rule no server knows.
--
-- KEYS: what says that its rule is in force (ruled); the stream; the stream of those
--   that were given up; and what the queue is (about).
-- Reply: {1, 0, 0}: it is removed; {0, waiting, given up}: it is not empty; {-1, 0,
--   0}: its rule is in force.
if redis.call('EXISTS', KEYS[1]) == 1 then return {-1, 0, 0} end
local waiting, failed = redis.call('XLEN', KEYS[2]), redis.call('XLEN', KEYS[3])
if waiting + failed > 0 then return {0, waiting, failed} end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
return {1, 0, 0}
