
-- ---- waiters.lua - who waits

local function parse_waiter(id, text)
  local due, span, grace, ttl, units, capacity, kind, owner, box, meta =
    text:match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%a) (%S+) (%S+) (.*)$')
  due = tonumber(due)
  return { id = id, due = due, asked = due - span * 1000, grace = tonumber(grace),
    ttl = tonumber(ttl), units = tonumber(units), capacity = tonumber(capacity), kind = kind,
    owner = owner, box = box, meta = meta }
end

local function read_waiter(lock, id)
  local text = redis.call('HGET', lock.waiters, id)
  return text and parse_waiter(id, text)
end

-- Removes the record of a waiter that is not in the queue any more. w: the record; nil: unknown.
local function forget_waiter(lock, id, w)
  redis.call('HDEL', lock.waiters, id)
  if w and w.owner ~= '-' then take_from(lock.waiters, w.owner, id) end
end

-- Removes an id from the queue. w: its record, if that was read already. Returns true if the id was
-- in the queue.
local function leave_queue(lock, id, w)
  if redis.call('ZREM', lock.queue, id) == 0 then return false end
  forget_waiter(lock, id, w or read_waiter(lock, id))
  return true
end

local function notify(lock, w, token, till)
  send_message(w.id, w.box, token, whole(till), lock.stamp, lock.key, lock.queue)
end

local function fits(lock, w)
  if lock.form == 'free' then return true end
  return lock.form == 'many' and lock.class == class_of(w.kind) and
    lock.used + w.units <= lock.capacity
end

-- Makes a waiter that has left the queue a holder. beside: as in hold().
local function hand_off(lock, w, token, arrival, beside)
  local till = handoff_end(w.grace, lock.now)
  w.meta = arrival .. w.meta:sub(2)
  hold(lock, w, till, token, beside)
  notify(lock, w, token, till)
end

-- Grants a waiter together with another request of its owner, which holds as `kind`. But a waiter
-- that asks to write cannot join an owner that reads: it gets a handoff that has already ended, so
-- that it asks again and is told to upgrade.
local function hand_off_beside(lock, w, token, arrival, kind)
  if w.kind == 'w' and kind == 'r' then
    notify(lock, w, token, lock.now)
  else
    hand_off(lock, w, token, arrival, kind)
  end
end

-- Grants all waiters of an owner together with the owner's request that holds as `kind`; otherwise
-- they would block each other. Waiters beyond GATHER_MOST are granted when they ask again, or when
-- they are first in the queue.
local function gather(lock, owner, kind, token)
  if owner == '-' then return end
  local met = 0
  for id in (redis.call('HGET', lock.waiters, '+' .. owner) or ''):gmatch('%S+') do
    if met == GATHER_MOST then break end
    met = met + 1
    local w, arrival = read_waiter(lock, id), redis.call('ZSCORE', lock.queue, id)
    if not leave_queue(lock, id, w) then forget_waiter(lock, id, w) end
    if w and arrival and is_alive(w.due, w.asked, w.box, lock.now, lock.waiters) then
      hand_off_beside(lock, w, token, arrival, kind)
    end
  end
end

-- Returns true if this waiter is dead. present: for each box that was looked up, whether its client
-- is alive.
local function is_dead(lock, w, present)
  if not w or w.due <= lock.now then return true end
  if present[w.box] == nil or lock.now - w.asked < PRESENCE_US then
    present[w.box] = is_alive(w.due, w.asked, w.box, lock.now, lock.waiters)
  end
  return not present[w.box]
end

-- Removes dead waiters from the head of the queue. me: the request of this call, which is alive.
local function drop_dead(lock, me)
  local present, dropped, size = {}, 0, 8
  while dropped < DEAD_MOST do
    local ids = redis.call('ZRANGE', lock.queue, 0, size - 1)
    if not ids[1] then return end
    local records, dead = redis.call('HMGET', lock.waiters, unpack(ids)), {}
    for i, id in ipairs(ids) do
      local w = records[i] and parse_waiter(id, records[i])
      if (me and id == me.id) or not is_dead(lock, w, present) then break end
      if w and w.owner ~= '-' then take_from(lock.waiters, w.owner, id) end
      dead[i] = id
    end
    if dead[1] then
      redis.call('ZREM', lock.queue, unpack(dead))
      redis.call('HDEL', lock.waiters, unpack(dead))
    end
    if #dead < #ids then return end
    dropped, size = dropped + #dead, math.min(size * 4, SLICE)
  end
  lock.is_unfinished = true
end
