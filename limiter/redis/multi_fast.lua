-- The common case of multi.lua, without making a function or a table for each hit:
-- all hits are enforced, of fixed windows of fixed length, on counters of their
-- own that are new or of this window, and pass. Adding tells what was there, so that
-- is not asked for before; if one does not pass, what was added is taken off again,
-- and the rest of the script decides. It saves half of Redis's time.
if string.byte(ARGV[1]) == 0 then -- all or nothing
  local at, last, n, plain = 2, #ARGV[1], 0, true
  local costs, capacities, starts, lefts, units = {}, {}, {}, {}, {}
  while plain and at <= last do
    --- read.lua stands here
    at, n = after, n + 1
    plain = algorithm == 0 and kind == 0 and cost > 0 and limit > 0 and not calendar and slot == n -- a second hit on a counter has its slot
    local window = math.floor(now / w)
    costs[n], capacities[n], units[n] = cost, capacity, ms
    lefts[n], starts[n] = (window + 1) * w - now, window % 524288 * 8589934592 -- see SHIFT and TAGS in fixed.lua
  end
  local reply, added = {0, 0}, 0
  while plain and added < n do
    local i = added + 1
    local cost, v = costs[i], redis.pcall('INCRBY', KEYS[i], costs[i])
    plain = type(v) == 'number'
    if plain then
      added = i
      local used = v - starts[i]
      if v == cost then -- it is new
        used, plain = cost, cost <= capacities[i]
        if plain then redis.call('PSETEX', KEYS[i], math.max(1, math.ceil(lefts[i] / units[i])) + slack, starts[i] + cost) end
        starts[i] = nil
      else
        plain = used > cost and used < 8589934592 and used <= capacities[i]
      end
      reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = 1, used, lefts[i]
    end
  end
  if plain then return reply end
  for i = 1, added do
    if starts[i] then
      redis.call('DECRBY', KEYS[i], costs[i])
    else
      redis.call('DEL', KEYS[i])
    end
  end
end
