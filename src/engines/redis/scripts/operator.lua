
-- ---- operator.lua - the verbs of an operator: break and resize

-- break: ends holds by force. The token proves that the caller saw who holds.
-- Arguments: 1 token, 2 history, 3 age. Answer: number of ids that held with that token; 0: none.
-- Cost: reads every holder of the name.
local function break_hold(keys, args)
  local lock = open_lock(keys, redis.call('TIME'))
  set_history(lock, args[2], args[3])
  local failure = read_lock(lock)
  if failure then return failure end
  read_counter(lock, redis.call('GET', lock.counter))
  reap(lock)
  local broken, ids = 0, {}
  if lock.form == 'plain' then ids = { lock.plain.id } end
  if lock.form == 'many' then ids = redis.call('ZRANGE', lock.ends, 0, -1) end
  for _, id in ipairs(ids) do
    local h = read_hold(lock, id)
    if h and h.token == args[1] then
      drop_hold(lock, h, 'l')
      broken = broken + 1
    end
  end
  return finish(lock, broken)
end

-- Removes waiters that can never fit from the queue, and notifies them.
local function drop_too_big(lock)
  for _, id in ipairs(redis.call('ZRANGE', lock.queue, 0, -1)) do
    local w = read_waiter(lock, id)
    if w and w.units > lock.capacity then
      leave_queue(lock, id)
      notify(lock, w, '0', lock.now)
    end
  end
end

-- resize: changes the capacity of a semaphore for all clients. A smaller capacity revokes no hold.
-- Argument: 1 capacity. Answer: 1: done; 0: the name is not in use; -1: it is not a semaphore.
-- Cost: reads every waiter of the name.
local function resize(keys, args)
  local lock = open_lock(keys, redis.call('TIME'))
  local failure = read_lock(lock)
  if failure then return failure end
  read_counter(lock, redis.call('GET', lock.counter))
  reap(lock)
  admit(lock)
  local answer = lock.form == 'free' and 0 or -1
  if lock.form == 'many' and lock.class == 's' then
    answer, lock.capacity = 1, tonumber(args[1])
    redis.call('HSET', lock.key, '@c', lock.capacity)
    drop_too_big(lock)
  end
  return finish(lock, answer)
end
