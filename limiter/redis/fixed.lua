-- fixed_window. Its counter is one whole number, tag × 2^33 + count: a string of
-- digits, which Redis keeps as an integer. The tag tells windows apart: the
-- number of the window since 1970 (of a calendar window, the hour at which it
-- begins), modulo 2^19.
local SHIFT, TAGS = 8589934592, 524288

-- bounds finds the window that now lies in: its tag, start and end.
local function bounds(p, now)
  if not p.calendar then
    local n = math.floor(now / p.w)
    return n % TAGS, n * p.w, (n + 1) * p.w
  end
  if now < p.first then outside = true end
  if now < p.second then return math.floor(p.first / 3600000) % TAGS, p.first, p.second end
  if now >= p.third then outside = true end
  return math.floor(p.second / 3600000) % TAGS, p.second, p.third
end

local function load(key, p, now)
  local tag, start, stop = bounds(p, now)
  local s = {now = now, tag = tag, stop = stop, count = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  v = type(v) == 'string' and tonumber(v)
  if not v or v < 0 or v ~= math.floor(v) or v >= SHIFT * TAGS then return heal(key, s) end
  local count = v % SHIFT
  local ahead = ((v - count) / SHIFT - tag) % TAGS
  if count == 0 then return s end
  if ahead == 0 then
    s.count = count
  elseif p.calendar then -- the next window is this one's tag, or far ahead, or long gone
    local ntag, nstart, nstop = bounds(p, stop)
    if (v - count) / SHIFT == ntag and ntag ~= tag then
      s = {now = nstart, tag = ntag, stop = nstop, count = count}
    elseif ahead < TAGS / 2 then
      dropped = dropped + 1
    end
  elseif ahead == 1 then -- the clock stepped back
    s = {now = stop, tag = (tag + 1) % TAGS, stop = stop + p.w, count = count}
  elseif ahead < TAGS / 2 then
    dropped = dropped + 1
  end
  return s
end

local function used(s, p) return s.count end

local function wait(s, p, cost)
  if s.count + cost <= p.limit then return 0 end
  return s.stop - s.now
end

local function charge(s, p, cost) s.count = s.count + math.min(cost, math.max(0, p.most - s.count)) end

local function refund(s, p, cost) s.count = s.count - math.min(cost, s.count) end

local function reset(s, p)
  if s.count == 0 then return 0 end
  return s.stop - s.now
end

local function save(key, s, p, now)
  if s.count == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, ttl(s.stop - now, p), s.tag * SHIFT + s.count)
end

-- A receipt names the window that was charged.
local function receipt(s) return s.tag end

local function give_back(s, p, cost, to)
  if s.tag == to then refund(s, p, cost) end
end
