
-- ---- inspect.lua - shows the holders and waiters, or the past holds, of a name. Changes nothing
--
-- Arguments: 1 n: holders and waiters now; p: past holds, 2 index of the first waiter to show,
--   3 number of waiters to show.
-- Answer to n: {now, class, capacity, used, row ...}. Each row is a string:
--   h left count units token ttl kind meta  a holder. count: number of requests of its owner, which
--                                           share this row
--   f left                                  a lock of another program; left -1: it has no end
--   w arrival units ttl kind meta           a waiter, in the order of the queue
--   d                                       a dead waiter
-- Answer to p: {now, row ...}, newest first. Each row is a string:
--   token start until ended why units kind ttl meta
--                                           ended: time of the end; 0: it ended by time, unless
--                                           somebody holds with that token now. why: r, l or - as
--                                           in note_end()
-- left is in milliseconds. Cost: reads everything about that name.

local function is_held(lock, token)
  if lock.form == 'plain' then return lock.plain.token == token end
  if lock.form ~= 'many' then return false end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', lock.ends, whole(lock.now), '+inf')) do
    local h = read_hold(lock, id)
    if h and h.token == token then return true end
  end
  return false
end

local function past_rows(lock)
  local rows, keep, age = { whole(lock.now) }, 0, 0
  local notes = redis.call('ZRANGE', lock.past, 0, -1)
  if notes[1] then
    local k, a = notes[#notes]:match('^(%d+) (%d+)$')
    keep, age = tonumber(k) or 0, tonumber(a) or 0
  end
  for i = #notes - 1, 1, -1 do
    local token, till, ended = notes[i]:match('^(%d+) %d+ (%d+) (%d+) ')
    if #rows <= keep and (ended ~= '0' or not is_held(lock, token)) then
      local over = ended ~= '0' and tonumber(ended) or tonumber(till)
      if over > lock.now - age * 1000 then rows[#rows + 1] = notes[i] end
    end
  end
  return rows
end

-- Returns one entry for each owner, however many requests it has made; `count` is their number.
local function group_holders(lock)
  local live = redis.call('ZRANGEBYSCORE', lock.ends, whole(lock.now + 1), '+inf', 'WITHSCORES')
  local holders, owners = {}, {}
  for i = 1, #live, 2 do
    local h, till = read_hold(lock, live[i]), tonumber(live[i + 1])
    local first = h and h.owner ~= '-' and owners[h.owner]
    if first then
      first.count = first.count + 1
      first.till = math.max(first.till, till)
      first.h.units = math.max(first.h.units, h.units)
    elseif h then
      first = { h = h, count = 1, till = till }
      holders[#holders + 1] = first
      if h.owner ~= '-' then owners[h.owner] = first end
    end
  end
  return holders
end

local function add_holders(lock, rows)
  local units = 0
  for _, r in ipairs(group_holders(lock)) do
    units = units + r.h.units
    rows[#rows + 1] = 'h ' .. math.floor((r.till - lock.now) / 1000) .. ' ' .. r.count .. ' ' ..
      r.h.units .. ' ' .. r.h.token .. ' ' .. r.h.ttl .. ' ' .. r.h.kind .. ' ' .. r.h.meta
  end
  rows[4] = units
end

local function add_waiters(lock, rows, from, count)
  for _, id in ipairs(redis.call('ZRANGE', lock.queue, from, from + count - 1)) do
    local w = read_waiter(lock, id)
    if w and is_alive(w.due, w.asked, w.box, lock.now, lock.waiters) then
      rows[#rows + 1] = 'w ' .. redis.call('ZSCORE', lock.queue, id) .. ' ' .. w.units .. ' ' ..
        w.ttl .. ' ' .. w.kind .. ' ' .. w.meta
    else
      rows[#rows + 1] = 'd'
    end
  end
end

local function inspect(keys, args)
  local lock = open_lock(keys, redis.call('TIME'))
  local failure = read_lock(lock)
  if failure then return failure end
  if lock.plain then
    read_counter(lock, redis.call('GET', lock.counter))
    -- This is a late bare SET of an id that was given up; grant_or_refuse() removes it.
    if has_tombstone(lock, lock.plain.id) then
      lock.form, lock.class, lock.capacity, lock.used, lock.plain = 'free', '', 0, 0, nil
    end
  end
  if args[1] == 'p' then return past_rows(lock) end
  local rows, plain = { whole(lock.now), lock.class, lock.capacity, lock.used }, lock.plain
  if lock.form == 'plain' then
    rows[5] = 'h ' .. redis.call('PTTL', lock.key) .. ' 1 1 ' .. plain.token .. ' ' .. plain.ttl ..
      ' e ' .. plain.meta
  elseif lock.form == 'foreign' then
    rows[5] = 'f ' .. whole(redis.call('PTTL', lock.key)) -- the operator .. alone would print 1e+15
  elseif lock.form == 'many' then
    add_holders(lock, rows)
  end
  add_waiters(lock, rows, args[2], args[3])
  return rows
end
