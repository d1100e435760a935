-- fixed_window. Its counter is one whole number, tag × 2^33 + count: a string of
-- digits, which Redis keeps as an integer. The tag tells windows apart: the
-- number of the window since 1970 (of a calendar window, the hour at which it
-- begins), modulo 2^19.
local SHIFT, TAGS = 8589934592, 524288

local function load(key, p)
  local now, tag, stop, next_tag, next_stop = p.now, nil, nil, nil, nil
  if not p.calendar then
    local n = math.floor(now / p.w)
    tag, stop, next_tag, next_stop = n % TAGS, (n + 1) * p.w, (n + 1) % TAGS, (n + 2) * p.w
  elseif now < p.second then
    tag, stop = math.floor(p.first / 3600000) % TAGS, p.second
    next_tag, next_stop = math.floor(p.second / 3600000) % TAGS, p.third
    outside = outside or now < p.first
  else
    tag, stop = math.floor(p.second / 3600000) % TAGS, p.third
    outside = outside or now >= p.third
  end
  local s = {now = now, tag = tag, stop = stop, count = 0, stored = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  v = type(v) == 'string' and tonumber(v)
  if not v or v < 0 or v % 1 ~= 0 or v >= SHIFT * TAGS then
    foreign = true
    return s
  end
  local count = v % SHIFT
  local at = (v - count) / SHIFT
  if count == 0 then
    return s
  elseif at == tag then
    s.count, s.stored = count, count
  elseif at == next_tag then -- the clock stepped back
    s.now, s.tag, s.stop, s.count, s.stored = stop, next_tag, next_stop, count, count
  elseif (at - tag) % TAGS < TAGS / 2 then
    dropped = dropped + 1
  end
  return s
end

local function look(s)
  if s.count == 0 then return 0, 0 end
  return s.count, s.stop - s.now
end

local function charge(s, p, cost) s.count = s.count + math.min(cost, math.max(0, p.most - s.count)) end

-- save adds to what stands there for this window, which costs less than a new
-- value and keeps its time to live; one without gets one where the counter
-- refuses, and in any case with its next window.
local function save(key, s, p)
  if s.count == 0 then return redis.call('DEL', key) end
  if s.stored > 0 and s.count ~= s.stored then return redis.call('INCRBY', key, s.count - s.stored) end
  redis.call('PSETEX', key, math.max(1, math.ceil((s.stop - p.now) / p.ms)) + slack, s.tag * SHIFT + s.count)
end

--- rare

local function wait(s, p, cost)
  if s.count + cost <= p.limit then return 0 end
  return s.stop - s.now
end

local function refund(s, p, cost) s.count = s.count - math.min(cost, s.count) end

-- A receipt names the window that was charged.
local function receipt(s) return s.tag end

local function give_back(s, p, cost, to)
  if s.tag == to then refund(s, p, cost) end
end
