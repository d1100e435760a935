-- token_bucket and leaky_bucket. Their counter is 14 bytes: the backlog U, and
-- the time at which it was so.
local function load(key, p)
  local s = {now = p.now, u = 0}
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

local function look(s, p) return math.ceil(s.u / p.w), math.ceil(s.u / p.limit) end

local function charge(s, p, cost) s.u = s.u + math.min(cost * p.w, math.max(0, p.most - s.u)) end

local function save(key, s, p)
  if s.u == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, math.max(1, math.ceil((s.now + math.ceil(s.u / p.limit) - p.now) / p.ms)) + slack,
    struct.pack('<I7I7', s.u, s.now))
end

--- rare

local function wait(s, p, cost)
  return math.ceil(math.max(0, s.u - (p.capacity - cost) * p.w) / p.limit)
end

-- turn is when a request behind cost ahead of it departs.
local function turn(s, p, ahead) return math.ceil((s.u + ahead * p.w) / p.limit) end

local function refund(s, p, cost) s.u = math.max(0, s.u - cost * p.w) end

-- A bucket needs no receipt: what has drained since, drained for all.
local function receipt() return 0 end

local function give_back(s, p, cost) refund(s, p, cost) end
