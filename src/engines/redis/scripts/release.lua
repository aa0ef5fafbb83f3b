#!lua flags=allow-oom
-- release.lua - gives a hold or a place in the queue back and hands over to the next; also the end of a wait.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 verb: r give it back whatever it is, x the same of what was lost, l leave the queue unless granted, u a
--       hand-over that nobody here knows of, unless it is detached: then its handle may have become a text
--       3 tombstone: for how many ms this id is refused from now on; 0: no doubt, none  4 history  5 age
--       6 a channel that is told when the lock is free, or -
--       7 the round whose grant is taken back, for a request that may be late; absent: whatever this id holds
-- answers
--       1               it was held, and is released
--       0               it was not held (any more); out of the queue
--       {token, left}   l, and it is held: left ms from now
-- cost  plain, nobody waits: GET, GET, DEL. Otherwise O(log n).
local call = redis.call
local id, leaving, unknown, doubt = ARGV[1], ARGV[2] == 'l', ARGV[2] == 'u', tonumber(ARGV[3])
local round, value, text = tonumber(ARGV[7]), nil, nil
if doubt == 0 and ARGV[4] == '0' and not unknown and not round then
  value = redis.pcall('GET', KEYS[1])
  if not value or type(value) == 'string' then
    local mine = value and value:sub(1, 23) == id .. ' '
    if mine and leaving then
      local token, given = value:match('^%S+ (%d+) (%d+) ')
      return { token, math.min(call('PTTL', KEYS[1]), tonumber(given)) }
    end
    text = call('GET', KEYS[2])
    if not text or text:byte(1) ~= 126 then -- 126 is ~
      if mine then
        call('DEL', KEYS[1])
        if ARGV[6] ~= '-' then call('PUBLISH', ARGV[6], id) end
      end
      return mine and 1 or 0
    end
  end
end
local clock, AGE = call('TIME'), ARGV[5]
-- common.lua
history = ARGV[4] ~= '0' and tonumber(ARGV[4])
local trouble = look(value)
if trouble then return trouble end
read_counter(text or call('GET', counter))
reap()
local held = read_hold(id)
if held and unknown and held.meta:match('^%d+ (%a)') == 'd' then held = nil end
if held and round and round_of(held.meta) > round then held = nil end
if held and leaving then
  admit()
  keep_counter()
  return { held.token, extend_hold(held, 0) }
end
if not round and (not held or doubt > 0) then leave_queue(id) end -- who holds does not wait
if doubt > 0 then bury(id, doubt) end
if held then drop_hold(held, ARGV[2] == 'x' and 'l' or 'r') end
admit()
keep_counter()
if form == 'free' and ARGV[6] ~= '-' then call('PUBLISH', ARGV[6], id) end
return held and 1 or 0
