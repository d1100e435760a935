-- The common case of multi.lua, without making a function or a table for each hit:
-- all hits are enforced, of fixed windows of fixed length, on counters of their
-- own that are new or of this window, and pass. Else the rest of the script
-- decides. It saves two fifths of Redis's time.
if string.byte(ARGV[1]) == 0 then -- all or nothing
  local at, last, n, plain = 2, #ARGV[1], 0, true
  local costs, counts, lefts, values = {}, {}, {}, {} -- values[i]: of a new counter, with its time to live before it
  while plain and at <= last do
    --- read.lua stands here
    at, n = after, n + 1
    plain = algorithm == 0 and kind == 0 and cost > 0 and limit > 0 and not calendar and slot == n -- a second hit on a counter has its slot
    if plain then
      local window = math.floor(now / w)
      local left, start = (window + 1) * w - now, window % 524288 * 8589934592 -- see SHIFT and TAGS in fixed.lua
      local v, used = redis.pcall('GET', KEYS[n]), 0
      if v then
        used = (type(v) == 'string' and tonumber(v) or 0) - start
        plain = used > 0 and used < 8589934592 and used % 1 == 0
      else
        values[2 * n - 1], values[2 * n] = math.max(1, math.ceil(left / ms)) + slack, start + cost
      end
      costs[n], counts[n], lefts[n] = cost, used + cost, left
      plain = plain and used + cost <= capacity
    end
  end
  if plain then
    local reply = {0, 0}
    for i = 1, n do
      if values[2 * i] then
        redis.call('PSETEX', KEYS[i], values[2 * i - 1], values[2 * i])
      else
        redis.call('INCRBY', KEYS[i], costs[i])
      end
      reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = 1, counts[i], lefts[i]
    end
    return reply
  end
end
