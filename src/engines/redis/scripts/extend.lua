#!lua flags=allow-oom
-- extend.lua - renew, claim after a hand-over, and check. Never shortens, never revives.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 ttl; 0: only look
--       3 "history age strong token"; absent: "0 0 0 0". strong: 1 writes in any case, for WAIT to have something to vouch
--         for. token: the one that a quorum agreed on for this id, 0: none
-- answers
--       {token, left}   still held; left: ms from now
--       {0}             not held
-- cost  plain: GET, PTTL, PEXPIRE. Otherwise O(log n).
local call = redis.call
local id, ttl, value = ARGV[1], tonumber(ARGV[2]), nil
if not ARGV[3] then
  value = redis.pcall('GET', KEYS[1])
  if not value then return { 0 } end
  if type(value) == 'string' then
    if value:sub(1, 22) ~= id then return { 0 } end
    local token, given = value:match('^%S+ (%d+) (%d+) ')
    given = tonumber(given)
    local left = call('PTTL', KEYS[1])
    if ttl <= given then
      if left < ttl then
        call('PEXPIRE', KEYS[1], ARGV[2])
        left = ttl
      end
      return { token, math.min(left, given) }
    end
  end
end
local keep, AGE, strong, agreed = (ARGV[3] or '0 0 0 0'):match('^(%d+) (%d+) (%d) (%d+)$')
local clock = call('TIME')
-- common.lua
return (function()
-- common.lua
history = keep ~= '0' and tonumber(keep)
local trouble = look(value)
if trouble then return trouble end
read_counter(call('GET', counter))
reap()
local held, answer = read_hold(id), { 0 }
if held then
  raise(held, agreed)
  answer = { held.token, extend_hold(held, ttl) }
end
if form == 'many' or form == 'free' or (held and (strong == '1' or agreed ~= '0')) then
  admit()
  keep_counter()
end
return answer
end)()
