
-- ---- places.lua - the queue of a quorum on one of its servers
--
-- The queue decides which waiter asks next when the lock is free. It grants nothing, so an error in
-- it does no harm: if a place is missing on a server, or is one too many, that costs a little time.
-- A waiter has the same ticket on every server, so servers that know the same waiters have them in
-- the same order.
--
-- Keys: 7 places   sorted set: place -> ticket. A place is the id of a wait; the tries of that wait
--                  have ids of their own.
--       4 waiters  also has =place -> "due ttl meta", where the place counts as alive until `due`;
--                  and = -> time since when the lock is free and its first waiter has not come.

local PLACES_MOST, PASS_MOST = 100000, 64

local function drop_place(keys, id)
  redis.call('ZREM', keys[7], id)
  redis.call('HDEL', keys[4], '=' .. id)
end

-- Returns the first place that is alive, and drops the dead ones before it.
local function first_place(keys, now)
  for _ = 1, PASS_MOST do
    local id = redis.call('ZRANGE', keys[7], '0', '0')[1]
    if not id then return nil end
    local record = redis.call('HGET', keys[4], '=' .. id) or '0'
    if tonumber(record:match('^%d+')) > now then return id end
    drop_place(keys, id)
  end
end

-- Returns true if the lock is free, but is still kept for the waiters ahead of this request.
local function is_early(keys, p, now, ahead)
  if redis.call('EXISTS', keys[1]) == 1 then return false end
  local since = tonumber(redis.call('HGET', keys[4], '=') or 0)
  -- nobody noted the end, because the last hold expired; or the clock stepped back
  if since == 0 or since > now then
    since = now
    redis.call('HSET', keys[4], '=', whole(now))
  end
  return now < since + math.min(ahead, 2) * p.grace * 1000
end

-- Puts the request into the queue: by the ticket that the servers agreed on (p.ticket; 0: none), at
-- the place that it already has, or at the end. Returns its ticket; 0: the queue is full.
local function take_place(keys, args, p, now)
  local mine = tonumber(redis.call('ZSCORE', keys[7], p.place) or 0)
  local number = p.ticket ~= '0' and tonumber(p.ticket) or mine
  if mine == 0 and redis.call('ZCARD', keys[7]) >= PLACES_MOST then return 0 end
  if number == 0 then
    local last = redis.call('ZRANGE', keys[7], '-1', '-1', 'WITHSCORES')
    number = math.max(now, (tonumber(last[2]) or 0) + 1)
  end
  if number ~= mine then redis.call('ZADD', keys[7], whole(number), p.place) end
  local due = whole(now + p.alive * 1000)
  redis.call('HSET', keys[4], '=' .. p.place, due .. ' ' .. args[2] .. ' ' .. args[3])
  redis.call('PEXPIRE', keys[7], HOUR_MS)
  redis.call('PEXPIRE', keys[4], HOUR_MS)
  return number
end

-- Drops the places of the waiters ahead of a request that was granted. A waiter that lives asks
-- again and gets its old place back.
local function pass_over(keys, p, ahead)
  local passed = ahead > 0 and p.grace ~= '0' and
    redis.call('ZRANGE', keys[7], '0', math.min(ahead, PASS_MOST) - 1)
  for _, id in ipairs(passed or {}) do drop_place(keys, id) end
  redis.call('HDEL', keys[4], '=')
end

local function is_given_up(keys, id, now)
  local till = redis.call('HGET', keys[4], '!' .. id)
  return till and tonumber(till) > now
end

