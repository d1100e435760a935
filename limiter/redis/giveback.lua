-- The script that takes back what a part of a request was charged, since another
-- part of it, in another slot of the cluster, was refused. Of each hit the record
-- has the receipt in place of the patience; the reply is as of refunds.
local reply, at = {dropped, healed}, 1
while at <= #ARGV[1] do
  local h = read(at)
  at = h.after
  local f = algorithms[h.algorithm]()
  local s = f.load(KEYS[h.slot], h)
  if outside then return {-1} end
  if f.look(s, h) > 0 then
    f.rare().give_back(s, h, h.cost, h.patience)
    f.save(KEYS[h.slot], s, h)
  end
  local used, reset = f.look(s, h)
  reply[#reply + 1] = 1
  reply[#reply + 1] = used
  reply[#reply + 1] = reset
end
return reply
