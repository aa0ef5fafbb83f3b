#!lua
-- ask.lua - acquire, refresh of a place in the queue and confirmation of a grant: one script.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 ttl  3 meta
--       4 "kind owner history token units capacity"; owner: or -; history: how many past holds are kept; token: the one that
--         a quorum agreed on for this id, 0: none yet
--       5 "age wait queued barging box first longest grace margin stagger most"; age: of past holds, in ms; wait: 1 or 0;
--         queued: 1 or 0, before; barging: 1 or 0; box: i or p and its name, or -; first, longest: refresh; most: waiters
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
-- cost  a free plain lock: TIME, SET, SET. To wait for a plain one: TIME, SET, SET, ZCARD, PTTL, ZADD, HSET, and two PEXPIRE,
--       or behind others HRANDFIELD. Otherwise O(log n) in the number of waiters.
local call = redis.call
local clock = call('TIME')
local id, ttl, meta = ARGV[1], ARGV[2], ARGV[3]
local took, before, value, state, stamp
if ARGV[4] == 'e - 0 0 1 1' then
  stamp = clock[1] .. ('00000' .. clock[2]):sub(-6)
  local record = id .. ' ' .. stamp .. ' ' .. ttl .. ' ' .. meta
  value = redis.pcall('SET', KEYS[1], record, 'NX', 'GET', 'PX', ttl)
  if type(value) == 'table' and value.err:sub(1, 9) ~= 'WRONGTYPE' then
    call('SET', KEYS[1], record, 'NX', 'GET', 'PX', ttl) -- raises it, with its place
  end
  took = not value -- nothing was there
  if took then
    before = call('SET', KEYS[2], stamp, 'PX', '3600000', 'GET')
    -- Not as texts: "<" between those goes by the server's locale, where ~ may stand before the digits.
    local plain_number = tonumber(before or 0) -- nil: it says "look closer"
    if plain_number and plain_number < tonumber(stamp) then return stamp end
  end
