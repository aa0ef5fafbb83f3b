
-- ---- holds.lua - who holds

local function class_of(kind) return (kind == 'r' or kind == 'w') and 'x' or kind end

local function is_plain(w) return w.kind == 'e' and w.owner == '-' end

local function ms_until(lock, till) return math.ceil((till - lock.now) / 1000) end

local function set_plain(lock, value)
  local id, token, ttl, meta = value:match('^(%S+) (%d+) (%d+) (.*)$')
  lock.class, lock.capacity, lock.declared, lock.used = 'e', 1, 1, 1
  lock.form = id and #id == 22 and 'plain' or 'foreign'
  if lock.form == 'plain' then
    lock.is_listed = true
    lock.plain = { id = id, token = token, ttl = tonumber(ttl), meta = meta }
  end
end

local function is_wrong_type(reply) return reply.err:sub(1, 9) == 'WRONGTYPE' end

-- Reads the lock. value: the reply to GET of its key; state: the reply to HMGET; nil: not read yet.
-- Returns an error if the key is no lock.
local function read_lock(lock, value, state)
  if not state then
    if value == nil then value = redis.pcall('GET', lock.key) end
    if not value then return end
    if type(value) == 'string' then return set_plain(lock, value) end
    if not is_wrong_type(value) then error(value) end
    state = redis.pcall('HMGET', lock.key, '@k', '@c', '@d', '@u')
    if state.err and not is_wrong_type(state) then error(state) end
    if state.err or not state[1] then
      return redis.error_reply('WRONGTYPE the key of this lock holds something else')
    end
  end
  lock.form, lock.class, lock.is_listed = 'many', state[1], true
  lock.capacity, lock.declared = tonumber(state[2]), tonumber(state[3])
  lock.used = tonumber(state[4])
end

local function read_hold(lock, id)
  if lock.form == 'plain' and lock.plain.id == id then return lock.plain end
  local text = lock.form == 'many' and redis.call('HGET', lock.key, id)
  if not text then return nil end
  local units, token, ttl, kind, owner, meta =
    text:match('^(%d+) (%d+) (%d+) (%a) (%S+) (.*)$')
  return { id = id, units = tonumber(units), token = token, ttl = tonumber(ttl), kind = kind,
    owner = owner, meta = meta }
end

local function hold_text(units, token, ttl, kind, owner, meta)
  return units .. ' ' .. token .. ' ' .. ttl .. ' ' .. kind .. ' ' .. owner .. ' ' .. meta
end

local function text_of(h)
  return hold_text(h.units, h.token, h.ttl, h.kind, h.owner, h.meta)
end

-- Adds an id to its owner's list: in the lock's hash for holders, in `waiters` for waiters.
local function add_to(key, owner, id)
  local ids = redis.call('HGET', key, '+' .. owner)
  redis.call('HSET', key, '+' .. owner, ids and ids .. ' ' .. id or id)
end

