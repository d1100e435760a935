-- Puts a request that was given up behind those that wait, or drops it.
--
-- KEYS: the stream; the request's record; what the queue is (about); the stream of
--   those that were given up; and the string of its idempotency key, if it has one.
-- ARGV: 1 its entry there; 2 waiting or dropped; 3 how many ms its record is kept.
-- Reply: 1, or 0 if it was not there any more.
local found = redis.call('XRANGE', KEYS[4], ARGV[1], ARGV[1])
if #found == 0 then return 0 end
redis.call('XDEL', KEYS[4], ARGV[1])
if ARGV[2] == 'dropped' then
  redis.call('HSET', KEYS[2], 'state', 'dropped')
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  if KEYS[5] then redis.call('PEXPIRE', KEYS[5], ARGV[3]) end
  return 1
end
local fields = {}
for i = 1, 8 do fields[i] = found[1][2][i] end -- id, request, cost, once: not why it failed
local entry = redis.call('XADD', KEYS[1], '*', unpack(fields))
redis.call('HSET', KEYS[2], 'state', 'waiting', 'entry', entry, 'place', redis.call('HINCRBY', KEYS[3], 'appended', 1), 'tries', 0)
redis.call('HDEL', KEYS[2], 'status', 'why', 'until')
return 1
