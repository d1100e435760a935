-- The script that takes back what a part of a request was charged, since another
-- part of it, in another slot of the cluster, was refused. Of each hit the record
-- has the receipt in place of the patience; the reply is as of refunds.
local hits, counters, at = {}, {}, 1
while at <= #ARGV[1] do
  local h = read(at)
  hits[#hits + 1], at = h, h.after
  h.f = algorithms[h.algorithm]()
  h.s = counters[h.slot] or h.f.load(KEYS[h.slot], h)
  counters[h.slot] = h.s
end
if outside then return {-1} end

local reply = {dropped, healed}
for _, h in ipairs(hits) do
  if h.f.look(h.s, h) > 0 then
    h.f.rare().give_back(h.s, h, h.cost, h.patience)
    h.f.save(KEYS[h.slot], h.s, h)
  end
end
for _, h in ipairs(hits) do
  local used, reset = h.f.look(h.s, h)
  reply[#reply + 1] = 1
  reply[#reply + 1] = used
  reply[#reply + 1] = reset
end
return reply
