-- sliding_window_counter. Its counter is 16 bytes: the number of the window since
-- 1970, its hits, and those of the window before.
local function load(key, p, now)
  local n = math.floor(now / p.w)
  local s = {now = now, n = n, cur = 0, prev = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  if type(v) ~= 'string' or #v ~= 16 then return heal(key, s) end
  local at, cur, prev = struct.unpack('<I6I5I5', v)
  if cur == 0 and prev == 0 then return s end
  if at == n then
    s.cur, s.prev = cur, prev
  elseif at == n - 1 then
    s.prev = cur
  elseif at == n + 1 then -- the clock stepped back
    s = {now = at * p.w, n = at, cur = cur, prev = prev}
  elseif at > n then
    dropped = dropped + 1
  end
  return s
end

local function weighted(prev, x, w) return math.floor(prev * (w - x) / w) end

-- falls_to is the least x at which weighted is at most room.
local function falls_to(prev, room, w)
  if prev <= room then return 0 end
  local x = w - math.ceil((room + 1) * w / prev) + 1
  x = math.min(math.max(x, 0), w)
  while x > 0 and weighted(prev, x - 1, w) <= room do x = x - 1 end
  while weighted(prev, x, w) > room do x = x + 1 end
  return x
end

local function used(s, p) return weighted(s.prev, s.now - s.n * p.w, p.w) + s.cur end

local function wait(s, p, cost)
  local x = s.now - s.n * p.w
  local room = p.limit - cost - s.cur
  if room >= 0 then return math.max(0, falls_to(s.prev, room, p.w) - x) end
  return p.w - x + falls_to(s.cur, p.limit - cost, p.w)
end

local function charge(s, p, cost) s.cur = s.cur + math.min(cost, math.max(0, p.most - used(s, p))) end

local function refund(s, p, cost)
  local current = math.min(cost, s.cur)
  s.cur = s.cur - current
  s.prev = s.prev - math.min(cost - current, s.prev)
end

local function reset(s, p)
  local x = s.now - s.n * p.w
  if s.cur > 0 then return p.w - x + falls_to(s.cur, 0, p.w) end
  return math.max(0, falls_to(s.prev, 0, p.w) - x)
end

local function save(key, s, p, now)
  if s.cur == 0 and s.prev == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, ttl((s.n + 2) * p.w - now, p), struct.pack('<I6I5I5', s.n, s.cur, s.prev))
end

-- A receipt names the window that was charged.
local function receipt(s) return s.n end

local function give_back(s, p, cost, to)
  if s.n == to then
    s.cur = s.cur - math.min(cost, s.cur)
  elseif s.n == to + 1 then
    s.prev = s.prev - math.min(cost, s.prev)
  end
end
