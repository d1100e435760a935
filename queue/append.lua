-- Puts a request into a queue, at once or not at all.
--
-- KEYS: the stream; the request's record; what the queue is (about); the counter;
--   of a request with a ticket, the string of that ticket; and, of a request with an
--   idempotency key, the string of that key.
-- ARGV: 1 the request's id; 2 the request; 3 its cost; 4 the fingerprint of what the
--   ticket and the idempotency key stand for; 5 how many may wait; 6 the limit and 7
--   its window in units of time; 8 how many µs a unit has; 9 how many ms the ticket is
--   remembered, 0: there is none; from 10 on the fields of about.
-- Reply: {what, id, ahead, wait, new}: 1 stored, 2 it was there before, 3 the
--   idempotency key is another request's, 4 the ticket is, 0 the queue is full; how
--   many are before it; the units of time until it departs; and 1 if the queue was not
--   known here before.
local stream, record, about, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticket = tonumber(ARGV[9]) > 0 and KEYS[5]
local once = KEYS[ticket and 6 or 5]
local id, ahead, what, new = ARGV[1], 0, 1, 0
local others = 4
local known = ticket and redis.call('GET', ticket)
if not known then
  others = 3
  known = once and redis.call('GET', once)
end
if known then -- fingerprint, a space, id
  local space = string.find(known, ' ', 1, true)
  if string.sub(known, 1, space - 1) ~= ARGV[4] then return {others, '', 0, 0, 0} end
  what, id = 2, string.sub(known, space + 1)
end

local t = redis.call('TIME')
local limit, w, unit = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local waiting = redis.call('XLEN', stream)
if what == 1 and redis.call('EXISTS', record) == 1 then -- sent twice, by the client of a cluster
  ahead = math.max(0, waiting - 1)
elseif what == 1 then
  ahead = waiting
  if waiting >= tonumber(ARGV[5]) then return {0, '', ahead, 0, 0} end
  if redis.call('EXISTS', about) == 0 then
    redis.call('HSET', about, unpack(ARGV, 10))
    new = 1
  end
  local place = redis.call('HINCRBY', about, 'appended', 1)
  local entry = redis.call('XADD', stream, '*', 'id', id, 'request', ARGV[2], 'cost', ARGV[3], 'once', once or '')
  redis.call('HSET', record, 'state', 'waiting', 'entry', entry, 'place', place, 'since', t[1] * 1000 + math.floor(t[2] / 1000))
  if ticket then redis.call('SET', ticket, ARGV[4] .. ' ' .. id, 'PX', ARGV[9]) end
  if once then redis.call('SET', once, ARGV[4] .. ' ' .. id) end
else
  ahead = math.max(0, waiting - 1) -- at most: its place is in a record whose name this script was not told
end

local u, now = 0, math.floor((t[1] * 1000000 + t[2]) / unit)
local v = redis.call('GET', counter)
if v and #v == 14 then
  local backlog, at = struct.unpack('<I7I7', v)
  u = math.max(0, backlog - math.max(0, now - at) * limit)
end
local wait = limit > 0 and math.ceil((u + ahead * w) / limit) or 0
return {what, id, ahead, wait, new}
