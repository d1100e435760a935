-- The common case of fixed.lua and single.lua together, without making a function
-- or a table, and reading no more of the record (see read.lua) than it needs: a hit
-- that passes and charges, in a window of fixed length, on a counter that is new or
-- of this window. Adding tells what was there, so that is not asked for before;
-- else it is taken off again, and the rest of the script decides. It saves two
-- fifths of Redis's time. The reply has Redis's clock in µs as its third number.
do
  local kind, unit, cost, capacity, w = struct.unpack('<xBxBxxxxI5I6xxxxI5', ARGV[1])
  if kind ~= REFUND and cost > 0 and unit < 2 then
    local now, ms = micros, 1000
    if unit > 0 then now, ms = math.floor(micros / 1000), 1 end
    local n = math.floor(now / w)
    local left, start = (n + 1) * w - now, n % 524288 * 8589934592 -- see SHIFT and TAGS
    local v = added or redis.pcall('INCRBY', KEYS[1], cost)
    if type(v) == 'number' then
      local used = v - start
      if v == cost and cost <= capacity then
        redis.call('PSETEX', KEYS[1], math.max(1, math.ceil(left / ms)) + slack, start + cost)
        return {cost, left, micros}
      elseif used > cost and used < 8589934592 and used <= capacity then
        return {used, left, micros}
      elseif v == cost then
        redis.call('DEL', KEYS[1])
      else
        redis.call('DECRBY', KEYS[1], cost)
      end
    end
  end
end
