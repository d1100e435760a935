-- fixed_window. Its counter is one whole number, tag × 2^33 + count: a string of
-- digits, which Redis keeps as an integer. The tag tells windows apart: the
-- number of the window since 1970 (of a calendar window, the hour at which it
-- begins), modulo 2^19.
local SHIFT, TAGS = 8589934592, 524288

local function load(key, p)
  local tag, stop
  if p.calendar then
    local start = p.now < p.second and p.first or p.second
    tag, stop = math.floor(start / 3600000) % TAGS, start == p.first and p.second or p.third
    outside = outside or p.now < start or p.now >= stop
  else
    local n = math.floor(p.now / p.w)
    tag, stop = n % TAGS, (n + 1) * p.w
  end
  local s = {now = p.now, tag = tag, stop = stop, count = 0, stored = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  v = type(v) == 'string' and tonumber(v)
  if not v or v < 0 or v % 1 ~= 0 or v >= SHIFT * TAGS then
    foreign = true
    return s
  end
  local count = v % SHIFT
  local at = (v - count) / SHIFT
  if at == tag then
    s.count, s.stored = count, count
  elseif count > 0 and (at - tag) % TAGS < TAGS / 2 then -- the clock stepped back
    local next_tag, next_stop = (tag + 1) % TAGS, stop + p.w
    if p.calendar then next_tag, next_stop = math.floor(stop / 3600000) % TAGS, stop < p.third and p.third or 0 end
    if at == next_tag and next_stop > 0 then
      s.now, s.tag, s.stop, s.count, s.stored = stop, at, next_stop, count, count
    else
      dropped = dropped + 1
    end
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
  local stored = s.stored
  s.stored = s.count
  if stored > 0 and s.count ~= stored then return redis.call('INCRBY', key, s.count - stored) end
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
