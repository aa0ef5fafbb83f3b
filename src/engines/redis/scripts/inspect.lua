#!lua flags=no-writes,allow-stale
-- inspect.lua - who holds a name, who waits, who held it. Changes nothing.
--
-- KEYS  as in common.lua
-- ARGV  1 p: past holds; n: now  2 the first waiter to show, from 0  3 how many
-- answers, n  {now, class, capacity, used, row ...}; a row is a string:
--          h left-ms count units token ttl kind meta        a holder; of an owner that entered again one row with the count
--          f left-ms                                        another client's lock; left -1: it has no end
--          w arrival units ttl kind meta                    a waiter, in their order
--          d                                                one that is dead
-- answers, p  {now, row ...}, the newest first:
--          token start until ended why units kind ttl meta  ended 0: by time, if nobody holds with that token; why: r, l, -
-- cost  reads everything about that name
local call = redis.call
local clock, AGE = call('TIME'), '0'
-- common.lua
return (function()
-- common.lua
local trouble = look()
if trouble then return trouble end
if plain then
  read_counter(call('GET', counter))
  if is_buried(plain.id) then form, class, capacity, used, plain = 'free', '', 0, 0, nil end -- as in ask.lua
end

local function is_held(token)
  if form == 'plain' then return plain.token == token end
  for _, id in ipairs(form == 'many' and call('ZRANGEBYSCORE', ends, whole(now), '+inf') or {}) do
    local h = read_hold(id)
    if h and h.token == token then return true end
  end
  return false
end

if ARGV[1] == 'p' then
  local rows, keep, age = { whole(now) }, 0, 0
  local notes = call('ZRANGE', past, 0, -1)
  if notes[1] then
    local k, a = notes[#notes]:match('^(%d+) (%d+)$')
    keep, age = tonumber(k) or 0, tonumber(a) or 0
  end
  for i = #notes - 1, 1, -1 do
    local token, till, ended = notes[i]:match('^(%d+) %d+ (%d+) (%d+) ')
    if #rows <= keep and (ended ~= '0' or not is_held(token)) then
      local over = ended ~= '0' and tonumber(ended) or tonumber(till)
      if over > now - age * 1000 then rows[#rows + 1] = notes[i] end
    end
  end
  return rows
end

local rows = { whole(now), class, capacity, used }
if form == 'plain' then
  rows[5] = 'h ' .. call('PTTL', lock) .. ' 1 1 ' .. plain.token .. ' ' .. plain.ttl .. ' e ' .. plain.meta
elseif form == 'foreign' then
  rows[5] = 'f ' .. whole(call('PTTL', lock)) -- .. alone would print 1e+15
elseif form == 'many' then
  local live = call('ZRANGEBYSCORE', ends, whole(now + 1), '+inf', 'WITHSCORES')
  local till, owners = {}, {}
  for i = 1, #live, 2 do till[live[i]] = tonumber(live[i + 1]) end
  local units_in_use = 0
  for i = 1, #live, 2 do
    local h = read_hold(live[i])
    if h then
      local first = h.owner ~= '-' and owners[h.owner]
      if first then
        first.count = first.count + 1
        first.till = math.max(first.till, till[h.id])
        first.h.units = math.max(first.h.units, h.units)
      else
        first = { h = h, count = 1, till = till[h.id] }
        rows[#rows + 1] = first
        if h.owner ~= '-' then owners[h.owner] = first end
      end
    end
  end
  for i = 5, #rows do
    local r = rows[i]
    units_in_use = units_in_use + r.h.units
    rows[i] = 'h ' .. math.floor((r.till - now) / 1000) .. ' ' .. r.count .. ' ' .. r.h.units .. ' ' .. r.h.token .. ' ' ..
      r.h.ttl .. ' ' .. r.h.kind .. ' ' .. r.h.meta
  end
  rows[4] = units_in_use
end
for _, id in ipairs(call('ZRANGE', queue, ARGV[2], ARGV[2] + ARGV[3] - 1)) do
  local w = read_waiter(id)
  if not w or w.due <= now then
    rows[#rows + 1] = 'd' -- dead: nobody has met it yet
  else
    rows[#rows + 1] = 'w ' .. call('ZSCORE', queue, id) .. ' ' .. w.units .. ' ' .. w.ttl .. ' ' .. w.kind .. ' ' .. w.meta
  end
end
return rows
end)()
