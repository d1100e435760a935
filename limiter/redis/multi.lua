-- The script of a request with several hits: limiter.Evaluate, step by step.
-- ARGV[1] begins with a byte, the mode: 0 all or nothing; 1 each hit on its own;
-- and for the parts of a request that a cluster keeps in several slots: 2 all or
-- nothing of this part, whose quota hits refuse nothing, with a receipt for each
-- hit as another number of the reply; 3 another part has refused the request.
local MODE = string.byte(ARGV[1])
local EACH, PART, REFUSED = MODE == 1, MODE == 2, MODE == 3
local hits, counters, functions = {}, {}, {}
local opened, changed = {}, {} -- by counter: its first hit, and the last one that changed it
local shared = false -- whether hits share a counter
local asked, passing = {}, {} -- by counter, if shared: cost of the hits before, as check says

-- rarely returns the functions of an algorithm that few requests need.
local function rarely(f)
  f.made = f.made or f.rare()
  return f.made
end

-- find gives the hit its counter, read once, and the functions of its algorithm.
local function find(h)
  local f, slot = functions[h.algorithm], h.slot
  if not f then
    f = algorithms[h.algorithm]()
    functions[h.algorithm] = f
  end
  h.f = f
  if opened[slot] then
    shared = true
  else
    opened[slot], counters[slot] = h, f.load(KEYS[slot], h)
    if foreign then
      redis.call('DEL', KEYS[slot])
      foreign, healed = false, healed + 1
    end
  end
  h.s = counters[slot]
end

-- check says whether the hit alone passes, with what is ahead of it on its
-- counter: all that enforced hits ask for, but of shadow and quota hits, and for a
-- look, only what passes.
local function check(h)
  local together, slot = shared and not EACH, h.slot
  if together then h.ahead = (h.cost == 0 and passing or asked)[slot] or 0 end
  if h.limit > 0 then
    local used, reset = h.f.look(h.s, h)
    h.allowed = used + h.cost + h.ahead <= h.capacity
    if h.allowed and h.leaky and h.cost > 0 then
      h.delay = h.ahead == 0 and reset or rarely(h.f).turn(h.s, h, h.ahead)
      h.allowed = h.delay <= h.patience
    end
  end
  if together then
    if h.allowed then passing[slot] = (passing[slot] or 0) + h.cost end
    if h.allowed or h.kind ~= SHADOW and h.kind ~= QUOTA then asked[slot] = (asked[slot] or 0) + h.cost end
  end
end

local function charge(h, passes)
  if h.cost == 0 or h.limit == 0 then return end
  if h.allowed and passes or h.denied == 1 and not h.allowed and h.delay == 0 then
    h.f.charge(h.s, h, h.cost)
    h.queued = h.s.queued and h.kind ~= SHADOW
    changed[h.slot] = h
  end
end

-- retry_after is the time until the hit passes together with what is ahead of it.
local function retry_after(h, before)
  local f, s, holds = rarely(h.f), h.s, h.leaky and h.cost > 0
  if h.cost + before > h.capacity or holds and f.turn({u = 0}, h, before) > h.patience then return 0 end
  local wait = f.wait(s, h, h.cost + before)
  if holds then wait = math.max(wait, f.turn(s, h, before) - h.patience) end
  return wait
end

local at, last, count = 2, #ARGV[1], 0
local refunds, quotas, quotas_refusing, passes = false, 0, 0, not REFUSED
while at <= last do
  local h = read(at)
  count = count + 1
  hits[count], at = h, h.after
  if h.limit > 0 then find(h) end
  refunds = refunds or h.kind == REFUND
end
if outside then return {-1} end

for i = 1, refunds and count or 0 do
  local h = hits[i]
  if h.kind == REFUND then
    h.allowed = true
    if h.limit > 0 and h.cost > 0 and not h.leaky and h.f.look(h.s, h) > 0 then -- a leaky bucket has promised its places
      rarely(h.f).refund(h.s, h, h.cost)
      changed[h.slot] = h
    end
  end
end
for i = 1, count do
  local h = hits[i]
  if h.kind ~= REFUND then
    check(h)
    if EACH then
      charge(h, true)
    elseif h.kind == QUOTA then
      quotas = quotas + 1
      if not h.allowed then quotas_refusing = quotas_refusing + 1 end
    elseif h.kind ~= SHADOW and not h.allowed then
      passes = false
    end
  end
end
if quotas > 0 and quotas == quotas_refusing and not PART then passes = false end
if not EACH then
  for i = 1, count do
    if hits[i].kind ~= REFUND then charge(hits[i], passes) end
  end
end

for slot, s in pairs(counters) do
  local h = changed[slot]
  if h then
    h.f.save(KEYS[slot], s, h)
  else
    h = opened[slot]
    local ttl = redis.call('PTTL', KEYS[slot])
    if ttl == -1 then -- it might refuse for ever
      h.f.save(KEYS[slot], s, h)
      healed = healed + 1
    elseif (h.algorithm == 1 or h.algorithm == 2) and ttl >= 0 then
      local _, reset = h.f.look(s, h)
      if (ttl + 2) * h.ms < reset then redis.call('PEXPIRE', KEYS[slot], math.ceil(reset / h.ms) + slack) end -- its rate was lowered
    end
  end
end

local reply, n = {dropped, healed}, 2
for i = 1, count do
  local h, used, reset, wait, queued = hits[i], 0, 0, 0, 0
  if h.limit > 0 then
    if not h.allowed then
      wait = retry_after(h, passes and 0 or h.ahead) -- if it passes, what was ahead is charged by now
    elseif h.queued then
      wait, queued = h.s.delay, 4
    elseif passes then
      wait = h.delay
    end
    used, reset = h.f.look(h.s, h)
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = (h.allowed and 1 or 0) + (wait > 0 and 2 or 0) + queued, used, reset
  n = n + 3
  if wait > 0 then
    n = n + 1
    reply[n] = wait
  end
  if PART then
    n = n + 1
    reply[n] = h.limit > 0 and h.allowed and passes and rarely(h.f).receipt(h.s) or -1
  end
end
return reply
