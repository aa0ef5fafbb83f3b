#!lua
-- ask.lua - acquire, refresh of a place in the queue and confirmation of a grant: one script.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 ttl  3 meta  4 wait: 1 or 0  5 box: i or p and its name, or -  6 first refresh  7 longest refresh
--       8 grace  9 queued before: 1 or 0  10 kind  11 units  12 capacity  13 owner or -  14 barging: 1 or 0
--       15 history: how many past holds are kept  16 their age in ms  17 margin  18 stagger  19 most waiters
--       20 the token that a quorum agreed on for this id, 0: none yet
-- answers
--       token                                     held for at least ttl from now
--       {0, left, holder}                         busy, and not in the queue; left: ms until the first hold ends, -1: never;
--                                                 holder: "token meta" of that one, where the box is - and it is one of ours
--       {0, left, again, now, number, place}      queued: ask again after `again` ms; place 0 is the next one; number: the
--                                                 counter, or where the box is - that of its own arrival
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
local took, before, value, state
if is_plain then
  local stamp = clock[1] .. ('00000' .. clock[2]):sub(-6)
  local record = ARGV[1] .. ' ' .. stamp .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
  value = redis.pcall('SET', KEYS[1], record, 'NX', 'GET', 'PX', ARGV[2])
  if type(value) == 'table' and value.err:sub(1, 9) ~= 'WRONGTYPE' then
    call('SET', KEYS[1], record, 'NX', 'GET', 'PX', ARGV[2]) -- raises it, with its place
  end
  took = not value -- nothing was there
  if took then
    before = call('SET', KEYS[2], stamp, 'PX', 3600000, 'GET')
    -- Not as texts: "<" between those goes by the server's locale, where ~ may stand before the digits.
    local plain_number = tonumber(before or 0) -- nil: it says "look closer"
    if plain_number and plain_number < tonumber(stamp) and HISTORY == '0' and ARGV[20] == '0' then return stamp end
  end
else
  state = redis.pcall('HMGET', KEYS[1], '@k', '@c', '@d', '@u')
  if not state[1] then state = nil end -- free, or not what this one asks for
end
-- common.lua
local me = { id = ARGV[1], ttl = tonumber(ARGV[2]), meta = ARGV[3], box = ARGV[5], grace = tonumber(ARGV[8]), kind = ARGV[10],
  units = tonumber(ARGV[11]), capacity = tonumber(ARGV[12]), owner = ARGV[13], age = AGE }
history = HISTORY ~= '0' and tonumber(HISTORY)
read_counter(took and before or call('GET', counter))
local number_before = not took and number -- false: the counter was overwritten above
number = max(number, tonumber(ARGV[20]))
if took then
  call('DEL', lock) -- the queue, a tombstone or the clock has a say in it
else
  local trouble = look(value, state)
  if trouble then return trouble end
  if plain and is_buried(plain.id) then set_free() end -- a SET of one that needs no token came late: nobody is behind it
  reap()
end

local function finish(answer)
  admit()
  keep_counter()
  return answer
end

if is_buried(me.id) then
  leave_queue(me.id, me)
  return finish({ -1 })
end
local held = read_hold(me.id)
if held then -- the same grant again
  renew_round(held, me.meta)
  raise(held, ARGV[20])
  extend_hold(held, me.ttl)
  return finish(held.token)
end
if form == 'plain' or form == 'many' then
  local agrees = class == class_of(me.kind) and (me.capacity == capacity or me.capacity == declared)
  local too_big = agrees and class == 's' and me.units > capacity
  if not agrees or too_big then
    leave_queue(me.id, me)
    return finish(agrees and { -3, capacity } or { -2, class, capacity })
  end
end
if me.owner ~= '-' and form == 'many' then
  local sibling = call('HGET', lock, '+' .. me.owner)
  local other = sibling and read_hold(sibling:match('%S+'))
  if other then
    leave_queue(me.id, me)
    if me.kind == 'w' and other.kind == 'r' then return finish({ -5 }) end
    if me.kind == 'w' then call('HDEL', lock, '@w') end -- it counts on it, too
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
if not token and fits(me) then
  local waits = call('EXISTS', queue) == 1
  if barges or not waits then
    token = ARGV[20] ~= '0' and ARGV[20] or next_number()
    hold(me, now + me.ttl * 1000, token)
    if not waits then
      keep_counter(false)
      return token
    end
    gather(me.owner, me.kind, token)
  end
end
if token then return finish(token) end

local left = form == 'free' and 0 or time_left()
if ARGV[4] == '0' then
  if ARGV[9] ~= '0' then leave_queue(me.id, me) end
  local ahead = me.box == '-' and (plain or form == 'many' and read_hold(call('ZRANGE', ends, 0, 0)[1]))
  return finish({ 0, left, ahead and ahead.token .. ' ' .. ahead.meta })
end
local place = call('ZRANK', queue, me.id)
local arrival = place and me.box == '-' and call('ZSCORE', queue, me.id)
if not place then
  -- The dead behind a living first one are met by nobody: each newcomer looks at two.
  local sample = call('HRANDFIELD', waiters, 2, 'WITHVALUES')
  for i = 1, #sample, 2 do
    local name, till = sample[i], tonumber(sample[i + 1]:match('^%d+'))
    if name:byte(1) ~= 43 and till and till <= now and not leave_queue(name) then call('HDEL', waiters, name) end
  end
  place = call('ZCARD', queue)
  if place >= tonumber(ARGV[19]) then return finish({ -4 }) end
  arrival = next_number()
  call('ZADD', queue, arrival, me.id)
  if me.owner ~= '-' then add_to(waiters, me.owner, me.id) end
end
if number ~= number_before then
  keep_counter(true)
elseif place == 0 then
  call('PEXPIRE', counter, HOUR)
end
local again = left + tonumber(ARGV[17]) + place * tonumber(ARGV[18])
local step = tonumber(ARGV[6]) * (place + 1)
local told = place == 0 and form ~= 'foreign' and me.box ~= '-' -- by whoever releases, unless that one dies
if left < 0 or (not told and again > step) then again = step end
again = min(again, tonumber(ARGV[7]))
local span = again + me.grace
call('HSET', waiters, me.id, whole(now + span * 1000) .. ' ' .. span .. ' ' .. me.grace .. ' ' .. me.ttl .. ' ' ..
  me.units .. ' ' .. me.capacity .. ' ' .. me.kind .. ' ' .. me.owner .. ' ' .. me.box .. ' ' .. me.meta)
if place == 0 then
  call('PEXPIRE', queue, HOUR)
  call('PEXPIRE', waiters, HOUR)
end
return { 0, left, again, whole(now), me.box == '-' and arrival or whole(number), place }
