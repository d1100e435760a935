-- The common case of bucket.lua and single.lua together, without making a function
-- or a table: a hit on a token bucket that passes and charges. Else the rest of the
-- script decides. It saves a quarter of Redis's time.
if kind ~= REFUND and cost > 0 and not leaky then
  local v, u, known = redis.pcall('GET', KEYS[1]), 0, false
  if not v then
    known = true
  elseif type(v) == 'string' and #v == 14 then
    local backlog, at = struct.unpack('<I7I7', v)
    known = at <= now
    u = math.max(0, backlog - (now - at) * limit)
  end
  u = u + cost * w
  if known and u <= capacity * w then
    local reset = math.ceil(u / limit)
    redis.call('PSETEX', KEYS[1], math.max(1, math.ceil(reset / ms)) + slack, struct.pack('<I7I7', u, now))
    return {0, 0, 1, math.ceil(u / w), reset}
  end
end
