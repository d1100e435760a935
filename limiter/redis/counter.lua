-- sliding_window_counter. Its counter is 16 bytes: the number of the window since
-- 1970, its hits, and those of the window before.
local function load(key, p)
  local n = math.floor(p.now / p.w)
  local s = {now = p.now, n = n, cur = 0, prev = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  if type(v) ~= 'string' or #v ~= 16 then
    foreign = true
    return s
  end
  local at, cur, prev = struct.unpack('<I6I5I5', v)
  if cur == 0 and prev == 0 then return s end
  if at == n then
    s.cur, s.prev = cur, prev
  elseif at == n - 1 then
    s.prev = cur
  elseif at == n + 1 then -- the clock stepped back
    s.now, s.n, s.cur, s.prev = at * p.w, at, cur, prev
  elseif at > n then
    dropped = dropped + 1
  end
  return s
end

-- falls_to is the least x at which what prev still counts is at most room.
local function falls_to(prev, room, w)
  if prev <= room then return 0 end
  local x = w - math.ceil((room + 1) * w / prev) + 1
  x = math.min(math.max(x, 0), w)
  while x > 0 and math.floor(prev * (w - x + 1) / w) <= room do x = x - 1 end
  while math.floor(prev * (w - x) / w) > room do x = x + 1 end
  return x
end

local function look(s, p)
  local w = p.w
  local x = s.now - s.n * w
  local used = math.floor(s.prev * (w - x) / w) + s.cur
  if s.cur > 0 then return used, w - x + falls_to(s.cur, 0, w) end
  return used, math.max(0, falls_to(s.prev, 0, w) - x)
end

local function charge(s, p, cost)
  local used = math.floor(s.prev * (p.w - s.now + s.n * p.w) / p.w) + s.cur
  s.cur = s.cur + math.min(cost, math.max(0, p.most - used))
end

local function save(key, s, p)
  if s.cur == 0 and s.prev == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, math.max(1, math.ceil(((s.n + 2) * p.w - p.now) / p.ms)) + slack,
    struct.pack('<I6I5I5', s.n, s.cur, s.prev))
end

--- rare

local function wait(s, p, cost)
  local x = s.now - s.n * p.w
  local room = p.limit - cost - s.cur
  if room >= 0 then return math.max(0, falls_to(s.prev, room, p.w) - x) end
  return p.w - x + falls_to(s.cur, p.limit - cost, p.w)
end

local function refund(s, p, cost)
  local current = math.min(cost, s.cur)
  s.cur = s.cur - current
  s.prev = s.prev - math.min(cost - current, s.prev)
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
