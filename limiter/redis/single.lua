-- The script of a request with one hit: what multi.lua does, without its tables.
local p = read(1)
local now = clock(p)
local s = load(KEYS[1], p, now)
if outside then return {-1} end

local allowed, delay, retry = true, 0, 0
if p.kind == REFUND then
  if p.cost > 0 and not p.leaky and used(s, p) > 0 then -- a leaky bucket has promised its places
    refund(s, p, p.cost)
    save(KEYS[1], s, p, now)
  end
else
  allowed = used(s, p) + p.cost <= p.capacity
  local counts = allowed or p.denied == 1
  if allowed and p.leaky and p.cost > 0 then
    delay = turn(s, p, 0)
    allowed = delay <= p.patience
    counts = allowed
  end
  if counts and p.cost > 0 then
    charge(s, p, p.cost)
    save(KEYS[1], s, p, now)
  elseif not allowed and redis.call('PTTL', KEYS[1]) == -1 then -- it would refuse for ever
    save(KEYS[1], s, p, now)
    healed = healed + 1
  end
  if not allowed then
    delay = 0
    if p.cost <= p.capacity then
      retry = wait(s, p, p.cost)
      if p.leaky and p.cost > 0 then retry = math.max(retry, turn(s, p, 0) - p.patience) end
    end
  end
end
return {dropped, healed, allowed and 1 or 0, used(s, p), reset(s, p), retry, delay}
