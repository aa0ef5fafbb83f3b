
-- ---- straight.lua - the three straight paths: most requests are answered here
--
-- Each of them returns an answer, or nil and what it has seen of the lock: then the verb goes on
-- from there (acquire.lua, release.lua, extend.lua). They use locals alone: a table costs more
-- than a command.

-- The reply to TIME in microseconds, as text (clock_text) and as number (clock_number).
local function clock_text(clock)
  if #clock[2] == 6 then return clock[1] .. clock[2] end
  return clock[1] .. ('00000' .. clock[2]):sub(-6)
end

local function clock_number(clock) return clock[1] * 1000000 + clock[2] end

-- Returns a whole number as text. The operator .. would print 1e+15. One %.0f takes much longer
-- than two %d, but a %d takes only 32 bits.
local function whole(number)
  if number < 1000000 then return string.format('%.0f', number) end
  local low = number % 1000000
  return string.format('%d%06d', (number - low) / 1000000, low)
end

-- Returns the next token or arrival number: one above `number`, but never below the clock.
local function next_after(number, now) return number < now and now or number + 1 end

-- Returns the time to live of the counter in ms: until one hour after the time that its number
-- stands for.
local function counter_life(number, now)
  if number <= now then return HOUR_MS end
  return string.format('%.0f', 3600000 + math.ceil((number - now) / 1000))
end

-- Writes the old text of the counter again, after this call has overwritten it.
local function restore_counter(key, text, now)
  redis.call('SET', key, text, 'PX', counter_life(tonumber(text:match('%d+')) or 0, now))
end

-- Returns true for the box of a waiter in a cluster. Its first letter is s (notified by a channel
-- in the slot of the lock) or c (not notified). In a cluster no script may touch a key of another
-- slot, such as BOX:alive or an inbox.
local function is_of_cluster(box)
  local how = box:byte(1)
  return how == 115 or how == 99
end

-- Returns true if the client has given a sign of life. In a cluster that sign is the field =CLIENT
-- in the hash of waiters, with the time until which the client counts as alive. Each request of a
-- waiter renews it for all waiters of its client.
local function is_present(box, now, waiters)
  if is_of_cluster(box) then
    local till = tonumber(redis.call('HGET', waiters, '=' .. box:sub(2)) or 0)
    return till > now and till < now + PRESENCE_US + STEP_US
  end
  local left = redis.call('PTTL', box:sub(2) .. ':alive')
  return left > 0 and left * 1000 < PRESENCE_US + STEP_US
end

-- Returns true if a waiter is alive: its record has not ended, and its last request is younger than
-- PRESENCE_US or its client is present. A request or sign of life that lies in the future proves
-- nothing: the clock stepped back after it. A dead waiter loses its place. If its client was only
-- slow, the next request names the arrival number and gets the place back.
local function is_alive(due, asked, box, now, waiters)
  local age = now - asked
  if due <= now then return false end
  if age < PRESENCE_US and age > -STEP_US then return true end
  return is_present(box, now, waiters)
end

-- Returns the string that stands for a plain exclusive hold.
local function plain_text(id, token, ttl, meta)
  return id .. ' ' .. token .. ' ' .. ttl .. ' ' .. meta
end

local function write_plain(key, id, token, ttl, meta, ms)
  redis.call('SET', key, plain_text(id, token, ttl, meta), 'PX', ms)
end

-- Returns the time in ms until a plain hold ends; -1: it has no end. If more time is left than the
-- hold was ever given, the clock stepped back; then the hold is shortened.
local function plain_left(key, given)
  local left = redis.call('PTTL', key)
  if left > given then
    left = given
    redis.call('PEXPIRE', key, given)
  end
  return left
end

