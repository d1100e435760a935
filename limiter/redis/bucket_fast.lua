-- The common case of bucket.lua and single.lua together, without making a function
-- or a table, and reading no more of the record (see read.lua) than it needs: a hit
-- on a token bucket that passes and charges. Else the rest of the script decides. It
-- saves a third of Redis's time.
do
  local kind, unit, cost, capacity, limit, w = struct.unpack('<xBxBxxxxI5I6I4I5', ARGV[1])
  if kind ~= REFUND and cost > 0 then
    local now, ms = micros, 1000
    if unit > 0 then now, ms = math.floor(micros / 1000), 1 end
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
      return {math.ceil(u / w), reset}
    end
  end
end
