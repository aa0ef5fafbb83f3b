#!lua
-- ask.lua - acquire, refresh of a place in the queue and confirmation of a grant: one script.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 ttl  3 meta  4 wait: 1 or 0  5 box: i or p and its name, or -  6 first refresh  7 longest refresh
--       8 grace  9 queued before: 1 or 0; 2: a request that takes back an earlier grant of this id may still be under way,
--       so that its hold gets a new token  10 kind  11 units  12 capacity  13 owner or -  14 barging: 1 or 0
--       15 history: how many past holds are kept  16 their age in ms  17 margin  18 stagger  19 most waiters
--       20 the token that a quorum agreed on for this id, 0: none yet
-- answers
--       token                                     held for at least ttl from now
--       {0, left, holder}                         busy, and not in the queue; left: ms until the first hold ends, -1: never;
--                                                 holder: "token meta" of that one, where the box is - and it is one of ours
--       {0, left, again, now, number, place}      queued: ask again after `again` ms; place 0 is the next one
--       {-1}                                      this id was given up
--       {-2, class, capacity}                     in use with another kind or capacity
--       {-3, capacity}                            more units than that
--       {-4}                                      too many wait
--       {-5}                                      this owner reads it, and asks to write
-- cost  a free plain lock: TIME, SET, SET. Otherwise O(log n) in the number of waiters.
local call = redis.call
local clock = call('TIME')
local HISTORY, AGE = ARGV[15], ARGV[16]
local is_plain = ARGV[10] == 'e' and ARGV[13] == '-'
local took, before
if is_plain then
  local stamp = clock[1] .. ('00000' .. clock[2]):sub(-6)
  took = call('SET', KEYS[1], ARGV[1] .. ' ' .. stamp .. ' ' .. ARGV[2] .. ' ' .. ARGV[3], 'NX', 'PX', ARGV[2])
  if took then
    before = call('SET', KEYS[2], stamp, 'PX', 3600000, 'GET')
    -- Not as texts: "<" between those goes by the server's locale, where ~ may stand before the digits.
    local plain_number = tonumber(before or 0) -- nil: it says "look closer"
    if plain_number and plain_number < tonumber(stamp) and HISTORY == '0' and ARGV[20] == '0' then return stamp end
  end
end
-- common.lua
local me = { id = ARGV[1], ttl = tonumber(ARGV[2]), meta = ARGV[3], box = ARGV[5], grace = tonumber(ARGV[8]), kind = ARGV[10],
  units = tonumber(ARGV[11]), capacity = tonumber(ARGV[12]), owner = ARGV[13], age = AGE }
history = HISTORY ~= '0' and tonumber(HISTORY)
read_counter(took and before or call('GET', counter))
local number_before = not took and number -- false: the counter was overwritten above
number = math.max(number, tonumber(ARGV[20]))
if took then
  call('DEL', lock) -- the queue, a tombstone or the clock has a say in it
else
  local trouble = look()
  if trouble then return trouble end
  reap()
end

local function finish(answer)
  admit()
  keep_counter()
  return answer
end

if is_buried(me.id) then
  leave_queue(me.id)
  return finish({ -1 })
end
local held = read_hold(me.id)
if held then -- the same grant again
  if ARGV[9] == '2' and me.owner == '-' then raise(held, next_number()) end -- others of an owner know its token
  raise(held, ARGV[20])
  extend_hold(held, me.ttl)
  return finish(held.token)
end
if form == 'plain' or form == 'many' then
  local agrees = class == classes[me.kind] and (me.capacity == capacity or me.capacity == declared)
  local too_big = agrees and class == 's' and me.units > capacity
  if not agrees or too_big then
    leave_queue(me.id)
    return finish(agrees and { -3, capacity } or { -2, class, capacity })
  end
end
if me.owner ~= '-' and form == 'many' then
  local sibling = call('HGET', lock, '+' .. me.owner)
  local other = sibling and read_hold(sibling:match('%S+'))
  if other then
    leave_queue(me.id)
    if me.kind == 'w' and other.kind == 'r' then return finish({ -5 }) end
    hold(me, now + me.ttl * 1000, other.token, other.kind)
    return finish(other.token)
  end
end

local token = admit(me)
held = not token and me.owner ~= '-' and read_hold(me.id)
if held then -- it was let in beside an ask of its owner that came before it
  extend_hold(held, me.ttl)
  return finish(held.token)
end
local barges = ARGV[14] == '1' and not call('ZSCORE', queue, me.id) -- in the queue it is as patient as others
if not token and fits(me) and (barges or call('EXISTS', queue) == 0) then
  token = ARGV[20] ~= '0' and ARGV[20] or next_number()
  leave_queue(me.id)
  hold(me, now + me.ttl * 1000, token)
  gather(me.owner, me.kind, token)
end
if token then return finish(token) end

local left = form == 'free' and 0 or time_left()
if ARGV[4] == '0' then
  if ARGV[9] ~= '0' then leave_queue(me.id) end
  local ahead = me.box == '-' and (plain or form == 'many' and read_hold(call('ZRANGE', ends, 0, 0)[1]))
  return finish({ 0, left, ahead and ahead.token .. ' ' .. ahead.meta })
end
local place = call('ZRANK', queue, me.id)
if not place then
  if call('ZCARD', queue) >= tonumber(ARGV[19]) then return finish({ -4 }) end
  -- The dead behind a living first one are met by nobody: each newcomer looks at two.
  local sample = call('HRANDFIELD', waiters, 2, 'WITHVALUES')
  for i = 1, #sample, 2 do
    local name, till = sample[i], tonumber(sample[i + 1]:match('^%d+'))
    if name:byte(1) ~= 43 and till and till <= now and not leave_queue(name) then call('HDEL', waiters, name) end
  end
  call('ZADD', queue, next_number(), me.id)
  if me.owner ~= '-' then add_to(waiters, me.owner, me.id) end
  place = call('ZCARD', queue) - 1
end
if number ~= number_before then keep_counter() end
local again = left + tonumber(ARGV[17]) + place * tonumber(ARGV[18])
local step = tonumber(ARGV[6]) * (place + 1)
local told = place == 0 and form ~= 'foreign' and me.box ~= '-' -- by whoever releases, unless that one dies
if left < 0 or (not told and again > step) then again = step end
again = math.min(again, tonumber(ARGV[7]))
local span = again + me.grace
call('HSET', waiters, me.id, whole(now + span * 1000) .. ' ' .. span .. ' ' .. me.grace .. ' ' .. me.ttl .. ' ' ..
  me.units .. ' ' .. me.capacity .. ' ' .. me.kind .. ' ' .. me.owner .. ' ' .. me.box .. ' ' .. me.meta)
if place == 0 then
  call('PEXPIRE', queue, HOUR)
  call('PEXPIRE', waiters, HOUR)
  call('PEXPIRE', counter, HOUR)
end
return { 0, left, again, whole(now), whole(number), place }
