-- The script of a request with several hits: limiter.Evaluate, step by step.
-- ARGV[1] begins with a byte, the mode: 0 all or nothing; 1 each hit on its own;
-- and for the parts of a request that a cluster keeps in several slots: 2 all or
-- nothing of this part, whose quota hits refuse nothing, with a receipt for each
-- hit as another number of the reply; 3 another part has refused the request.
local MODE = string.byte(ARGV[1])
local EACH, PART, REFUSED = MODE == 1, MODE == 2, MODE == 3
local hits, count, counters, functions = {}, 0, {}, {}
local first, changed = {}, {} -- by counter: its first hit, and the last one that changed it
local shared, refunds = false, false -- whether hits share a counter, and whether some are refunds
local asked, passing = {}, {} -- by counter, if shared: cost of the hits before, as check says

-- find gives the hit its counter, read once, and the functions of its algorithm.
local function find(h)
  local f, slot = functions[h.algorithm], h.slot
  if not f then
    f = algorithms[h.algorithm]()
    functions[h.algorithm] = f
  end
  h.f = f
  if first[slot] then
    shared = true
  else
    first[slot], counters[slot] = h, f.load(KEYS[slot], h, h.now)
  end
  h.s = counters[slot]
end

local function give_back(h)
  h.allowed = true
  if h.limit == 0 or h.cost == 0 or h.leaky then return end -- a leaky bucket has promised its places
  if h.f.used(h.s, h) > 0 then
    h.f.refund(h.s, h, h.cost)
    changed[h.slot] = h
  end
end

-- ahead is what the hit must pass together with on its counter: all that enforced
-- hits before it ask for, but of shadow and quota hits, and for a look, only what
-- passes.
local function ahead(h)
  return (h.cost == 0 and passing or asked)[h.slot] or 0
end

local function ask(h)
  local slot = h.slot
  if h.allowed then passing[slot] = (passing[slot] or 0) + h.cost end
  if h.allowed or h.kind ~= SHADOW and h.kind ~= QUOTA then asked[slot] = (asked[slot] or 0) + h.cost end
end

-- check says whether the hit alone passes.
local function check(h)
  local together = shared and not EACH
  if together then h.ahead = ahead(h) end
  if h.limit > 0 then
    h.allowed = h.f.used(h.s, h) + h.cost + h.ahead <= h.capacity
    if h.allowed and h.leaky and h.cost > 0 then
      h.delay = h.f.turn(h.s, h, h.ahead)
      h.allowed = h.delay <= h.patience
    end
  end
  if together then ask(h) end
end

local function charge(h, passes)
  if h.cost == 0 or h.limit == 0 then return end
  if h.allowed and passes or h.denied and not h.allowed and h.delay == 0 then
    h.f.charge(h.s, h, h.cost)
    changed[h.slot] = h
  end
end

-- all_pass tells whether no enforced hit refuses, and not every quota hit does.
local function all_pass()
  local quotas, refusing = 0, 0
  for i = 1, count do
    local h = hits[i]
    if h.kind == QUOTA then
      quotas = quotas + 1
      if not h.allowed then refusing = refusing + 1 end
    elseif h.kind ~= SHADOW and not h.allowed then
      return false
    end
  end
  return PART or quotas == 0 or refusing < quotas
end

local function save()
  for slot, s in pairs(counters) do
    local h = changed[slot]
    if h then
      h.f.save(KEYS[slot], s, h, h.now)
    elseif redis.call('PTTL', KEYS[slot]) == -1 then -- it might refuse for ever
      h = first[slot]
      h.f.save(KEYS[slot], s, h, h.now)
      healed = healed + 1
    end
  end
end

-- retry_after is the time until the hit passes together with what is ahead of it.
local function retry_after(h, before)
  local f, s, holds = h.f, h.s, h.leaky and h.cost > 0
  if h.cost + before > h.capacity or holds and f.turn({u = 0}, h, before) > h.patience then return 0 end
  local wait = f.wait(s, h, h.cost + before)
  if holds then wait = math.max(wait, f.turn(s, h, before) - h.patience) end
  return wait
end

local at, last = 2, #ARGV[1]
while at <= last do
  local h = read(at)
  count = count + 1
  hits[count], at = h, h.after
  if h.limit > 0 then find(h) end
  if h.kind == REFUND then refunds = true end
end
if outside then return {-1} end

if refunds then
  for i = 1, count do
    if hits[i].kind == REFUND then give_back(hits[i]) end
  end
end
local passes = true
for i = 1, count do
  local h = hits[i]
  if h.kind ~= REFUND then
    check(h)
    if EACH then charge(h, true) end
  end
end
if not EACH then
  passes = all_pass() and not REFUSED
  for i = 1, count do
    if hits[i].kind ~= REFUND then charge(hits[i], passes) end
  end
end
save()
local reply = {dropped, healed}
for i = 1, count do
  local h, used, reset, wait = hits[i], 0, 0, 0
  if h.limit > 0 then
    if not h.allowed then
      wait = retry_after(h, passes and 0 or h.ahead) -- if it passes, what was ahead is charged by now
    elseif passes then
      wait = h.delay
    end
    used, reset = h.f.used(h.s, h), h.f.reset(h.s, h)
  end
  append(reply, h.allowed, used, reset, wait)
  if PART then reply[#reply + 1] = h.limit > 0 and h.allowed and passes and h.f.receipt(h.s) or -1 end
end
return reply
