#!lua flags=allow-oom
-- break.lua - takes a hold away by force; the token proves that the caller saw who holds.
--
-- KEYS  as in common.lua
-- ARGV  1 token  2 history  3 age
-- answers  how many ids held with that token: 0, nobody
-- cost  reads every holder of the name
local call = redis.call
local clock, AGE = call('TIME'), ARGV[3]
-- common.lua
return (function()
-- common.lua
history = ARGV[2] ~= '0' and tonumber(ARGV[2])
local trouble = look()
if trouble then return trouble end
read_counter(call('GET', counter))
reap()
local broken = 0
local ids = form == 'plain' and { plain.id } or form == 'many' and call('ZRANGE', ends, 0, -1) or {}
for _, id in ipairs(ids) do
  local h = read_hold(id)
  if h and h.token == ARGV[1] then
    drop_hold(h, 'l')
    broken = broken + 1
  end
end
admit()
keep_counter()
return broken
end)()