end
local kind, owner, keep, agreed, units, places = ARGV[4]:match('^(%a) (%S+) (%d+) (%d+) (%d+) (%d+)$')
local AGE, wait, queued, barging, box, soonest, longest, grace, margin, stagger, most =
  ARGV[5]:match('^(%d+) (%d) (%d) (%d) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
local joins = type(value) == 'string' and wait ~= '0' and queued == '0' -- most likely, and with this number
if joins then before = call('SET', KEYS[2], '~' .. stamp .. ' 0', 'PX', '3600000', 'GET') end
if kind ~= 'e' or owner ~= '-' then
  state = redis.pcall('HMGET', KEYS[1], '@k', '@c', '@d', '@u')
  if not state[1] then state = nil end -- free, or not what this one asks for
end
-- common.lua
if not took and not joins then before = call('GET', counter) end
read_counter(before)
local number_before = not took and number -- that the counter has; false: it was overwritten above, and wrongly
if joins then number_before = number < now and tombs == 0 and now end
number = max(number, tonumber(agreed))
if took then
  call('DEL', lock) -- the queue, a tombstone or the clock has a say in it
else
  local trouble = look(value, state)
  if trouble then return trouble end
end

-- The dead behind a living first one are met by nobody: each newcomer looks at two.
local function dead_of_two()
  local dead, sample = {}, call('HRANDFIELD', waiters, '2', 'WITHVALUES')
  for i = 1, #sample, 2 do
    local till = sample[i]:byte(1) ~= 43 and tonumber(sample[i + 1]:match('^%d+')) -- 43 is +
    if till and till <= now then dead[#dead + 1] = sample[i] end
  end
  return dead
end

-- Until when nobody fits in beside those who hold it in a hash; nil: somebody does, or whoever asks has a part in it, or what
-- is asked for does not agree with it, or a hold is over, or longer than it was given.
local function full_until()
  local wanted = tonumber(places)
  if used < capacity or class ~= class_of(kind) or (wanted ~= capacity and wanted ~= declared) or
    tonumber(units) > capacity then return nil end
  local first = call('ZRANGE', ends, '0', '0', 'WITHSCORES')
  local text, till = first[1] and call('HGET', lock, first[1]), tonumber(first[2])
  local given = text and text:match('^%d+ %d+ (%d+)')
  if not given or till <= now or till > now + given * 1000 then return nil end
  if call('HGET', lock, id) or (owner ~= '-' and call('HGET', lock, '+' .. owner)) then return nil end
  return till
end

-- Somebody has it, and of those in line it sees none that is dead: then nothing else is to be done. A dead first one is met by
-- whoever gives it back.
local left, place, count, dead
local till = form == 'many' and wait ~= '0' and full_until()
if (till or kind == 'e' and plain and plain.id ~= id and not is_buried(plain.id)) and not is_buried(id) then
  place = queued ~= '0' and call('ZRANK', queue, id)
  if wait == '0' and not place then
    return { 0, time_left(), box == '-' and plain.token .. ' ' .. plain.meta }
  end
  local waiting = not place and call('ZCARD', queue)
  dead = waiting and waiting > 0 and dead_of_two() or {}
  if wait ~= '0' and #dead == 0 then left, count = till and ms_until(till) or time_left(), waiting end
end

local answer = not left and (function()
-- common.lua
local me = { id = id, ttl = tonumber(ttl), meta = meta, box = box, grace = tonumber(grace), kind = kind,
  units = tonumber(units), capacity = tonumber(places), owner = owner, age = AGE }
history = keep ~= '0' and tonumber(keep)
if not took then
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
  if held.token == '1' then leave_queue(me.id, me) end -- a SET of one that needs no token came late, and knew of no queue
  renew_round(held, me.meta)
  raise(held, agreed)
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
local barges = barging == '1' and not call('ZSCORE', queue, me.id) -- in the queue it is as patient as others
if not token and fits(me) then
  local waits = call('EXISTS', queue) == 1
  if barges or not waits then
    token = agreed ~= '0' and agreed or next_number()
    hold(me, now + me.ttl * 1000, token)
    if not waits then
      keep_counter(false)
      return token
    end
    gather(me.owner, me.kind, token)
  end
end
if token then return finish(token) end

left = form == 'free' and 0 or time_left()
if wait == '0' then
  if queued ~= '0' then leave_queue(me.id, me) end
  local ahead = me.box == '-' and (plain or form == 'many' and read_hold(call('ZRANGE', ends, 0, 0)[1]))
  return finish({ 0, left, ahead and ahead.token .. ' ' .. ahead.meta })
end
place = call('ZRANK', queue, me.id)
for _, name in ipairs(place and {} or dead or dead_of_two()) do
  if not leave_queue(name) then call('HDEL', waiters, name) end
end
end)()
if answer then return answer end

-- It keeps its place in the queue, or takes the last one.
local arrival = place and box == '-' and call('ZSCORE', queue, id)
if not place then
  place = count or call('ZCARD', queue)
  if place >= tonumber(most) then
    if number ~= number_before then keep_counter() end
    return { -4 }
  end
  arrival = next_number()
  call('ZADD', queue, 'NX', arrival, id)
  if owner ~= '-' then add_to(waiters, owner, id) end
end
if number ~= number_before then
  keep_counter(true)
elseif place == 0 and not joins then
  call('PEXPIRE', counter, HOUR)
end
local again, step = left + margin + place * stagger, soonest * (place + 1)
local told = place == 0 and form ~= 'foreign' and box ~= '-' -- by whoever releases, unless that one dies
if left < 0 or (not told and again > step) then again = step end
again = min(again, tonumber(longest))
local span = again + grace
call('HSET', waiters, id, whole(now + span * 1000) .. ' ' .. format('%d', span) .. ' ' .. grace .. ' ' .. ttl .. ' ' ..
  units .. ' ' .. places .. ' ' .. kind .. ' ' .. owner .. ' ' .. box .. ' ' .. meta)
if place == 0 then
  call('PEXPIRE', queue, HOUR)
  call('PEXPIRE', waiters, HOUR)
end
return { 0, left, again, whole(now), box == '-' and arrival or whole(number), place }
