-- The script of a request with one hit: what multi.lua does, without its tables.
-- A field of the hit, p.cost, is here a local variable, cost.
local p
local key = KEYS[1]
local s = load(key, p)
if outside then return {-1} end
if foreign then
  redis.call('DEL', key)
  healed = 1
end
local used, reset = look(s, p)
local passes, delay = used + p.cost <= p.capacity, 0
if p.leaky and p.cost > 0 then delay = reset end -- its turn comes when the backlog has drained
if passes and delay <= p.patience and p.kind ~= REFUND then
  if p.cost > 0 then
    charge(s, p, p.cost)
    save(key, s, p)
    used, reset = look(s, p)
  end
  if s.queued then return {dropped, healed, 7, used, reset, s.delay} end
  if delay > 0 then return {dropped, healed, 3, used, reset, delay} end
  return {dropped, healed, 1, used, reset}
end

--- rare functions stand here

if p.kind == REFUND then
  if p.cost > 0 and used > 0 and not p.leaky then -- a leaky bucket has promised its places
    refund(s, p, p.cost)
    save(key, s, p)
    used, reset = look(s, p)
  end
  return {dropped, healed, 1, used, reset}
end
if p.denied == 1 and not passes and p.cost > 0 then
  charge(s, p, p.cost)
  save(key, s, p)
  used, reset = look(s, p)
else
  local ttl = redis.call('PTTL', key)
  if ttl == -1 then -- it might refuse for ever
    save(key, s, p)
    healed = healed + 1
  elseif (p.algorithm == 1 or p.algorithm == 2) and ttl >= 0 and (ttl + 2) * p.ms < reset then -- its rate was lowered
    redis.call('PEXPIRE', key, math.ceil(reset / p.ms) + slack)
  end
end
local retry = 0
if p.cost <= p.capacity then
  retry = wait(s, p, p.cost)
  if p.leaky and p.cost > 0 then retry = math.max(retry, reset - p.patience) end
end
if retry > 0 then return {dropped, healed, 2, used, reset, retry} end
return {dropped, healed, 0, used, reset}
