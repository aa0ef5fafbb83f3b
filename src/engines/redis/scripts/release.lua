#!lua flags=allow-oom
-- release.lua - gives a hold or a place in the queue back and hands over to the next; also the end of a wait.
--
-- KEYS  as in common.lua; or 1 and 2 alone, which is enough where nobody waits for a plain hold
-- ARGV  1 id  2 a channel that is told when the lock is free, or - or absent
--       3 "verb tombstone history age round"; absent: "r 0 0 0 -"
--         verb: r give it back whatever it is, x the same of what was lost, l leave the queue unless granted, u a hand-over
--         that nobody here knows of, unless it is detached: then its handle may have become a text
--         tombstone: for how many ms this id is refused from now on; 0: no doubt, none
--         round: whose grant is taken back, for a request that may be late; -: whatever this id holds
-- answers
--       1               it was held, and is released
--       0               it was not held (any more); out of the queue
--       {token, left}   l, and it is held: left ms from now
--       nil             two keys were not enough, and nothing was done
-- cost  plain, nobody waits: GET, GET, DEL; once after somebody did: and ZPOPMIN, SET. Passed on to one that waits for the same:
--       GET, GET, ZPOPMIN, TIME, HGET, HDEL, SET, RPUSH, PEXPIRE, SET. Otherwise O(log n).
local call, id = redis.call, ARGV[1]
local value, text, mine, first -- first in line, who was taken out of the queue already
if not ARGV[3] then
  value = redis.pcall('GET', KEYS[1])
  if not value or type(value) == 'string' then
    mine = value and value:sub(1, 22) == id
    text = call('GET', KEYS[2])
    local is_quiet = not text or text:byte(1) ~= 126 -- 126 is ~
    if not is_quiet and mine and KEYS[3] then
      first = call('ZPOPMIN', KEYS[3])
      local number = not first[1] and text:match('^~(%d+) 0$')
      if number then call('SET', KEYS[2], number, 'PX', '3600000') end -- nobody waits any more, and no tombstone stands
      is_quiet = number
    end
    if is_quiet then
      if mine then
        call('DEL', KEYS[1])
        if ARGV[2] and ARGV[2] ~= '-' then call('PUBLISH', ARGV[2], id) end
      end
      return mine and 1 or 0
    end
  end
end
if not KEYS[3] then return nil end
local verb, tombstone, keep, AGE, round = (ARGV[3] or 'r 0 0 0 -'):match('^(%a) (%d+) (%d+) (%d+) (%S+)$')
local clock = call('TIME')
-- common.lua
read_counter(text or call('GET', counter))
local w = first and first[1] and read_waiter(first[1])
if w and is_plain(w) and w.due > now and not w.ahead then
  call('HDEL', waiters, w.id)
  hand_over(hold_plain, w, next_number(), first[2])
  keep_counter(true) -- or nobody, which the next one to give it back will see
  return 1
end
return (function()
-- common.lua
local trouble = look(value)
if trouble then return trouble end
local leaving, doubt = verb == 'l', tonumber(tombstone)
round = tonumber(round) -- nil: any
history = keep ~= '0' and tonumber(keep)
reap()
local held = read_hold(id)
if held and verb == 'u' and held.meta:match('^%d+ (%a)') == 'd' then held = nil end
if held and round and round_of(held.meta) > round then held = nil end
if held and leaving then
  admit()
  keep_counter()
  return { held.token, extend_hold(held, 0) }
end
if not round and (not held or doubt > 0) then leave_queue(id) end -- who holds does not wait
if doubt > 0 then bury(id, doubt) end
if held then drop_hold(held, verb == 'x' and 'l' or 'r') end
admit(nil, first)
keep_counter()
if form == 'free' and ARGV[2] and ARGV[2] ~= '-' then call('PUBLISH', ARGV[2], id) end
return held and 1 or 0
end)()
