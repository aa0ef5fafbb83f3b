
-- ---- admit.lua - grants the lock to waiters, in their order, while the first one fits

-- Returns the first waiter. If the lock is free, removes that waiter from the queue at once,
-- because it is then granted or dead.
local function first_in_line(lock)
  if lock.form == 'free' then return redis.call('ZPOPMIN', lock.queue) end
  return redis.call('ZRANGE', lock.queue, '0', '0', 'WITHSCORES')
end

-- Grants the lock to w with a new token. Returns the token.
local function grant(lock, w, arrival, is_me)
  local token = next_number(lock)
  keep_counter(lock, true)
  if is_me then
    w.meta = arrival .. w.meta:sub(2)
    hold(lock, w, lock.now + w.first_ms * 1000, token)
  else
    hand_off(lock, w, token, arrival)
  end
  gather(lock, w.owner, w.kind, token)
  return token
end

-- Grants the lock to waiters in their order. me: the request of this call, which gets no message.
-- first: the first waiter, if the caller has already taken it from the queue. Returns the token of
-- `me` if `me` was granted.
local function admit(lock, me, first)
  local mine
  lock.is_unfinished = false
  for round = 1, ADMIT_MOST do
    local was_free = lock.form == 'free'
    first = first or first_in_line(lock)
    local id, arrival = first[1], first[2]
    first = nil
    if not id then break end
    local is_me = me and id == me.id
    local w = is_me and me or read_waiter(lock, id)
    local is_gone = not is_me and
      not (w and is_alive(w.due, w.asked, w.box, lock.now, lock.waiters))
    local is_too_big = not is_gone and lock.form == 'many' and
      lock.class == class_of(w.kind) and w.units > lock.capacity
    if not (is_gone or is_too_big or fits(lock, w)) then break end
    if was_free then forget_waiter(lock, id, w) else leave_queue(lock, id, w) end
    local other = not is_gone and hold_of(lock, w.owner)
    if other then
      if is_me then break end -- acquire() makes the request a part of its owner's other hold
      hand_off_beside(lock, w, other.token, arrival, other.kind)
    elseif is_gone then
      drop_dead(lock, me)
      if lock.is_unfinished then break end
    elseif is_too_big then
      notify(lock, w, '0', lock.now)
    else
      local token = grant(lock, w, arrival, is_me)
      if is_me then mine = token end
      if lock.form == 'plain' then break end
    end
    lock.is_unfinished = round == ADMIT_MOST
  end
  if lock.is_over then
    redis.call('DEL', lock.key)
    lock.is_over = false
  end
  lock.is_unfinished = lock.is_unfinished or lock.has_more_over
  return mine
end

-- Ends a verb that has written: admits waiters and stores the counter. release and a granted
-- acquire call both themselves, because they need arguments or the result of admit().
local function finish(lock, answer)
  admit(lock)
  keep_counter(lock)
  return answer
end
