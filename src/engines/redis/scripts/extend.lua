#!lua flags=allow-oom
-- extend.lua - renew, claim after a hand-over, and check. Never shortens, never revives.
--
-- KEYS  as in common.lua
-- ARGV  1 id  2 ttl; 0: only look  3 history  4 age  5 strong: 1 writes in any case, for WAIT to
--       have something to vouch for  6 the token that a quorum agreed on for this id, 0: none
-- answers
--       {token, left}   still held; left: ms from now
--       {0}             not held
-- cost  plain: TIME, GET, PTTL, PEXPIRE. Otherwise O(log n).
local call = redis.call
local id, ttl, value = ARGV[1], tonumber(ARGV[2]), nil
if ARGV[3] == '0' and ARGV[5] ~= '1' and ARGV[6] == '0' then
  value = redis.pcall('GET', KEYS[1])
  if not value then return { 0 } end
  if type(value) == 'string' then
    if value:sub(1, 23) ~= id .. ' ' then return { 0 } end
    local token, given = value:match('^%S+ (%d+) (%d+) ')
    local left = call('PTTL', KEYS[1])
    if ttl <= tonumber(given) then
      if left < ttl then
        call('PEXPIRE', KEYS[1], ttl)
        left = ttl
      end
      return { token, math.min(left, tonumber(given)) }
    end
  end
end
local clock, AGE = call('TIME'), ARGV[4]
-- common.lua
history = ARGV[3] ~= '0' and tonumber(ARGV[3])
local trouble = look(value)
if trouble then return trouble end
read_counter(call('GET', counter))
reap()
local held, answer = read_hold(id), { 0 }
if held then
  raise(held, ARGV[6])
  answer = { held.token, extend_hold(held, ttl) }
end
if form == 'many' or form == 'free' or (held and (ARGV[5] == '1' or ARGV[6] ~= '0')) then
  admit()
  keep_counter()
end
return answer