-- Returns the owner's other ids, separated by blanks; '': there are none.
local function others_of(key, owner, id)
  local ids = redis.call('HGET', key, '+' .. owner) or ''
  local at = ids:find(id, 1, true)
  if not at then return ids end
  -- cut together with a blank
  return at > 1 and ids:sub(1, at - 2) .. ids:sub(at + #id) or ids:sub(#id + 2)
end

local function take_from(key, owner, id)
  local ids = others_of(key, owner, id)
  if ids == '' then
    redis.call('HDEL', key, '+' .. owner)
  else
    redis.call('HSET', key, '+' .. owner, ids)
  end
end

-- Gives the keys a time to live that is longer than any hold, so that they outlive the holders.
local function keep_holds(lock)
  redis.call('PEXPIRE', lock.key, DAY_MS)
  redis.call('PEXPIRE', lock.ends, DAY_MS)
end

local function hold_plain(lock, w, till, token)
  local ms = ms_until(lock, till)
  local ttl = math.max(w.ttl, ms)
  write_plain(lock.key, w.id, token, ttl, w.meta, ms)
  lock.form, lock.class, lock.capacity, lock.used = 'plain', 'e', 1, 1
  lock.is_over = false
  lock.plain = { id = w.id, token = token, ttl = ttl, meta = w.meta }
end

-- Prepares a free lock for its first hold of a kind that is kept in a hash.
local function begin_many(lock, w)
  if lock.is_over then redis.call('DEL', lock.key) end
  lock.form, lock.class, lock.is_over = 'many', class_of(w.kind), false
  lock.capacity, lock.declared, lock.used = w.capacity, w.capacity, 0
end

-- Makes w a holder until `till`. beside: the kind of another hold of its owner that has the units.
local function hold(lock, w, till, token, beside)
  if lock.history then note_begin(lock, w, token, till) end
  if is_plain(w) then return hold_plain(lock, w, till, token) end
  local is_first = lock.form == 'free'
  if is_first then begin_many(lock, w) end
  local units, ttl = beside and 0 or w.units, math.max(w.ttl, ms_until(lock, till))
  lock.used = lock.used + units
  local fields = { '@u', lock.used, w.id,
    hold_text(units, token, ttl, beside or w.kind, w.owner, w.meta) }
  if w.owner ~= '-' then
    local ids = not is_first and redis.call('HGET', lock.key, '+' .. w.owner)
    fields[5], fields[6] = '+' .. w.owner, ids and ids ~= '' and ids .. ' ' .. w.id or w.id
  end
  if is_first then
    local shape = { '@k', lock.class, '@c', lock.capacity, '@d', lock.declared }
    for _, field in ipairs(shape) do fields[#fields + 1] = field end
  end
  redis.call('ZADD', lock.ends, whole(till), w.id)
  redis.call('HSET', lock.key, unpack(fields))
  keep_holds(lock)
end

local function set_free(lock)
  redis.call('DEL', lock.key, lock.ends)
  lock.form, lock.class, lock.used, lock.plain = 'free', '', 0, nil
end

-- Removes one of several holds. Its units pass to another hold of its owner, if there is one.
local function drop_one(lock, h)
  local others = h.owner ~= '-' and others_of(lock.key, h.owner, h.id) or ''
  local successor = h.units > 0 and others ~= '' and read_hold(lock, others:match('%S+'))
  local fields, units = {}, h.units
  h.units = 0
  if successor then
    successor.units = units
    fields = { h.id, text_of(h), successor.id, text_of(successor) }
  elseif units > 0 then
    lock.used = lock.used - units
    fields = { h.id, text_of(h), '@u', lock.used }
  end
  if h.owner ~= '-' then fields[#fields + 1], fields[#fields + 2] = '+' .. h.owner, others end
  if fields[1] then redis.call('HSET', lock.key, unpack(fields)) end
  if others == '' and h.owner ~= '-' then
    redis.call('HDEL', lock.key, h.id, '+' .. h.owner)
  else
    redis.call('HDEL', lock.key, h.id)
  end
  redis.call('ZREM', lock.ends, h.id)
end

-- Ends a hold. why: as in note_end(); ended: time when the hold ended; nil: now.
local function drop_hold(lock, h, why, ended)
  if lock.history then note_end(lock, h.token, ended or lock.now, why) end
  if lock.form == 'plain' then
    lock.form, lock.class, lock.used, lock.plain, lock.is_over = 'free', '', 0, nil, true
    return
  end
  local two = redis.call('ZRANGE', lock.ends, 0, 1)
  local is_last = not two[2] and (not two[1] or two[1] == h.id)
  if is_last then set_free(lock) else drop_one(lock, h) end
end

-- Returns the time in ms until the first hold ends; -1: it has no end. A plain hold that has more
-- time left than it was ever given is shortened.
local function time_left(lock)
  if lock.form == 'many' then
    local first = redis.call('ZRANGE', lock.ends, '0', '0', 'WITHSCORES')
    return ms_until(lock, tonumber(first[2]))
  end
  if lock.form == 'plain' then return plain_left(lock.key, lock.plain.ttl) end
  return redis.call('PTTL', lock.key)
end

-- Returns the hold that ends first, as "token meta"; false: there is none, or another program holds
-- the lock.
local function hold_in_the_way(lock)
  local first = lock.plain or
    lock.form == 'many' and read_hold(lock, redis.call('ZRANGE', lock.ends, 0, 0)[1])
  return first and first.token .. ' ' .. first.meta
end

-- Shortens every hold to its ttl from now, after the clock stepped back. All holds at once: one
-- that was left out would keep its units for another ttl.
local function clamp_ends(lock)
  local all = redis.call('ZRANGE', lock.ends, 0, -1, 'WITHSCORES')
  for from = 1, #all, 2 * SLICE do
    local ids, changes = {}, {}
    for i = from, math.min(from + 2 * SLICE, #all) - 1, 2 do ids[#ids + 1] = all[i] end
    local texts = redis.call('HMGET', lock.key, unpack(ids))
    for i, id in ipairs(ids) do
      local ttl = texts[i] and tonumber(texts[i]:match('^%d+ %d+ (%d+)'))
      local latest = ttl and lock.now + ttl * 1000
      if latest and tonumber(all[from + 2 * i - 1]) > latest then
        changes[#changes + 1], changes[#changes + 2] = whole(latest), id
      end
    end
    if changes[1] then redis.call('ZADD', lock.ends, unpack(changes)) end
  end
end

-- Removes holds of a hash that have ended, at most DEAD_MOST of them.
local function drop_ended(lock)
  for _ = 1, DEAD_MOST / SLICE do
    local over = redis.call('ZRANGEBYSCORE', lock.ends, '-inf', whole(lock.now), 'WITHSCORES',
      'LIMIT', 0, SLICE)
    for i = 1, #over, 2 do
      local h = read_hold(lock, over[i])
      if h then
        drop_hold(lock, h, 'l', tonumber(over[i + 1]))
      else
        redis.call('ZREM', lock.ends, over[i])
      end
    end
    if #over < 2 * SLICE or lock.form ~= 'many' then return end
  end
  lock.has_more_over = true
end

-- For holds in a hash: removes those that have ended, and shortens those that a step back of the
-- clock has lengthened. Strings need neither: the server removes them at their end.
local function reap(lock)
  if lock.form ~= 'many' then return end
  local first = redis.call('ZRANGE', lock.ends, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= lock.now then
    drop_ended(lock)
    if lock.form ~= 'many' then return end
    first = redis.call('ZRANGE', lock.ends, 0, 0, 'WITHSCORES')
  end
  if not first[1] then return set_free(lock) end
  local h = read_hold(lock, first[1])
  if h and tonumber(first[2]) > lock.now + h.ttl * 1000 then clamp_ends(lock) end
end

local function rewrite(lock, h)
  if lock.form ~= 'plain' then return redis.call('HSET', lock.key, h.id, text_of(h)) end
  redis.call('SET', lock.key, plain_text(h.id, h.token, h.ttl, h.meta), 'KEEPTTL')
end

-- Gives the hold the token that a quorum agreed on (redlock); the next grant gets a higher one.
local function raise_token(lock, h, agreed)
  lock.number = math.max(lock.number, tonumber(agreed))
  if agreed == '0' or h.token == agreed then return end
  keep_counter(lock)
  if lock.history then note_new_token(lock, h.token, agreed) end
  h.token = agreed
  rewrite(lock, h)
end

local function round_of(meta) return tonumber(meta:match('^%d+ %a(%d+)')) or 0 end

-- Gives the hold the round of this request. The client sends the request after it may have revoked
-- the grant, and the late revoke then spares the hold.
local function renew_round(lock, h, meta)
  if round_of(meta) <= round_of(h.meta) then return end
  h.meta = h.meta:match('^%d+') .. meta:sub(2)
  rewrite(lock, h)
end

local function extend_plain(lock, h, ttl, is_longer)
  local left = redis.call('PTTL', lock.key)
  if is_longer then
    redis.call('SET', lock.key, plain_text(h.id, h.token, ttl, h.meta), 'PX', ttl)
  elseif left < ttl then
    redis.call('PEXPIRE', lock.key, ttl)
  end
  return math.min(math.max(left, ttl), h.ttl)
end

-- Extends the hold to at least `ttl` from now; never shortens it. Returns for how many ms the hold
-- then lasts. A step back of the clock can lengthen a hold; time_left() and clamp_ends() shorten it
-- again.
local function extend_hold(lock, h, ttl)
  if lock.history and ttl > 0 then note_end(lock, h.token, lock.now + ttl * 1000) end
  local is_longer = ttl > h.ttl
  if is_longer then h.ttl = ttl end
  if lock.form == 'plain' then return extend_plain(lock, h, ttl, is_longer) end
  if is_longer then rewrite(lock, h) end
  local till = math.max(tonumber(redis.call('ZSCORE', lock.ends, h.id)) or 0, lock.now + ttl * 1000)
  redis.call('ZADD', lock.ends, whole(till), h.id)
  if ttl > 0 then keep_holds(lock) end
  return math.min(math.floor((till - lock.now) / 1000), h.ttl)
end

-- Returns a hold of that owner; nil: there is none.
local function hold_of(lock, owner)
  local ids = owner ~= '-' and lock.form == 'many' and redis.call('HGET', lock.key, '+' .. owner)
  return ids and ids ~= '' and read_hold(lock, ids:match('%S+'))
end
