
-- ---- release.lua - releases a hold or a place in the queue, and hands off to the next waiter
--
-- Arguments: 1 id,
--   2 channel to publish on if the lock is free afterwards; "-" or absent: none,
--   3 "verb tombstone history age round"; absent: "r 0 0 0 -".
--       verb       r: release the hold or the place in the queue; x: the same for a hold that was
--                  lost; l: leave the queue unless granted; u: release a handoff that the client
--                  does not know of, but not a detached hold (its handle may have become a text)
--       tombstone  milliseconds for which this id is refused from now on; 0: no tombstone, because
--                  the outcome of every earlier request is known
--       round      revokes a grant of this round, and spares a hold of a later round, because the
--                  revoke may arrive late; "-": release whatever the id holds
--
-- Answers:
--   1              the id held the lock, and released it
--   0              the id did not hold the lock, and is not in the queue any more
--   3, 2           as 1 and 0, but this call removed as many dead waiters as it may: more are still
--                  ahead, and the first living waiter may fit
--   {token, left}  to l: the id holds the lock, for `left` ms from now
--   {0 or 2, left, holder}  to l: another client holds the lock. left, holder: as in acquire
--
-- Cost: GET, GET, DEL for a plain lock without waiters; once after it had waiters also ZPOPMIN,
-- SET. GET, GET, ZPOPMIN, TIME, HGET, HDEL, SET, SET, RPUSH, PEXPIRE for a handoff of a plain lock.
-- Otherwise O(log n), where n is the number of waiters.

-- Returns the hold to release; nil: there is none, or it must be spared.
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
  round = tonumber(round) -- nil: the hold of any round
  read_counter(lock, seen.text or redis.call('GET', lock.counter))
  local failure = read_lock(lock, seen.value)
  if failure then return failure end
  reap(lock)
  local held = hold_to_release(lock, id, verb, round)
  if held and verb == 'l' then
    finish(lock)
    return { held.token, extend_hold(lock, held, 0) }
  end
  if not round and (not held or tombstone_ms > 0) then -- a holder has no place in the queue
    if not leave_queue(lock, id) and tombstone_ms > 0 then
      forget_waiter(lock, id, read_waiter(lock, id))
    end
  end
  if tombstone_ms > 0 then add_tombstone(lock, id, tombstone_ms) end
  -- If the server refused a command in the middle of a grant (a missing right), the grant has left
  -- at most the id in lock.ends.
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
