-- The common case of fixed.lua and single.lua together, without making a function
-- or a table: a hit that passes and charges, in a window of fixed length, on a
-- counter that is new or of this window. Else the rest of the script decides. It
-- saves a quarter of Redis's time.
if kind ~= REFUND and cost > 0 and not calendar then
  local n = math.floor(now / w)
  local left, start = (n + 1) * w - now, n % 524288 * 8589934592 -- see SHIFT and TAGS
  local v = redis.pcall('GET', KEYS[1])
  if not v then
    if cost <= capacity then
      redis.call('PSETEX', KEYS[1], math.max(1, math.ceil(left / ms)) + slack, start + cost)
      return {0, 0, 1, cost, left}
    end
  else
    local used = (type(v) == 'string' and tonumber(v) or 0) - start
    if used > 0 and used < 8589934592 and used % 1 == 0 and used + cost <= capacity then
      redis.call('INCRBY', KEYS[1], cost)
      return {0, 0, 1, used + cost, left}
    end
  end
end
