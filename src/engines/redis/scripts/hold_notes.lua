
-- ---- hold_notes.lua - notes about holds, only with history=N

local function note_begin(lock, w, token, till)
  local past, keep, age = lock.past, lock.history, lock.age
  redis.call('ZREMRANGEBYSCORE', past, '+inf', '+inf')
  redis.call('ZREMRANGEBYSCORE', past, '-inf', whole(lock.now - age * 1000))
  redis.call('ZADD', past, '+inf', keep .. ' ' .. age, token, token .. ' ' .. whole(lock.now) ..
    ' ' .. whole(till) .. ' 0 - ' .. w.units .. ' ' .. w.kind .. ' ' .. w.ttl .. ' ' .. w.meta)
  redis.call('ZREMRANGEBYRANK', past, 0, -(keep + 66))
  redis.call('PEXPIRE', past, age)
end

-- why: 'r' the hold was released at `till`; 'l' it ended at `till` by time or by force; nil: it
-- goes on until `till`.
local function note_end(lock, token, till, why)
  local text = redis.call('ZRANGEBYSCORE', lock.past, token, token)[1]
  if not text then return end
  local head, rest = text:match('^(%d+ %d+) %d+ %d+ %S (.*)$')
  if not head then return end
  local ended = why and whole(till) .. ' ' .. why or '0 -'
  redis.call('ZREM', lock.past, text)
  redis.call('ZADD', lock.past, token, head .. ' ' .. whole(till) .. ' ' .. ended .. ' ' .. rest)
end

-- Notes that the hold goes on with another token.
local function note_new_token(lock, token, new)
  local text = redis.call('ZRANGEBYSCORE', lock.past, token, token)[1]
  if not text then return end
  redis.call('ZREM', lock.past, text)
  redis.call('ZADD', lock.past, new, new .. text:sub(#token + 1))
end
