-- The script of a request with several hits: limiter.Evaluate, step by step.
-- ARGV[1] begins with a byte: 1 to charge each hit on its own, else 0.
local EACH = string.byte(ARGV[1]) == 1
local hits, counters, functions = {}, {}, {}
local asked, passing = {}, {} -- by counter: cost of the hits before, as check says

-- counter is the hit's counter, read once, and the functions of its algorithm.
local function counter(h)
  local f = functions[h.algorithm]
  if not f then
    f = algorithms[h.algorithm]()
    functions[h.algorithm] = f
  end
  local s = counters[h.slot]
  if not s then
    s = f.load(KEYS[h.slot], h, h.now)
    s.first = h
    counters[h.slot] = s
  end
  return s, f
end

local function give_back(h)
  h.allowed, h.delay = true, 0
  if h.limit == 0 or h.cost == 0 or h.leaky then return end -- a leaky bucket has promised its places
  local s, f = counter(h)
  if f.used(s, h) > 0 then
    f.refund(s, h, h.cost)
    s.changed = h
  end
end

-- check says whether the hit alone passes, with what is ahead of it on its
-- counter: all that enforced hits ask for, but of shadow and quota hits, and for
-- a look, only what passes.
local function check(h)
  local slot, ahead = h.slot, 0
  if not EACH then ahead = (h.cost == 0 and passing or asked)[slot] or 0 end
  h.allowed, h.delay, h.ahead = false, 0, ahead
  if h.limit > 0 then
    local s, f = counter(h)
    h.allowed = f.used(s, h) + h.cost + ahead <= h.capacity
    if h.allowed and h.leaky and h.cost > 0 then
      h.delay = f.turn(s, h, ahead)
      h.allowed = h.delay <= h.patience
    end
  end
  if h.allowed then passing[slot] = (passing[slot] or 0) + h.cost end
  if h.allowed or h.kind ~= SHADOW and h.kind ~= QUOTA then asked[slot] = (asked[slot] or 0) + h.cost end
end

local function charge(h, passes)
  if h.cost == 0 or h.limit == 0 then return end
  if h.allowed and passes or h.denied == 1 and not h.allowed and h.delay == 0 then
    local s, f = counter(h)
    f.charge(s, h, h.cost)
    s.changed = h
  end
end

-- all_pass tells whether no enforced hit refuses, and not every quota hit does.
local function all_pass()
  local quotas, refusing = 0, 0
  for _, h in ipairs(hits) do
    if h.kind == QUOTA then
      quotas = quotas + 1
      if not h.allowed then refusing = refusing + 1 end
    elseif h.kind ~= SHADOW and not h.allowed then
      return false
    end
  end
  return quotas == 0 or refusing < quotas
end

local function save()
  for slot, s in pairs(counters) do
    local h = s.changed
    if h then
      functions[h.algorithm].save(KEYS[slot], s, h, h.now)
    elseif redis.call('PTTL', KEYS[slot]) == -1 then -- it might refuse for ever
      h = s.first
      functions[h.algorithm].save(KEYS[slot], s, h, h.now)
      healed = healed + 1
    end
  end
end

-- describe adds the state after the whole request to the reply.
local function describe(reply, h, passes)
  if h.limit == 0 then
    for _, v in ipairs({h.allowed and 1 or 0, 0, 0, 0, 0}) do reply[#reply + 1] = v end
    return
  end
  local s, f = counter(h)
  local retry = 0
  if not h.allowed then
    local ahead = passes and 0 or h.ahead -- else what was ahead is charged by now
    local holds = h.leaky and h.cost > 0
    if h.cost + ahead <= h.capacity and not (holds and f.turn({u = 0}, h, ahead) > h.patience) then
      retry = f.wait(s, h, h.cost + ahead)
      if holds then retry = math.max(retry, f.turn(s, h, ahead) - h.patience) end
    end
  end
  local n = #reply
  reply[n + 1] = h.allowed and 1 or 0
  reply[n + 2], reply[n + 3], reply[n + 4] = f.used(s, h), f.reset(s, h), retry
  reply[n + 5] = h.allowed and passes and h.delay or 0
end

local at = 2
while at <= #ARGV[1] do
  local h = read(at)
  h.now = clock(h)
  hits[#hits + 1], at = h, h.after
  if h.limit > 0 then counter(h) end
end
if outside then return {-1} end

for _, h in ipairs(hits) do
  if h.kind == REFUND then give_back(h) end
end
local passes = true
for _, h in ipairs(hits) do
  if h.kind ~= REFUND then
    check(h)
    if EACH then charge(h, true) end
  end
end
if not EACH then
  passes = all_pass()
  for _, h in ipairs(hits) do
    if h.kind ~= REFUND then charge(h, passes) end
  end
end
save()
local reply = {dropped, healed}
for _, h in ipairs(hits) do describe(reply, h, passes) end
return reply
