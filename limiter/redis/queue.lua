-- leaky_bucket with a queue that takes what cannot depart at once (Hit.Overflow).
-- It comes after the first half of bucket.lua, whose counter it has, and takes the
-- place of most of its functions. The queue is a stream: KEYS[patience]. A hit takes
-- one place, cost, and charges p.most when it departs.
local load_bucket, save_bucket = load, save

local function load(key, p)
  local s = load_bucket(key, p)
  s.waiting, s.departed, s.queued, s.delay, s.same = redis.call('XLEN', KEYS[p.patience]), false, false, 0, false
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
  if not s.same then save_bucket(key, s, p) end -- who waits is charged when he departs
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
