#!lua
-- resize.lua - changes the capacity of a semaphore for all. Shrinking revokes nobody; waiters that can never fit are told.
--
-- KEYS  as in common.lua
-- ARGV  1 capacity
-- answers  1 done; 0 it is not in use; -1 it is not a semaphore
-- cost  reads every waiter of the name
local call = redis.call
local clock, AGE = call('TIME'), '0'
-- common.lua
return (function()
-- common.lua
local trouble = look()
if trouble then return trouble end
read_counter(call('GET', counter))
reap()
admit()
local answer = form == 'free' and 0 or class == 's' and form == 'many' and 1 or -1
if answer == 1 then
  capacity = tonumber(ARGV[1])
  call('HSET', lock, '@c', capacity)
  for _, id in ipairs(call('ZRANGE', queue, 0, -1)) do
    local w = read_waiter(id)
    if w and w.units > capacity then
      leave_queue(id)
      tell(w, '0', now)
    end
  end
end
admit()
keep_counter()
return answer
end)()
