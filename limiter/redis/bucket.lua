-- token_bucket and leaky_bucket. Their counter is 14 bytes: the backlog U, and
-- the time at which it was so.
local function drain_time(backlog, p) return math.ceil(math.max(0, backlog) / p.limit) end

local function load(key, p, now)
  local s = {now = now, u = 0}
  local v = redis.pcall('GET', key)
  if not v then return s end
  if type(v) ~= 'string' or #v ~= 14 then return heal(key, s) end
  local u, at = struct.unpack('<I7I7', v)
  if u == 0 then return s end
  if at > now then -- the clock stepped back
    if at - now > p.w then
      dropped = dropped + 1
    else
      s.now, s.u = at, u
    end
    return s
  end
  s.u = math.max(0, u - (now - at) * p.limit)
  return s
end

local function used(s, p) return math.ceil(s.u / p.w) end

local function wait(s, p, cost) return drain_time(s.u - (p.capacity - cost) * p.w, p) end

local function charge(s, p, cost) s.u = s.u + math.min(cost * p.w, math.max(0, p.most - s.u)) end

local function refund(s, p, cost) s.u = math.max(0, s.u - cost * p.w) end

local function reset(s, p) return drain_time(s.u, p) end

-- turn is when a request behind cost ahead of it departs.
local function turn(s, p, ahead) return drain_time(s.u + ahead * p.w, p) end

local function save(key, s, p, now)
  if s.u == 0 then return redis.call('DEL', key) end
  redis.call('PSETEX', key, ttl(s.now + drain_time(s.u, p) - now, p), struct.pack('<I7I7', s.u, s.now))
end

-- A bucket needs no receipt: what has drained since, drained for all.
local function receipt() return 0 end

local function give_back(s, p, cost) refund(s, p, cost) end
