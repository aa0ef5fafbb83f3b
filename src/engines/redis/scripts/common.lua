-- common.lua - what the scripts share: the counter, the holders, the queue, the hand-over. A script says "-- common.lua" twice:
-- there it gets the variables, and the functions that it calls outside of its inner function; and in that those that it calls
-- there. Before the first one stand: call = redis.call, clock = call('TIME') and AGE, that of past holds.
--
-- Why: a function is made at every call of a script. So the inner one is for what few calls need. And what is made there gets
-- what it shares from the one around it at no cost, but would search for each variable of its own level.
--
-- KEYS  1 lock    a plain exclusive hold: the string "id token ttl meta", gone with its PX. Anything else is foreign.
--                 Every other hold: a hash. @k class, @c capacity, @d the capacity that was asked for, @u units in use;
--                 id -> "units token ttl kind owner meta"; +owner -> its ids. Units of an owner are counted once.
--       2 counter "N" or "~N until": the last number given out (tokens and arrivals); the ~ says "look closer": somebody
--                 waits, or tombstones stand until then. Lives an hour after its last use.
--       3 queue   sorted set: id -> arrival number
--       4 waiters hash: id -> "due span grace ttl units capacity kind owner box meta"; due: until then it counts as alive,
--                 span: how many ms that was from its last look on; +owner -> its ids; !id -> tombstone's end
--       5 ends    sorted set: id -> end of the hold, for holds in a hash
--       6 past    sorted set, only with history: token -> a note about that hold; +inf -> "N age"
--
-- kind: e exclusive, s semaphore, r reader, w writer. class: e, s, x (readers and writers). owner: "-" where nobody gave
-- one. meta: "ticket flags pid host label"; ticket is the arrival number, 0 where it did not wait; flags: d detached, b not,
-- and the round in which it was asked for, where that is not 0. Times are microseconds of the server's clock; ttl, grace, PX
-- are milliseconds. ttl in a record is the longest time that was ever given to it: more left than that means that the clock
-- stepped back.
--
-- Rounds: a client whose grant lacks replicas takes it back, and begins a new round with that; the request may come late, on
-- a connection that is gone. It names its round, and means nothing that was asked for in a later one. @w "id client round":
-- the upgrade that alone made a writer of its owner; without it nobody can take that back.
--
-- The rule for every script that writes: it ends with admit(), so that nobody fits and waits, and with keep_counter(). Where a
-- plain hold stands at the end nobody else fits, and whoever knows that goes without admit().
local min, max, format = math.min, math.max, string.format
local lock, counter, queue, waiters, ends, past = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = clock[1] * 1000000 + clock[2]
local HOUR, DAY, BATCH, GATHER = '3600000', '90000000', 64, 128 -- texts: a number that a command gets is printed first
local number, tombs = 0, 0 -- read_counter()
local form = 'free' -- look(): free, plain (a string of ours), many (a hash), foreign (another client's string)
local class, capacity, declared, used, plain = '', 0, 0, 0, nil
local is_over = false -- a plain hold was given back, and its string still stands: whoever holds next overwrites it
local history, stamp = false, nil

-- .. would print 1e+15, and %.0f takes much longer than two %d, of which each may have 32 bits only. Most of them are what the
-- clock says.
local function whole(number)
  if number ~= now then
    if number < 1000000 then return format('%.0f', number) end
    return format('%d%06d', math.floor(number / 1000000), number % 1000000)
  end
  stamp = stamp or clock[1] .. ('00000' .. clock[2]):sub(-6)
  return stamp
end

-- ---- The counter, and tombstones

local function read_counter(text)
  if text then
    local n, till = text:match('^~?(%d+) ?(%d*)')
    number, tombs = tonumber(n) or 0, tonumber(till) or 0
  end
end

local function next_number()
  number = number < now and now or number + 1
  return whole(number)
end

-- waits: whether somebody does, where that is known.
local function keep_counter(waits)
  local closer = tombs > now or waits
  if closer == nil then closer = call('EXISTS', queue) == 1 end
  local text = whole(number)
  if closer then text = '~' .. text .. ' ' .. (tombs == 0 and '0' or whole(tombs)) end
  call('SET', counter, text, 'PX', HOUR)
end

local function is_buried(id)
  if tombs <= now then return false end
  local till = call('HGET', waiters, '!' .. id)
  return till and tonumber(till) > now
end

local function bury(id, for_ms)
  tombs = max(tombs, now + for_ms * 1000)
  -- Those that are over meet nobody while nobody comes to wait: each new one looks at two.
  local sample = call('HRANDFIELD', waiters, 2, 'WITHVALUES')
  for i = 1, #sample, 2 do
    if sample[i]:byte(1) == 33 and tonumber(sample[i + 1]) <= now then call('HDEL', waiters, sample[i]) end -- 33 is !
  end
  call('HSET', waiters, '!' .. id, whole(tombs))
  call('PEXPIRE', waiters, HOUR)
end

-- ---- Past holds

local function note_begin(w, token, till, keep, age)
  call('ZREMRANGEBYSCORE', past, '+inf', '+inf')
  call('ZREMRANGEBYSCORE', past, '-inf', whole(now - age * 1000))
  call('ZADD', past, '+inf', keep .. ' ' .. age, token,
    token .. ' ' .. whole(now) .. ' ' .. whole(till) .. ' 0 - ' .. w.units .. ' ' .. w.kind .. ' ' .. w.ttl .. ' ' .. w.meta)
  call('ZREMRANGEBYRANK', past, 0, -(keep + BATCH + 2))
  call('PEXPIRE', past, age)
end

-- why: r released, l ended by time or force; nil: it goes on until `till`.
local function note(token, till, why)
  local text = call('ZRANGEBYSCORE', past, token, token)[1]
  if not text then return end
  local head, rest = text:match('^(%d+ %d+) %d+ %d+ %S (.*)$')
  if not head then return end
  call('ZREM', past, text)
  call('ZADD', past, token,
    head .. ' ' .. whole(till) .. (why and ' ' .. whole(now) .. ' ' .. why .. ' ' or ' 0 - ') .. rest)
end

-- The hold goes on with another token.
local function note_again(token, with)
  local text = call('ZRANGEBYSCORE', past, token, token)[1]
  if not text then return end
  call('ZREM', past, text)
  call('ZADD', past, with, with .. text:sub(#token + 1))
end

-- ---- Who holds

local function class_of(kind) return (kind == 'r' or kind == 'w') and 'x' or kind end

local function is_plain(w) return w.kind == 'e' and w.owner == '-' end

local function ms_until(till) return math.ceil((till - now) / 1000) end

-- value: what GET, state: what HMGET said of the lock, where somebody asked already. Returns an error, if it is no lock.
local function look(value, state)
  if not state then
    if value == nil then value = redis.pcall('GET', lock) end
    if not value then return end
    if type(value) == 'string' then
      local id, token, ttl, meta = value:match('^(%S+) (%d+) (%d+) (.*)$')
      form = id and #id == 22 and 'plain' or 'foreign'
      class, capacity, declared, used = 'e', 1, 1, 1
      plain = form == 'plain' and { id = id, token = token, ttl = tonumber(ttl), meta = meta } or nil
      return
    end
    if value.err:sub(1, 9) ~= 'WRONGTYPE' then call('GET', lock) end -- raises it, with its place
    state = redis.pcall('HMGET', lock, '@k', '@c', '@d', '@u')
    if state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' then call('HMGET', lock, '@k') end
    if state.err or not state[1] then return redis.error_reply('WRONGTYPE the key of this lock holds something else') end
  end
  form, class = 'many', state[1]
  capacity, declared, used = tonumber(state[2]), tonumber(state[3]), tonumber(state[4])
end

local function read_hold(id)
  if form == 'plain' and plain.id == id then return plain end
  local text = form == 'many' and call('HGET', lock, id)
  if not text then return nil end
  local units, token, ttl, kind, owner, meta = text:match('^(%d+) (%d+) (%d+) (%a) (%S+) (.*)$')
  return { id = id, units = tonumber(units), token = token, ttl = tonumber(ttl), kind = kind, owner = owner, meta = meta }
end

local function hold_text(units, token, ttl, kind, owner, meta)
  return units .. ' ' .. token .. ' ' .. ttl .. ' ' .. kind .. ' ' .. owner .. ' ' .. meta
end

local function write_hold(h)
  call('HSET', lock, h.id, hold_text(h.units, h.token, h.ttl, h.kind, h.owner, h.meta))
end

local function set_used(units)
  used = units
  call('HSET', lock, '@u', units)
end

local function add_to(key, owner, id)
  local ids = call('HGET', key, '+' .. owner)
  call('HSET', key, '+' .. owner, ids and ids .. ' ' .. id or id)
end

-- The owner's other ids; nil: none is left.
local function take_from(key, owner, id)
  local ids = call('HGET', key, '+' .. owner) or ''
  local at = ids:find(id, 1, true)
  if at then ids = at > 1 and ids:sub(1, at - 2) .. ids:sub(at + #id) or ids:sub(#id + 2) end -- with one blank
  if ids == '' then
    call('HDEL', key, '+' .. owner)
    return nil
  end
  call('HSET', key, '+' .. owner, ids)
  return ids
end

-- Longer than any hold, and from every grant and renewal on: the keys outlive those who hold.
local function keep_holds()
  call('PEXPIRE', lock, DAY)
  call('PEXPIRE', ends, DAY)
end

local function hold_plain(w, till, token)
  local ms = ms_until(till)
  local ttl = max(w.ttl, ms)
  call('SET', lock, w.id .. ' ' .. token .. ' ' .. format('%d', ttl) .. ' ' .. w.meta, 'PX', format('%d', ms))
  form, class, capacity, used, is_over = 'plain', 'e', 1, 1, false
  plain = { id = w.id, token = token, ttl = ttl, meta = w.meta }
end

-- w holds until `till`; `joins`: beside another id of its owner, which has the units, and holds as that kind.
local function hold(w, till, token, joins)
  if history then note_begin(w, token, till, history, w.age) end
  if is_plain(w) then return hold_plain(w, till, token) end
  if form == 'free' then
    if is_over then call('DEL', lock) end
    form, class, capacity, declared, used, is_over = 'many', class_of(w.kind), w.capacity, w.capacity, 0, false
    call('HSET', lock, '@k', class, '@c', capacity, '@d', declared)
  end
  local units, ttl = joins and 0 or w.units, max(w.ttl, ms_until(till))
  used = used + units
  call('HSET', lock, '@u', used, w.id, hold_text(units, token, ttl, joins or w.kind, w.owner, w.meta))
  call('ZADD', ends, whole(till), w.id)
  if w.owner ~= '-' then add_to(lock, w.owner, w.id) end
  keep_holds()
end

local function set_free()
  call('DEL', lock, ends)
  form, class, used, plain = 'free', '', 0, nil
end

-- why: as in note().
local function drop_hold(h, why)
  if history then note(h.token, now, why) end
  if form == 'plain' then
    form, class, used, plain, is_over = 'free', '', 0, nil, true
    return
  end
  call('ZREM', ends, h.id)
  if call('EXISTS', ends) == 0 then return set_free() end
  call('HDEL', lock, h.id)
  local heirs = h.owner ~= '-' and take_from(lock, h.owner, h.id)
  if heirs and h.units > 0 then
    local heir = read_hold(heirs:match('%S+'))
    if heir then
      heir.units = h.units
      write_hold(heir)
      return
    end
  end
  if h.units > 0 then set_used(used - h.units) end
end

-- How long from now the hold that ends first still has, in ms; -1: it has no end. Cuts back what has more left than it was
-- ever given.
local function time_left()
  if form == 'many' then
    local first = call('ZRANGE', ends, '0', '0', 'WITHSCORES')
    return ms_until(tonumber(first[2]))
  end
  local left = call('PTTL', lock)
  if form == 'plain' and left > plain.ttl then
    left = plain.ttl
    call('PEXPIRE', lock, left)
  end
  return left
end

local function cut_back()
  for _, id in ipairs(call('ZRANGE', ends, 0, BATCH - 1)) do
    local h = read_hold(id)
    if h and tonumber(call('ZSCORE', ends, id)) > now + h.ttl * 1000 then
      call('ZADD', ends, whole(now + h.ttl * 1000), id)
    end
  end
end

-- Ends what is over, for holds in a hash; the server does it for strings.
local function reap()
  if form ~= 'many' then return end
  local first = call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= now then
    for _, id in ipairs(call('ZRANGEBYSCORE', ends, '-inf', whole(now), 'LIMIT', 0, BATCH)) do
      local h = read_hold(id)
      if h then drop_hold(h, 'l') else call('ZREM', ends, id) end
    end
    if form ~= 'many' then return end
    first = call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  end
  if not first[1] then return set_free() end
  local h = read_hold(first[1])
  if h and tonumber(first[2]) > now + h.ttl * 1000 then cut_back() end
end

local function rewrite(h)
  if form ~= 'plain' then return write_hold(h) end
  call('SET', lock, h.id .. ' ' .. h.token .. ' ' .. h.ttl .. ' ' .. h.meta, 'KEEPTTL')
end

-- The hold gets the token that a quorum agreed on (redlock), and whatever is granted next gets a higher one.
local function raise(h, agreed)
  number = max(number, tonumber(agreed))
  if agreed == '0' or h.token == agreed then return end
  if history then note_again(h.token, agreed) end
  h.token = agreed
  rewrite(h)
end

local function round_of(meta) return tonumber(meta:match('^%d+ %a(%d+)')) or 0 end

-- The hold was asked for again, by a client that may have taken it back in between.
local function renew_round(h, meta)
  if round_of(meta) <= round_of(h.meta) then return end
  h.meta = h.meta:match('^%d+') .. meta:sub(2)
  rewrite(h)
end

-- At least `ttl` from now; never shortens. The time that it has then, in ms; what a clock that stepped back adds does not
-- count, because time_left() and cut_back() take it away.
local function extend_hold(h, ttl)
  if history and ttl > 0 then note(h.token, now + ttl * 1000) end
  local longer = ttl > h.ttl
  if longer then h.ttl = ttl end
  if form == 'plain' then
    local left = call('PTTL', lock)
    if longer then
      call('SET', lock, h.id .. ' ' .. h.token .. ' ' .. ttl .. ' ' .. h.meta, 'PX', ttl)
    elseif left < ttl then
      call('PEXPIRE', lock, ttl)
    end
    return min(max(left, ttl), h.ttl)
  end
  if longer then write_hold(h) end
  local till = max(tonumber(call('ZSCORE', ends, h.id)) or 0, now + ttl * 1000)
  call('ZADD', ends, whole(till), h.id)
  if ttl > 0 then keep_holds() end
  return min(math.floor((till - now) / 1000), h.ttl)
end

-- ---- Who waits

-- Until when it counts as alive, by the first words of its record; the clock may have stepped back since.
local function alive_until(due, span)
  return min(tonumber(due), now + tonumber(span) * 1000)
end

local function read_waiter(id)
  local text = call('HGET', waiters, id)
  if not text then return nil end
  local due, span, grace, ttl, units, cap, kind, owner, box, meta =
    text:match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%a) (%S+) (%S+) (.*)$')
  local till = alive_until(due, span)
  return { id = id, due = till, ahead = till < tonumber(due), grace = tonumber(grace), ttl = tonumber(ttl),
    units = tonumber(units), capacity = tonumber(cap), kind = kind, owner = owner, box = box, meta = meta, age = AGE }
end

-- Of one that is out of the queue. w: its record, if it has one.
local function forget_waiter(id, w)
  call('HDEL', waiters, id)
  if w and w.owner ~= '-' then take_from(waiters, w.owner, id) end
end

-- True: it was in the queue. w: its record, where that was read already.
local function leave_queue(id, w)
  if call('ZREM', queue, id) == 0 then return false end
  forget_waiter(id, w or read_waiter(id))
  return true
end

-- The message is a hint, the record is the truth. "id token end now lock"; token 0: more units than the capacity.
local function tell(w, token, till)
  local text = w.id .. ' ' .. token .. ' ' .. whole(till) .. ' ' .. whole(now) .. ' ' .. lock
  local box = w.box:sub(2)
  if w.box:byte(1) == 105 then -- i: an inbox, that is a list
    call('RPUSH', box, text)
    call('PEXPIRE', box, '60000')
  elseif w.box:byte(1) == 112 then -- p: a channel
    call('PUBLISH', box, text)
  end
end

local function fits(w)
  if form == 'free' then return true end
  return form == 'many' and class == class_of(w.kind) and used + w.units <= capacity
end

-- Makes one that has left the queue a holder until its own next look plus a grace: a lost message must not cost it its turn.
-- take: hold(), or hold_plain() where it is known to be that.
local function hand_over(take, w, token, arrival, joins)
  local till = max(w.due, now + w.grace * 1000)
  w.meta = arrival .. w.meta:sub(2)
  take(w, till, token, joins)
  tell(w, token, till)
end

-- Asks of an owner that wait are admitted with its first one, which holds as `kind`: else they would wait for themselves.
-- Those beyond GATHER are let in at their own next look. One that asks to write what its owner reads gets a turn that is
-- over: it looks, and hears of the upgrade.
local function gather(owner, kind, token)
  if owner == '-' then return end
  local met = 0
  for id in (call('HGET', waiters, '+' .. owner) or ''):gmatch('%S+') do
    if met == GATHER then break end
    met = met + 1
    local w, arrival = read_waiter(id), call('ZSCORE', queue, id)
    leave_queue(id, w)
    if w and w.due > now then
      if w.kind == 'w' and kind == 'r' then tell(w, token, now) else hand_over(hold, w, token, arrival, kind) end
    end
  end
end

-- The record is read as far as it takes to see that.
local function is_alive(id)
  local due, span = (call('HGET', waiters, id) or ''):match('^(%d+) (%d+)')
  return due and alive_until(due, span) > now
end

-- The clock stepped back, and those who died in the queue would count as alive for as much longer, one after the other. From
-- now on each has the time that it gave itself.
local function cut_back_waiters()
  for _, id in ipairs(call('ZRANGE', queue, 0, BATCH - 1)) do
    local due, span, rest = (call('HGET', waiters, id) or ''):match('^(%d+) (%d+)(.*)$')
    if due and tonumber(due) > now + span * 1000 then
      call('HSET', waiters, id, whole(now + span * 1000) .. ' ' .. span .. rest)
    end
  end
end

-- Lets in whoever is first in line and fits; `me`, who is asking right now, with its whole ttl and without a message.
-- Returns the token of `me`, if it was its turn. `first`: who is it, where it has left the queue already.
local function admit(me, first)
  local mine
  for _ = 1, BATCH do
    local is_free = form == 'free' -- then the first one leaves the queue in any case: it is dead, or let in
    first = first or (is_free and call('ZPOPMIN', queue) or call('ZRANGE', queue, '0', '0', 'WITHSCORES'))
    local id, arrival = first[1], first[2]
    first = nil
    local is_me = me and id == me.id
    if not id or (form ~= 'many' and not is_free and (is_me or is_alive(id))) then break end
    local w = is_me and me or read_waiter(id)
    if w and w.ahead then cut_back_waiters() end
    local is_dead = not w or (w ~= me and w.due <= now)
    local is_too_big = not is_dead and form == 'many' and class == class_of(w.kind) and w.units > capacity
    if not (is_dead or is_too_big or fits(w)) then break end
    if is_free then forget_waiter(id, w) else leave_queue(id, w) end
    if is_too_big then
      tell(w, '0', now)
    elseif not is_dead then
      local token = next_number()
      if w == me then
        me.meta = arrival .. me.meta:sub(2)
        hold(me, now + me.ttl * 1000, token)
        mine = token
      else
        hand_over(hold, w, token, arrival)
      end
      gather(w.owner, w.kind, token)
      if form == 'plain' then break end
    end
  end
  if is_over then
    call('DEL', lock)
    is_over = false
  end
  return mine
end
