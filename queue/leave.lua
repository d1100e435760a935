-- Takes a request out of a queue, for good or to those that were given up.
--
-- KEYS: the stream; the request's record; what the queue is (about); the stream of
--   those that were given up; and the string of its idempotency key, if it has one.
-- ARGV: 1 its entry; 2 done, failed or dropped; 3 the HTTP status; 4 why; 5 how many
--   ms its record is kept; 6 the group of consumers.
-- Reply: 1, or 0 if it was not there any more.
local entry, state, status, why, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local found = redis.call('XRANGE', KEYS[1], entry, entry)
if #found == 0 then return 0 end
redis.call('XACK', KEYS[1], ARGV[6], entry) -- first: a full Redis allows what takes memory after this alone
if state == 'failed' then
  local fields = found[1][2]
  for _, word in ipairs({'status', status, 'why', why}) do fields[#fields + 1] = word end
  redis.call('XADD', KEYS[4], '*', unpack(fields))
end
redis.call('XDEL', KEYS[1], entry)
redis.call('HINCRBY', KEYS[3], 'left', 1)
local t = redis.call('TIME')
redis.call('HSET', KEYS[2], 'state', state, 'status', status, 'why', why, 'until', t[1] * 1000 + math.floor(t[2] / 1000))
if state ~= 'failed' then -- that one is kept until an operator decides
  redis.call('PEXPIRE', KEYS[2], keep)
  if KEYS[5] then redis.call('PEXPIRE', KEYS[5], keep) end
end
return 1