-- Draws two waiters at random and returns those that are dead. A release finds only the dead
-- waiters at the head of the queue, so each new waiter looks for others. A field that begins with +
-- is the list of an owner's ids.
local function dead_of_two(waiters, now)
  local dead, sample = {}, redis.call('HRANDFIELD', waiters, '-2', 'WITHVALUES')
  for i = 1, #sample, 2 do
    local till = sample[i]:byte(1) ~= 43 and tonumber(sample[i + 1]:match('^%d+')) -- 43 is +
    if till and till <= now then dead[#dead + 1] = sample[i] end
  end
  return dead
end

-- Notifies a waiter that it holds: "id token end now lock". Token 0 means that it asks for more
-- units than the capacity. The record decides, so a lost message does no harm.
local function send_message(id, to, token, till, now, lock_key, queue)
  local text = id .. ' ' .. token .. ' ' .. till .. ' ' .. now .. ' ' .. lock_key
  local how, box = to:byte(1), to:sub(2)
  if how == 105 then -- i: the inbox, a list
    local length = redis.pcall('RPUSH', box, text)
    if type(length) == 'number' then redis.pcall('PEXPIRE', box, '60000') end
  elseif how == 112 then -- p: a channel
    redis.pcall('PUBLISH', box, text)
  elseif how == 115 then -- s: a channel in the slot of the lock
    redis.pcall('SPUBLISH', queue .. box, text)
  end
end

-- Returns the end of a handoff: until then the waiter must extend its hold.
local function handoff_end(grace, now) return now + grace * 1000 end

-- Returns after how many ms the waiter at that place asks again.
local function plan_poll(left, place, may_hear, soonest, longest, margin, stagger)
  local again = left + margin + math.min(place * stagger, SPREAD_MS)
  local step = soonest * (place + 1)
  -- The first waiter is notified of a release. It polls only in case the holder dies.
  local is_notified = place == 0 and may_hear
  if left < 0 or (not is_notified and again > step) then again = step end
  return math.min(again, tonumber(longest))
end

-- Returns true if the waiter with that box is notified of a release. Letters n (110) and c (99)
-- mean that it is not.
local function is_told(box)
  local how = box:byte(1)
  return how ~= 110 and how ~= 99
end

-- Writes the record of a waiter. terms: the part of the record from the ttl on.
local function write_waiter(key, id, now, again, grace, terms, box)
  local span = again + grace
  local record = whole(now + span * 1000) .. ' ' .. span .. ' ' .. grace .. ' ' .. terms
  if is_of_cluster(box) then
    redis.call('HSET', key, id, record, '=' .. box:sub(2), whole(now + PRESENCE_US))
  else
    redis.call('HSET', key, id, record)
  end
end

-- Returns the answer to a waiter. number: the counter; the client uses it to recognise messages
-- that are older.
local function queued_answer(left, again, now, number, place, arrival)
  return { 0, left, again, now, number, place, arrival }
end

-- Queues a request behind a plain hold of another request. The caller has already set the counter
-- to `stamp`, with the mark that somebody waits. If this path is not enough, returns nil and the
-- dead waiters that it found; the verb then removes them.
local function queue_straight(keys, args, value, stamp, now)
  local queue, waiters = key_of(keys, 3, 'q'), key_of(keys, 4, 'w')
  local box, soonest, longest, grace, margin, stagger, most =
    args[5]:match('^%d+ %d %d+ %d (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
  local holder, given = value:match('^(%S+) %d+ (%d+) ')
  if not holder or #holder ~= 22 or holder == args[1] then return nil end
  local place = redis.call('ZCARD', queue)
  if place >= tonumber(most) then return nil end
  local dead = place > 0 and dead_of_two(waiters, now)
  if dead and dead[1] then return nil, dead end
  local left = plain_left(keys[1], tonumber(given))
  redis.call('ZADD', queue, 'NX', stamp, args[1])
  local again = plan_poll(left, place, is_told(box), soonest, longest, margin, stagger)
  write_waiter(waiters, args[1], now, again, grace,
    args[2] .. ' 1 1 e - ' .. box .. ' ' .. args[3], box)
  if place == 0 then
    redis.call('PEXPIRE', queue, HOUR_MS)
    redis.call('PEXPIRE', waiters, HOUR_MS)
  end
  return queued_answer(left, again, stamp, stamp, place, stamp)
end

-- acquire: takes a plain lock that is free, or waits for one that is held.
local function acquire_straight(keys, args)
  if args[4] ~= 'e - 0 0 1 1' then return nil, {} end
  local clock = redis.call('TIME')
  local stamp = clock_text(clock)
  local value = redis.pcall('SET', keys[1], plain_text(args[1], stamp, args[2], args[3]), 'NX',
    'GET', 'PX', args[2])
  if not value then -- the lock was free and is taken now
    local before = redis.call('SET', keys[2], stamp, 'PX', HOUR_MS, 'GET')
    -- Compare numbers, not texts: "<" between texts follows the server's locale, in which ~ may
    -- come before digits.
    local number = tonumber(before or 0) -- nil: the text begins with ~ ("look closer")
    if not before then add_to_index(keys[1], args[5]) end
    if number and number < tonumber(stamp) then return stamp end
    restore_counter(keys[2], before, clock_number(clock))
    return nil, { clock = clock, took = true, before = before }
  end
  if type(value) == 'table' then
    if value.err:sub(1, 9) ~= 'WRONGTYPE' then error(value) end
    return nil, { clock = clock, value = value }
  end
  local wait, queued = args[5]:match('^%d+ (%d) (%d+) ')
  if wait == '0' or queued ~= '0' then return nil, { clock = clock, value = value } end
  -- The request will most likely join the queue, with this arrival number.
  local before, now = redis.call('SET', keys[2], '~' .. stamp .. ' 0', 'PX', HOUR_MS, 'GET'),
    clock_number(clock)
  local number, till = (before or ''):match('^~?(%d+) ?(%d*)$')
  local is_right = not number or (tonumber(number) < now and (till == '' or till == '0'))
  local answer, dead
  if is_right then answer, dead = queue_straight(keys, args, value, stamp, now) end
  if answer then return answer end
  if not is_right then restore_counter(keys[2], before, now) end
  return nil, { clock = clock, value = value, before = before, joins = is_right, dead = dead }
end

-- Hands the plain lock to the first waiter, which was already removed from the queue. Returns true
-- if that waiter is alive and waits for a plain hold; otherwise does nothing.
local function hand_off_straight(keys, queue, first, counter_text, clock)
  local id, now, waiters = first[1], clock_number(clock), key_of(keys, 4, 'w')
  local due, span, grace, ttl, box, meta = (redis.call('HGET', waiters, id) or
    ''):match('^(%d+) (%d+) (%d+) (%d+) 1 1 e %- (%S+) 0(.*)$')
  if not due then return false end
  due = tonumber(due)
  if not is_alive(due, due - span * 1000, box, now, waiters) then return false end
  local counted, until_text = counter_text:match('^~(%d+) (%d+)$')
  local number = next_after(tonumber(counted) or 0, now)
  local stamp, till = clock_text(clock), handoff_end(grace, now)
  local token, ms = number == now and stamp or whole(number), math.ceil((till - now) / 1000)
  redis.call('HDEL', waiters, id)
  -- Keep the mark ~ even if the queue is empty now: the next release finds that out.
  redis.call('SET', keys[2], '~' .. token .. ' ' .. (until_text or '0'), 'PX',
    counter_life(number, now))
  write_plain(keys[1], id, token, math.max(tonumber(ttl), ms), first[2] .. meta, ms)
  send_message(id, box, token, whole(till), stamp, keys[1], queue)
  return true
end

-- release: ends a plain hold, and hands the lock to the first waiter if there is one.
local function release_straight(keys, args)
  if args[3] then return nil, {} end
  local id, value = args[1], redis.pcall('GET', keys[1])
  if value and type(value) ~= 'string' then return nil, { value = value } end
  local is_mine = value and value:sub(1, 22) == id
  local text, queue, first = redis.call('GET', keys[2]), nil, nil
  local is_quiet = not text or text:byte(1) ~= 126 -- 126 is ~
  if not is_quiet and is_mine then
    queue = key_of(keys, 3, 'q')
    first = redis.call('ZPOPMIN', queue)
    local number = not first[1] and text:match('^~(%d+) 0$')
    -- The queue is empty and no tombstone stands: remove the mark ~.
    if number then redis.call('SET', keys[2], number, 'KEEPTTL') end
    is_quiet = number
  end
  if is_quiet then
    if not is_mine then return 0 end
    redis.call('DEL', keys[1])
    if args[2] and args[2] ~= '-' then redis.pcall('PUBLISH', args[2], id) end
    return 1
  end
  if not first or not first[1] then return nil, { value = value, text = text, first = first } end
  local clock = redis.call('TIME')
  if hand_off_straight(keys, queue, first, text, clock) then return 1 end
  return nil, { value = value, text = text, first = first, clock = clock }
end

-- extend: renews a plain hold, for no longer than it was given before. One key is enough for that.
local function extend_straight(keys, args)
  if args[3] then return nil, {} end
  local value, ttl = redis.pcall('GET', keys[1]), tonumber(args[2])
  if not value then return { 0 } end
  local token, given
  if type(value) == 'string' then
    if value:sub(1, 22) ~= args[1] then return { 0 } end
    token, given = value:match('^%S+ (%d+) (%d+) ')
    given = tonumber(given)
  end
  if not given or ttl > given then
    if not keys[2] then return false end
    return nil, { value = value }
  end
  local left = redis.call('PTTL', keys[1])
  if left < ttl then
    redis.call('PEXPIRE', keys[1], args[2])
    left = ttl
  end
  return { token, math.min(left, given) }
end

-- EVALSHA runs this text from top to bottom at every call, so the call returns here if a straight
-- path answers it.
local straight = { acquire = acquire_straight, release = release_straight,
  extend = extend_straight }
local verb, seen
if not VERSION then
  verb = table.remove(ARGV, 1)
  if straight[verb] then
    local answer
    answer, seen = straight[verb](KEYS, ARGV)
    if answer ~= nil then return answer end
  end
end