-- acquire on a server of a quorum.
-- Arguments: 1 to 5 as in acquire, but the lock has no queue of that kind,
--   6 "place ticket alive grace"; absent: the quorum agreed on the hold, so it passes all waiters.
--       place   id of the wait; "-": the request does not wait
--       ticket  ticket that the servers agreed on; 0: the server proposes one
--       alive   milliseconds for which the place counts as alive
--       grace   milliseconds for which a free lock is kept for its first waiter; waiters from the
--               third on are kept out for twice as long. 0: the request may pass all waiters
-- Answers: as acquire; if busy {0, left, holder, ticket, ahead}. holder: '' if nobody holds the
--   lock and other waiters come first. ticket: that of the request's place; 0: it has no place.
--   ahead: number of waiters ahead.
-- Cost: that of acquire and a ZRANGE. If others wait also TIME, HGET, ZRANK, EXISTS; if the request
--   must wait also ZSCORE, ZADD, HSET.
local function quorum_acquire(keys, args)
  if not args[6] then return acquire(keys, args) end
  local p = {}
  p.place, p.ticket, p.alive, p.grace = args[6]:match('^(%S+) (%d+) (%d+) (%d+)$')
  local has_place = p.place ~= '-'
  local now = redis.call('ZRANGE', keys[7], '0', '0')[1] and clock_number(redis.call('TIME'))
  -- A request that knows the agreed ticket takes its place by that ticket before anything else,
  -- even if it is granted in this call. With the ticket that this server proposed, it could be
  -- ahead of others here and behind them on other servers.
  local ticket = now and has_place and p.ticket ~= '0' and take_place(keys, args, p, now)
  local first, ahead = now and first_place(keys, now), 0
  if first and first ~= p.place then
    ahead = redis.call('ZRANK', keys[7], p.place) or redis.call('ZCARD', keys[7])
  end
  local answer
  if ahead > 0 and is_early(keys, p, now, ahead) then
    if is_given_up(keys, args[1], now) then return { -1 } end
    answer = { 0, 0, '' }
  else
    answer = acquire(keys, args)
  end
  if type(answer) == 'string' then
    if first then pass_over(keys, p, ahead) end
    return answer
  end
  if type(answer) ~= 'table' or answer[1] ~= 0 then return answer end
  if not ticket and has_place then
    ticket = take_place(keys, args, p, now or clock_number(redis.call('TIME')))
  end
  answer[3] = answer[3] or false -- Redis ends a reply at the first nil, so put false there
  answer[4] = whole(ticket or 0)
  answer[5] = ticket and ticket > 0 and redis.call('ZRANK', keys[7], p.place) or ahead
  return answer
end

-- release on a server of a quorum: releases a try or a hold, and announces the next waiter.
-- Arguments: 1 id,
--   2 channel on which the first place is published if the lock is free now ("-" if there is no
--     place); "-": nothing is published,
--   3 place to give up; "-": none,
--   4 as argument 3 of release.
-- Answers: as release.
-- Cost: that of release, ZRANGE and PUBLISH. If others wait also EXISTS, TIME, HGET, HSET; with a
--   place also ZREM, HDEL.
local function quorum_release(keys, args)
  local channel, place = args[2], args[3]
  local answer = release(keys, { args[1], '-', args[4] })
  local first = redis.call('ZRANGE', keys[7], '0', '0')[1]
  local is_freed = answer == 1 or (first and first == place)
  if first and place ~= '-' then drop_place(keys, place) end
  if not is_freed or channel == '-' or redis.call('EXISTS', keys[1]) == 1 then return answer end
  if first then
    local now = clock_number(redis.call('TIME'))
    first = first_place(keys, now)
    if first then redis.call('HSET', keys[4], '=', whole(now)) end
  end
  redis.call('PUBLISH', channel, first or '-')
  return answer
end

-- inspect on a server of a quorum, whose waiters are in another queue (key 7).
local function quorum_inspect(keys, args)
  local rows = inspect(keys, args)
  if args[1] ~= 'n' or not rows[4] then return rows end
  local held = {} -- tickets of holders: a holder keeps its place until it releases
  for i = 5, #rows do
    local ticket = rows[i]:match('^h %S+ %S+ %S+ %S+ %S+ %a (%d+) ')
    if ticket then held[ticket] = true end
  end
  local waiting = redis.call('ZRANGE', keys[7], args[2], args[2] + args[3] - 1, 'WITHSCORES')
  for i = 1, #waiting, 2 do
    local ticket = whole(tonumber(waiting[i + 1]))
    local record = redis.call('HGET', keys[4], '=' .. waiting[i]) or ''
    local due, ttl, meta = record:match('^(%d+) (%d+) (.*)$')
    if due and tonumber(due) > tonumber(rows[1]) and not held[ticket] then
      rows[#rows + 1] = 'w ' .. ticket .. ' 1 ' .. ttl .. ' e ' .. meta
    else
      rows[#rows + 1] = 'd'
    end
  end
  return rows
end
