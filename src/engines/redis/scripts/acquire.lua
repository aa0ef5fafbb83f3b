
-- ---- acquire.lua - acquire, refresh of a place in the queue, and confirmation of a grant
--
-- Arguments: 1 id, 2 ttl, 3 meta,
--   4 "kind owner history token units capacity", and " p" for a poll: the client does not know of
--     a grant. history: how many past holds are kept. token: the one that a quorum agreed on for
--     this id, 0: none yet.
--   5 "age wait queued barging box first longest grace margin stagger most prefix". age: for how
--     many ms past holds are kept. wait: 1 or 0. queued: the arrival number, if the client knows
--     it; else 1 if this id was asked for before, or 0. barging: 1 or 0. box: i (inbox), p
--     (channel) or n (not notified) and its name; in a cluster s (channel in the lock's slot) or c
--     (not notified) and the client's id; or - (the request never waits). first, longest: bounds
--     of the time between two polls, in ms. most: number of waiters. prefix: length in bytes of
--     what stands before the name in the lock's key, in three digits; ---: there is no index.
--
-- Answers:
--   token                  held for at least ttl from now
--   {token, left}          to a poll: held for left ms, as after a handoff
--   {0, left, holder}      busy, and not in the queue. left: ms until the first hold ends, -1:
--                          never. holder: "token meta" of that hold, if the box is - and no other
--                          program holds it
--   {0, left, again, now, number, place, arrival}
--                          queued: ask again after `again` ms. place 0 is the next one. number:
--                          the counter. arrival: to be sent as `queued` from now on
--   {-1}                   this id was given up
--   {-2, class, capacity}  in use with another kind or capacity
--   {-3, capacity}         more units than that
--   {-4}                   too many waiters
--   {-5}                   this owner reads the lock and asks to write it
--   {-6}                   dead waiters were removed, and more are still ahead: ask again at once
--
-- Cost: a free plain lock TIME, SET, SET. To wait for a plain one TIME, SET, SET, ZCARD, PTTL,
-- ZADD, HSET, and two PEXPIRE, or behind others HRANDFIELD. Otherwise O(log n) in the waiters.

-- What an acquire asks for.
local function read_request(args)
  local kind, owner, keep, agreed, units, capacity, poll =
    args[4]:match('^(%a) (%S+) (%d+) (%d+) (%d+) (%d+)( ?p?)$')
  local age, wait, queued, barging, box, soonest, longest, grace, margin, stagger, most =
    args[5]:match('^(%d+) (%d) (%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
  local r = { id = args[1], ttl = tonumber(args[2]), meta = args[3], kind = kind, owner = owner,
    keep = keep, agreed = agreed, units = tonumber(units), capacity = tonumber(capacity), age = age,
    waits = wait ~= '0', queued = queued, barges = barging == '1', box = box, soonest = soonest,
    longest = longest, grace = tonumber(grace), margin = margin, stagger = stagger, most = most }
  -- The waiter may have died since it sent a poll. So the grant lasts no longer than a handoff
  -- until the waiter extends it.
  r.polls = poll == ' p'
  r.first_ms = r.polls and r.grace or r.ttl
  return r
end

-- Reads the counter and the lock. Returns an error if the key is no lock.
local function read_for_acquire(lock, r, seen)
  local before, state = seen.before, nil
  if before == nil then before = redis.call('GET', lock.counter) end
  read_counter(lock, before)
  r.arrived = #r.queued > 1 and r.queued -- the number of its place, which it may have lost
  r.number_before = seen.joins and lock.now or lock.number -- what the counter has now
  lock.number = math.max(lock.number, tonumber(r.agreed), tonumber(r.arrived or 0))
  if seen.took then
    redis.call('DEL', lock.key) -- queue, tombstones or clock must be asked first
    return nil
  end
  if r.kind ~= 'e' or r.owner ~= '-' then
    state = redis.pcall('HMGET', lock.key, '@k', '@c', '@d', '@u')
    if not state[1] then state = nil end -- free, or not what this request is for
  end
  return read_lock(lock, seen.value, state)
end

-- When the first hold in the hash ends, if the lock is full until then. nil: it is not full, the
-- request or its owner holds, kind or capacity differ, or that hold has ended or has more time left
-- than it was given.
local function full_until(lock, r)
  local has_capacity = r.capacity == lock.capacity or r.capacity == lock.declared
  local agrees = lock.class == class_of(r.kind) and has_capacity and r.units <= lock.capacity
  if lock.used < lock.capacity or not agrees then return nil end
  local first = redis.call('ZRANGE', lock.ends, '0', '0', 'WITHSCORES')
  local text, till = first[1] and redis.call('HGET', lock.key, first[1]), tonumber(first[2])
  local given = text and text:match('^%d+ %d+ (%d+)')
  if not given or till <= lock.now or till > lock.now + given * 1000 then return nil end
  if redis.call('HGET', lock.key, r.id) then return nil end
  if r.owner ~= '-' and redis.call('HGET', lock.key, '+' .. r.owner) then return nil end
  return till
end

-- The short way for a lock that others hold, if none of the waiters that it samples is dead. (The
-- next release finds out whether the first waiter is dead.) Returns an answer, or nil;
-- at.left is set if the request can be queued.
local function look_ahead(lock, r, at)
  local till = lock.form == 'many' and r.waits and full_until(lock, r)
  local is_held = till or (r.kind == 'e' and lock.plain and lock.plain.id ~= r.id and
    not has_tombstone(lock, lock.plain.id))
  if not is_held or has_tombstone(lock, r.id) then return nil end
  at.place = r.queued ~= '0' and redis.call('ZRANK', lock.queue, r.id)
  if not r.waits and not at.place then
    return { 0, time_left(lock), r.box == '-' and lock.plain.token .. ' ' .. lock.plain.meta }
  end
  local count = not at.place and redis.call('ZCARD', lock.queue)
  at.dead = at.dead or (count and count > 0 and dead_of_two(lock.waiters, lock.now)) or {}
  if r.waits and #at.dead == 0 then
    at.left, at.count = till and ms_until(lock, till) or time_left(lock), count
  end
  return nil
end

-- The hold of this id, if it has one.
local function read_own(lock, r)
  local held = read_hold(lock, r.id)
  if not held or r.owner == '-' then return held end
  -- A release that failed half-way has removed the id from its owner's list: it holds no more.
  local ids = redis.call('HGET', lock.key, '+' .. r.owner) or ''
  if ids:find(r.id, 1, true) then return held end
  redis.call('HDEL', lock.key, r.id)
  redis.call('ZREM', lock.ends, r.id)
  return nil
end

-- The answer to a request that holds for at least `left` ms.
local function granted(r, token, left)
  return r.polls and { token, left or r.first_ms } or token
end

-- The request holds already: confirms its grant.
local function confirm(lock, r, held)
  -- The hold is a late bare SET of this id, which did not see that the id waits in the queue.
  if held.token == '1' then leave_queue(lock, r.id, r) end
  renew_round(lock, held, r.meta)
  raise_token(lock, held, r.agreed)
  local left = extend_hold(lock, held, r.first_ms)
  return granted(r, held.token, left)
end

-- The refusal if the lock is in use with another kind or capacity; nil: it is not.
local function mismatch(lock, r)
  if lock.form ~= 'plain' and lock.form ~= 'many' then return nil end
  local has_capacity = r.capacity == lock.capacity or r.capacity == lock.declared
  local agrees = lock.class == class_of(r.kind) and has_capacity
  if not agrees then return { -2, lock.class, lock.capacity } end
  if lock.class == 's' and r.units > lock.capacity then return { -3, lock.capacity } end
  return nil
end

-- The request enters beside another hold of its owner; nil: there is none.
local function join_owner(lock, r)
  local other = hold_of(lock, r.owner)
  if not other then return nil end
  leave_queue(lock, r.id, r)
  if r.kind == 'w' and other.kind == 'r' then return { -5 } end
  if r.kind == 'w' then redis.call('HDEL', lock.key, '@w') end -- now it relies on the upgrade, too
  hold(lock, r, lock.now + r.first_ms * 1000, other.token, other.kind)
  return granted(r, other.token)
end

-- The lock fits, and nobody waits, or the request may pass the queue. Returns the token, or nil.
local function take_now(lock, r)
  -- A barging request that is in the queue passes nobody.
  local may_pass = r.barges and not redis.call('ZSCORE', lock.queue, r.id)
  if not fits(lock, r) then return nil end
  local somebody_waits = redis.call('EXISTS', lock.queue) == 1
  if somebody_waits and not may_pass then return nil end
  local token = r.agreed ~= '0' and r.agreed or next_number(lock)
  keep_counter(lock, somebody_waits)
  hold(lock, r, lock.now + r.ttl * 1000, token)
  if somebody_waits then
    gather(lock, r.owner, r.kind, token)
    finish(lock)
  end
  return token
end

-- Not granted, and it does not wait.
local function busy_answer(lock, r, left)
  if r.queued ~= '0' then leave_queue(lock, r.id, r) end
  return finish(lock, { 0, left, r.box == '-' and hold_in_the_way(lock) })
end

-- Everything that may be granted. Returns the answer; nil: the request is to be queued.
local function grant_or_refuse(lock, r, at, took)
  if not took then
    -- A late bare SET made this hold after its request had been given up: remove it.
    if lock.plain and has_tombstone(lock, lock.plain.id) then set_free(lock) end
    reap(lock)
  end
  if has_tombstone(lock, r.id) then
    leave_queue(lock, r.id, r)
    return finish(lock, { -1 })
  end
  local held = read_own(lock, r)
  if held then return finish(lock, confirm(lock, r, held)) end
  local refused = mismatch(lock, r)
  if refused then
    leave_queue(lock, r.id, r)
    return finish(lock, refused)
  end
  local joined = join_owner(lock, r)
  if joined then return finish(lock, joined) end
  r.is_back = r.arrived and r.waits and redis.call('ZADD', lock.queue, 'NX', r.arrived, r.id) == 1
  if r.is_back and r.owner ~= '-' then add_to(lock.waiters, r.owner, r.id) end
  local token = admit(lock, r)
  if lock.is_unfinished then
    keep_counter(lock)
    return { -6 }
  end
  if token then return finish(lock, granted(r, token)) end
  -- admit() may have granted another request of the same owner, and this one together with it.
  held = r.owner ~= '-' and read_hold(lock, r.id)
  if held then
    local left = extend_hold(lock, held, r.first_ms)
    return finish(lock, granted(r, held.token, left))
  end
  joined = join_owner(lock, r)
  if joined then return finish(lock, joined) end
  token = take_now(lock, r)
  if token then return token end
  at.left = lock.form == 'free' and 0 or time_left(lock)
  if not r.waits then return busy_answer(lock, r, at.left) end
  at.place = redis.call('ZRANK', lock.queue, r.id)
  for _, name in ipairs(at.place and {} or at.dead or dead_of_two(lock.waiters, lock.now)) do
    if not leave_queue(lock, name) then redis.call('HDEL', lock.waiters, name) end
  end
  return nil
end

-- The request keeps its place in the queue, gets it back, or takes the last one.
local function queue_up(lock, r, at, joins)
  local place, arrival = at.place, at.place and redis.call('ZSCORE', lock.queue, r.id)
  if not place then
    r.is_back = r.arrived
    place = at.count or redis.call('ZCARD', lock.queue)
    if place >= tonumber(r.most) and not r.is_back then
      if lock.number ~= r.number_before then keep_counter(lock) end
      return { -4 }
    end
    arrival = r.arrived or next_number(lock)
    redis.call('ZADD', lock.queue, 'NX', arrival, r.id)
    if r.owner ~= '-' then add_to(lock.waiters, r.owner, r.id) end
    if r.is_back then place = redis.call('ZRANK', lock.queue, r.id) end
  end
  if lock.number ~= r.number_before or r.is_back then
    keep_counter(lock, true)
  elseif place == 0 and not joins then
    redis.call('PEXPIRE', lock.counter, counter_life(lock.number, lock.now))
  end
  local may_hear = lock.form ~= 'foreign' and is_told(r.box)
  local again = plan_poll(at.left, place, may_hear, r.soonest, r.longest, r.margin, r.stagger)
  write_waiter(lock.waiters, r.id, lock.now, again, r.grace,
    r.ttl .. ' ' .. r.units .. ' ' .. r.capacity .. ' ' .. r.kind .. ' ' .. r.owner .. ' ' ..
    r.box .. ' ' .. r.meta, r.box)
  if place == 0 then
    redis.call('PEXPIRE', lock.queue, HOUR_MS)
    redis.call('PEXPIRE', lock.waiters, HOUR_MS)
  end
  return queued_answer(at.left, again, lock.stamp, whole(lock.number), place, arrival)
end

-- seen: what acquire_straight() has seen of the lock.
local function acquire_in_full(keys, args, seen)
  local r = read_request(args)
  local lock = open_lock(keys, seen.clock or redis.call('TIME'))
  set_history(lock, r.keep, r.age)
  local failure = read_for_acquire(lock, r, seen)
  if failure then return failure end
  if not lock.is_listed then
    add_to_index(lock.key, args[5])
    lock.is_listed = true
  end
  local at = { dead = seen.dead }
  local answer = look_ahead(lock, r, at)
  if not answer and not at.left then answer = grant_or_refuse(lock, r, at, seen.took) end
  return answer or queue_up(lock, r, at, seen.joins)
end

local function acquire(keys, args)
  local answer, seen = acquire_straight(keys, args)
  if answer ~= nil then return answer end
  return acquire_in_full(keys, args, seen)
end
