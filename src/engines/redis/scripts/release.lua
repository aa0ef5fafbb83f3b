
-- ---- release.lua - releases a hold or a place in the queue, and hands off to the next waiter
--
-- Keys: 1 and 2 alone are enough if nobody waits for a plain hold.
-- Arguments: 1 id, 2 a channel that is told when the lock is free, or - or absent,
--   3 "verb tombstone history age round"; absent: "r 0 0 0 -".
--     verb: r release the hold or the place in the queue; x the same for a hold that was lost; l
--     leave the queue unless granted; u release a handoff that the client does not know of, unless
--     it is detached (then its handle may have become a text).
--     tombstone: for how many ms this id is refused from now on; 0: the outcome is known.
--     round: whose grant is revoked, for a request that may be late; -: whatever this id holds.
--
-- Answers:
--   1              it was held, and is released
--   0              it was not held (any more), and is out of the queue
--   3, 2           as 1 and 0, and the first in line may fit: dead waiters were removed, and more
--                  are still ahead
--   {token, left}  l, and it is held: left ms from now
--   {0 or 2, left, holder}  l, and another holds it: as the answers of acquire
--   nil            two keys were not enough, and nothing was done
--
-- Cost: plain, nobody waits: GET, GET, DEL; once after somebody did: and ZPOPMIN, SET. Handed off
-- to a waiter for the same: GET, GET, ZPOPMIN, TIME, HGET, HDEL, SET, SET, RPUSH, PEXPIRE.
-- Otherwise O(log n).

-- The hold that a release is about; nil: there is none, or it must be spared.
local function hold_to_release(lock, id, verb, round)
  local held = read_hold(lock, id)
  if held and verb == 'u' and held.meta:match('^%d+ (%a)') == 'd' then held = nil end
  if held and round and round_of(held.meta) > round then held = nil end
  return held
end

local function release_in_full(keys, args, seen)
  local verb, tombstone, keep, age, round =
    (args[3] or 'r 0 0 0 -'):match('^(%a) (%d+) (%d+) (%d+) (%S+)$')
  local id, lock = args[1], open_lock(keys, seen.clock or redis.call('TIME'))
  local tombstone_ms = tonumber(tombstone)
  set_history(lock, keep, age)
  round = tonumber(round) -- nil: any
  read_counter(lock, seen.text or redis.call('GET', lock.counter))
  local failure = read_lock(lock, seen.value)
  if failure then return failure end
  reap(lock)
  local held = hold_to_release(lock, id, verb, round)
  if held and verb == 'l' then
    finish(lock)
    return { held.token, extend_hold(lock, held, 0) }
  end
  if not round and (not held or tombstone_ms > 0) then -- a holder does not wait
    if not leave_queue(lock, id) and tombstone_ms > 0 then
      forget_waiter(lock, id, read_waiter(lock, id))
    end
  end
  if tombstone_ms > 0 then add_tombstone(lock, id, tombstone_ms) end
  -- All that is left of a grant that failed half-way.
  if tombstone_ms > 0 and not held then redis.call('ZREM', lock.ends, id) end
  if held then drop_hold(lock, held, verb == 'x' and 'l' or 'r') end
  admit(lock, nil, seen.first)
  keep_counter(lock)
  local has_channel = args[2] and args[2] ~= '-'
  if lock.form == 'free' and has_channel then redis.pcall('PUBLISH', args[2], id) end
  local answer = (held and 1 or 0) + (lock.is_unfinished and 2 or 0)
  if verb ~= 'l' or lock.form == 'free' then return answer end
  return { answer, time_left(lock), hold_in_the_way(lock) }
end

local function release(keys, args)
  local answer, seen = release_straight(keys, args)
  if answer ~= nil then return answer end
  return release_in_full(keys, args, seen)
end
