
-- ---- convert.lua - upgrade: the only reader becomes the writer, with a new token; downgrade: the
-- writer becomes a reader and keeps its token
--
-- Arguments: 1 id, 2 u: upgrade, d: downgrade, 3 history, 4 age,
--   5 client, 6 round. With u they name this upgrade, so that it can be revoked. With d they name
--     the upgrade to revoke; absent: an ordinary downgrade.
-- Answers:
--   {token, left}  done now, or done before
--   {1}            to u: there are other readers, and the read hold stays. To d: another request
--                  relies on the upgrade, and the write hold stays
--   {0}            not held

-- Returns all holds of the owner of this hold.
local function holds_of_owner(lock, h)
  local holds = { h }
  local ids = h.owner ~= '-' and redis.call('HGET', lock.key, '+' .. h.owner) or ''
  for other in ids:gmatch('%S+') do
    if other ~= h.id then holds[#holds + 1] = read_hold(lock, other) end
  end
  return holds
end

local function read_upgrade(lock)
  return (redis.call('HGET', lock.key, '@w') or ''):match('^(%S+ %S+) (%d+)$')
end

-- The upgrades of one owner are one hold. The first upgrade is noted with its round, so that it can
-- be revoked. Once another upgrade of the owner relies on it, it cannot be revoked any more.
local function note_upgrade(lock, me, round, is_first)
  local who, since = read_upgrade(lock)
  if me and (is_first or who == me) then
    redis.call('HSET', lock.key, '@w', me .. ' ' .. math.max(round, tonumber(since) or 0))
  else
    redis.call('HDEL', lock.key, '@w')
  end
end

local function may_revoke(lock, me, round)
  local who, since = read_upgrade(lock)
  return who == me and tonumber(since) <= round
end

-- Upgrades or downgrades the hold and all others of its owner.
local function convert_hold(lock, held, is_up, me, round)
  local holds, units = holds_of_owner(lock, held), 0
  for _, h in ipairs(holds) do units = math.max(units, h.units) end
  local wanted, token = is_up and lock.capacity or 1, held.token
  local grows = is_up and units < wanted
  if grows and lock.used > units then return { 1 } end
  if grows then
    token = next_number(lock)
    keep_counter(lock)
    if lock.history then note_new_token(lock, held.token, token) end
  end
  if is_up then
    note_upgrade(lock, me, round, grows)
  else
    redis.call('HDEL', lock.key, '@w')
  end
  lock.used = lock.used - units + wanted
  local fields = { '@u', lock.used }
  for _, h in ipairs(holds) do
    if h.units > 0 then h.units = wanted end
    h.token, h.kind = token, is_up and 'w' or 'r'
    fields[#fields + 1], fields[#fields + 2] = h.id, text_of(h)
  end
  local left = extend_hold(lock, held, 0)
  redis.call('HSET', lock.key, unpack(fields)) -- one command, so that it changes all holds or none
  return { token, left }
end

local function convert(keys, args)
  local id, is_up, lock = args[1], args[2] == 'u', open_lock(keys, redis.call('TIME'))
  set_history(lock, args[3], args[4])
  local failure = read_lock(lock)
  if failure then return failure end
  read_counter(lock, redis.call('GET', lock.counter))
  reap(lock)
  local me, round = args[5] and id .. ' ' .. args[5], tonumber(args[6])
  local held, answer = read_hold(lock, id), { 0 }
  if held and not is_up and me and not may_revoke(lock, me, round) then
    answer = { 1 }
  elseif held and lock.class == 'x' then
    answer = convert_hold(lock, held, is_up, me, round)
  end
  return finish(lock, answer)
end
