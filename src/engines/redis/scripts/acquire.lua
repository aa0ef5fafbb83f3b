
-- ---- acquire.lua - acquire, refresh of a place in the queue, and confirmation of a grant
--
-- Arguments: 1 id, 2 ttl, 3 meta,
--   4 "kind owner history token units capacity", followed by " p" if the request is a poll: the
--     client then does not know of a grant.
--       history  number of past holds to keep
--       token    token that a quorum agreed on for this id; 0: none yet
--   5 "age wait queued barging box first longest grace margin stagger most prefix".
--       age      milliseconds for which past holds are kept
--       wait     1: the request may wait; 0: it may not
--       queued   arrival number, if the client knows it; otherwise 1 if the client has sent a
--                request with this id before, or 0
--       barging  1: the request may pass waiters; 0: it may not
--       box      how the waiter is notified: a letter, and a name. i: inbox of that name; p:
--                channel of that name; n: not notified. In a cluster the name is the client's id,
--                and the letter is s (channel in the slot of the lock) or c (not notified). "-":
--                the request never waits
--       first, longest  shortest and longest time between two polls, in ms
--       most     longest queue
--       prefix   length in bytes of the prefix in the key of the lock, as three digits; ---: there
--                is no index of names
--
-- Answers:
--   token                  held for at least ttl from now
--   {token, left}          reply to a poll: held for `left` ms, as after a handoff
--   {0, left, holder}      busy, and not in the queue. left: ms until the first hold ends; -1: it
--                          has no end. holder: "token meta" of that hold, only if box is "-" and no
--                          other program holds the lock
--   {0, left, again, now, number, place, arrival}
--                          queued: ask again after `again` ms. number: the counter. place: 0 is the
--                          first in the queue. arrival: to be sent as `queued` from now on
--   {-1}                   this id was given up
--   {-2, class, capacity}  the lock is in use with another kind or capacity, which are these
--   {-3, capacity}         the request wants more units than this capacity
--   {-4}                   the queue is full
--   {-5}                   the owner reads the lock, and this request asks to write
--   {-6}                   ask again at once: this call removed as many dead waiters as it may, and
--                          more are still ahead
--
-- Cost: TIME, SET, SET for a plain lock that is free. To wait for a plain lock: TIME, SET, SET,
-- ZCARD, PTTL, ZADD, HSET, and two PEXPIRE for the first waiter or HRANDFIELD for all others.
-- Otherwise O(log n), where n is the number of waiters.

-- Reads the arguments of an acquire.
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
  -- The arrival number of a place in the queue that the request had, and may have lost.
  r.arrived = #r.queued > 1 and r.queued
  r.number_before = seen.joins and lock.now or lock.number -- number that the counter has now
  lock.number = math.max(lock.number, tonumber(r.agreed), tonumber(r.arrived or 0))
  if seen.took then
    -- The lock is not simply free: queue, tombstones or clock must be checked first.
    redis.call('DEL', lock.key)
    return nil
  end
  if r.kind ~= 'e' or r.owner ~= '-' then
    state = redis.pcall('HMGET', lock.key, '@k', '@c', '@d', '@u')
    if not state[1] then state = nil end -- the lock is free or not in a hash: GET follows
  end
  return read_lock(lock, seen.value, state)
end

-- Returns the end of the first hold in the hash, if the lock is full until then. Returns nil in
-- these cases: the lock is not full; the request or its owner holds; kind or capacity differ; the
-- first hold has ended; the first hold has more time left than it was given.
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

-- The short path for a lock that others hold. It draws two waiters at random and applies only if
-- neither is dead. (The next release finds out whether the first waiter is dead.) Returns an
-- answer, or nil. If the result is nil and the request can be queued, at.left is set.
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

-- Returns the hold of this id; nil: the id holds nothing.
local function read_own(lock, r)
  local held = read_hold(lock, r.id)
  if not held or r.owner == '-' then return held end
  -- A release that was refused half-way may have removed the id from its owner's list only: then
  -- the id holds nothing any more.
  local ids = redis.call('HGET', lock.key, '+' .. r.owner) or ''
  if ids:find(r.id, 1, true) then return held end
  redis.call('HDEL', lock.key, r.id)
  redis.call('ZREM', lock.ends, r.id)
  return nil
end

-- Returns the answer to a request that holds for at least `left` ms.
local function granted(r, token, left)
  return r.polls and { token, left or r.first_ms } or token
end

-- Confirms the grant of a request that holds already.
local function confirm(lock, r, held)
  -- A token of 1 means: a bare SET of this id arrived late and took the lock, although the id has a
  -- place in the queue.
  if held.token == '1' then leave_queue(lock, r.id, r) end
  renew_round(lock, held, r.meta)
  raise_token(lock, held, r.agreed)
  local left = extend_hold(lock, held, r.first_ms)
  return granted(r, held.token, left)
end

-- Returns the refusal if the lock is in use with another kind or capacity; otherwise nil.
local function mismatch(lock, r)
  if lock.form ~= 'plain' and lock.form ~= 'many' then return nil end
  local has_capacity = r.capacity == lock.capacity or r.capacity == lock.declared
  local agrees = lock.class == class_of(r.kind) and has_capacity
  if not agrees then return { -2, lock.class, lock.capacity } end
  if lock.class == 's' and r.units > lock.capacity then return { -3, lock.capacity } end
  return nil
end

-- If the owner has another hold, makes the request a part of it. Returns the answer; nil: the owner
-- holds nothing.
local function join_owner(lock, r)
  local other = hold_of(lock, r.owner)
  if not other then return nil end
  leave_queue(lock, r.id, r)
  if r.kind == 'w' and other.kind == 'r' then return { -5 } end
  -- The new writer relies on the upgrade, so the upgrade cannot be revoked any more.
  if r.kind == 'w' then redis.call('HDEL', lock.key, '@w') end
  hold(lock, r, lock.now + r.first_ms * 1000, other.token, other.kind)
  return granted(r, other.token)
end

-- Grants the lock if the request fits and nobody waits, or if the request may pass waiters. Returns
-- the token, or nil.
local function take_now(lock, r)
  -- A barging request that has a place in the queue may not pass the others.
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

-- Answers a request that was not granted and does not wait.
local function busy_answer(lock, r, left)
  if r.queued ~= '0' then leave_queue(lock, r.id, r) end
  return finish(lock, { 0, left, r.box == '-' and hold_in_the_way(lock) })
end

-- Grants or refuses the request if that can be decided now. Returns the answer; nil: the request
-- must be queued.
local function grant_or_refuse(lock, r, at, took)
  if not took then
    -- The id of this hold was given up: its bare SET arrived late. Remove the hold.
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
  -- admit() may have granted another request of the same owner, and then this request together with
  -- it.
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

-- Queues the request: it keeps its place, gets a lost place back, or takes the last place.
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

-- seen: facts about the lock that acquire_straight() has read already.
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
