-- Lets the first of a queue depart, if its worker still has the lock and the bucket
-- says that it is time; see limiter/redis/queue.lua, which lets requests pass by an
-- empty queue by the same bucket.
--
-- KEYS: the lock; the stream; the counter; the request's record.
-- ARGV: 1 the worker; 2 the request's entry; 3 the limit and 4 its window in units of
--   time; 5 how many µs a unit has; 6 its cost; 7 how many units the worker comes late.
-- Reply: {1, deliveries, next}: it departs, for the so-manieth time, and the next may
--   in so many units; {0, wait, 0}: not yet; {-1, 0, 0}: the lock is another's; {-2,
--   0, 0}: the request is gone.
local limit, w, unit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {-1, 0, 0} end
if #redis.call('XRANGE', KEYS[2], ARGV[2], ARGV[2]) == 0 then return {-2, 0, 0} end
local t = redis.call('TIME')
local now, u = math.floor((t[1] * 1000000 + t[2]) / unit), 0
local v = redis.call('GET', KEYS[3])
if v and #v == 14 then
  local backlog, at = struct.unpack('<I7I7', v)
  if now - at >= -w then u = math.max(0, backlog - math.max(0, now - at) * limit) end
end
if u > 0 then return {0, math.ceil(u / limit), 0} end
-- Coming late does not slow the rest down, but never are two closer than half an
-- interval.
local add = tonumber(ARGV[6]) * w
u = math.max(math.ceil(add / 2), add - tonumber(ARGV[7]) * limit)
redis.call('DEL', KEYS[3]) -- a full Redis allows what takes memory after this alone; see lock.go
redis.call('PSETEX', KEYS[3], math.max(1, math.ceil(math.ceil(u / limit) * unit / 1000)), struct.pack('<I7I7', u, now))
redis.call('HSET', KEYS[4], 'state', 'delivering')
return {1, redis.call('HINCRBY', KEYS[4], 'deliveries', 1), math.ceil(u / limit)}
