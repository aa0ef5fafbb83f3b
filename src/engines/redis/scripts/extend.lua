
-- ---- extend.lua - renews, claims after a handoff, and checks. Never shortens, never revives
--
-- Arguments: 1 id,
--   2 ttl; 0: only check,
--   3 "history age strong token"; absent: "0 0 0 0".
--       strong  1: write in any case, because a WAIT follows and needs a write to vouch for; 2:
--               give the hold a new token above `token`
--       token   token that a quorum agreed on for this id; 0: none
-- Answers: {token, left}: held for `left` ms from now; {0}: not held; nil: one key was not enough,
--   and nothing was done.
-- Cost: GET, PTTL, PEXPIRE for a plain hold. Otherwise O(log n), where n is the number of waiters.

local function extend_in_full(keys, args, seen)
  local keep, age, strong, agreed =
    (args[3] or '0 0 0 0'):match('^(%d+) (%d+) (%d) (%d+)$')
  local lock = open_lock(keys, redis.call('TIME'))
  set_history(lock, keep, age)
  local failure = read_lock(lock, seen.value)
  if failure then return failure end
  read_counter(lock, redis.call('GET', lock.counter))
  reap(lock)
  local held, answer = read_hold(lock, args[1]), { 0 }
  if held then
    if strong == '2' then
      lock.number = math.max(lock.number, tonumber(agreed))
      agreed = next_number(lock)
    end
    raise_token(lock, held, agreed)
    answer = { held.token, extend_hold(lock, held, tonumber(args[2])) }
  end
  local must_write = held and (strong == '1' or agreed ~= '0')
  if lock.form == 'many' or lock.form == 'free' or must_write then finish(lock) end
  return answer
end

local function extend(keys, args)
  local answer, seen = extend_straight(keys, args)
  if answer ~= nil then return answer end
  return extend_in_full(keys, args, seen)
end
