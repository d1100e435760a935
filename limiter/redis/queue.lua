-- leaky_bucket with a queue that takes what cannot depart at once (Hit.Overflow).
-- Its counter is that of bucket.lua, its queue a stream: KEYS[patience]. A hit takes
-- one place, cost, and charges p.most when it departs.
local function load(key, p)
  local s = {now = p.now, u = 0, waiting = redis.call('XLEN', KEYS[p.patience]), departed = false, queued = false, delay = 0, same = false}
  local v = redis.pcall('GET', key)
  if not v then return s end
  if type(v) ~= 'string' or #v ~= 14 then
    foreign = true
    return s
  end
  local u, at = struct.unpack('<I7I7', v)
  local elapsed = p.now - at
  if elapsed >= 0 then
    s.u = math.max(0, u - elapsed * p.limit)
  elseif u > 0 then -- the clock stepped back
    if elapsed < -p.w then
      dropped = dropped + 1
    else
      s.now, s.u = at, u
    end
  end
  return s
end

local function look(s, p)
  local waiting = s.waiting + (s.queued and 1 or 0)
  return waiting + ((waiting > 0 or s.u > 0) and 1 or 0), math.ceil((s.u + waiting * p.w) / p.limit)
end

local function charge(s, p)
  if s.waiting == 0 and (s.u == 0 or s.departed) then
    s.departed, s.u = true, math.min(s.u + p.most, 9007199254740991)
    return
  end
  s.same = true
  if p.kind ~= SHADOW then s.queued, s.delay = true, math.ceil((s.u + s.waiting * p.w) / p.limit) end
end

local function save(key, s, p)
  if s.same then return end -- who waits is charged when he departs
  if s.u == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, math.max(1, math.ceil((s.now + math.ceil(s.u / p.limit) - p.now) / p.ms)) + slack,
    struct.pack('<I7I7', s.u, s.now))
end

--- rare

-- wait is the time until a place is free: the next departure's.
local function wait(s, p)
  return math.ceil((s.u > 0 and s.u or p.w) / p.limit)
end

local function refund(s) s.same = true end -- places are promised

-- A cluster gives back as to bucket.lua, what was charged.
local function receipt(s) return s.departed and 0 or -1 end

local give_back
