
-- ---- extend.lua - renews, claims after a handoff, and checks. Never shortens, never revives
--
-- Arguments: 1 id, 2 ttl; 0: only look,
--   3 "history age strong token"; absent: "0 0 0 0". strong 1: writes in any case, so that WAIT has
--     something to vouch for. strong 2: the hold gets a new token above `token`. token: the one
--     that a quorum agreed on for this id, 0: none.
-- Answers: {token, left}: still held, left in ms from now; {0}: not held; nil: one key was not
--   enough, and nothing was done.
-- Cost: plain: GET, PTTL, PEXPIRE. Otherwise O(log n).

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
