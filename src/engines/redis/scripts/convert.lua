#!lua flags=allow-oom
-- convert.lua - the sole reader becomes the writer, with a new token; a writer becomes a reader and keeps its own.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 u upgrade, d downgrade  3 history  4 age
--       5 client, 6 round: u: which upgrade it is, for it may have to be taken back; d: the one that is taken back
-- answers
--       {token, left}   done, or done before
--       {1}             others read it too; the read hold stays. Or others count on the upgrade; the write hold stays
--       {0}             not held
local call = redis.call
local id, up = ARGV[1], ARGV[2] == 'u'
local clock, AGE = call('TIME'), ARGV[4]
-- common.lua
return (function()
-- common.lua
history = ARGV[3] ~= '0' and tonumber(ARGV[3])
local trouble = look()
if trouble then return trouble end
read_counter(call('GET', counter))
reap()

-- All ids of the hold that this id belongs to.
local function hold_of(h)
  local holds = { h }
  for other in (h.owner ~= '-' and call('HGET', lock, '+' .. h.owner) or ''):gmatch('%S+') do
    if other ~= id then holds[#holds + 1] = read_hold(other) end
  end
  return holds
end

-- Two upgrades are one hold: the first is noted, and nobody can take it back any more when another one counts on it.
local me, round = ARGV[5] and id .. ' ' .. ARGV[5], tonumber(ARGV[6])
local function note_upgrade(is_first)
  local who, since = (call('HGET', lock, '@w') or ''):match('^(%S+ %S+) (%d+)$')
  if me and (is_first or who == me) then
    call('HSET', lock, '@w', me .. ' ' .. math.max(round, tonumber(since) or 0))
  else
    call('HDEL', lock, '@w')
  end
end

local function may_take_back()
  local who, since = (call('HGET', lock, '@w') or ''):match('^(%S+ %S+) (%d+)$')
  return who == me and tonumber(since) <= round
end

local held, answer = read_hold(id), { 0 }
if held and not up and me and not may_take_back() then
  answer = { 1 }
elseif held and class == 'x' then
  local holds, units = hold_of(held), 0
  for _, h in ipairs(holds) do units = math.max(units, h.units) end
  local wanted = up and capacity or 1
  local token = held.token
  if up and units < wanted and used > units then
    answer = { 1 }
  else
    if up and units < wanted then
      token = next_number()
      if history then note_again(held.token, token) end
    end
    if up then note_upgrade(units < wanted) else call('HDEL', lock, '@w') end
    set_used(used - units + wanted)
    for _, h in ipairs(holds) do
      if h.units > 0 then h.units = wanted end
      h.token, h.kind = token, up and 'w' or 'r'
      write_hold(h)
    end
    answer = { token, extend_hold(held, 0) }
  end
end
admit()
keep_counter()
return answer
end)()
