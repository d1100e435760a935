-- The script of a request with one hit: what multi.lua does, without its tables.
local p = read(1)
local now = p.now
local s = load(KEYS[1], p, now)
if outside then return {-1} end

local allowed, wait_for = true, 0
if p.kind == REFUND then
  if p.cost > 0 and not p.leaky and used(s, p) > 0 then -- a leaky bucket has promised its places
    refund(s, p, p.cost)
    save(KEYS[1], s, p, now)
  end
else
  allowed = used(s, p) + p.cost <= p.capacity
  local counts, holds = allowed or p.denied, p.leaky and p.cost > 0
  if allowed and holds then
    wait_for = turn(s, p, 0)
    allowed = wait_for <= p.patience
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
    wait_for = 0
    if p.cost <= p.capacity then
      wait_for = wait(s, p, p.cost)
      if holds then wait_for = math.max(wait_for, turn(s, p, 0) - p.patience) end
    end
  end
end
local reply = {dropped, healed}
append(reply, allowed, used(s, p), reset(s, p), wait_for)
return reply
