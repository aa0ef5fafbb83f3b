
-- ---- counter.lua - the state of a call; the counter, and tombstones

-- The state of one call. form: free; plain, a string of ours; many, a hash; foreign, a string of
-- another program. is_over: a plain hold was released and its string still stands; the next holder
-- overwrites it. kept: what keep_counter() has stored. is_unfinished: the call stopped at one of
-- its bounds, and the first in line may fit. is_listed: the name is in the index for certain.
local function open_lock(keys, clock)
  return { key = keys[1], counter = keys[2], queue = key_of(keys, 3, 'q'),
    waiters = key_of(keys, 4, 'w'), ends = key_of(keys, 5, 'h'), past = key_of(keys, 6, 'p'),
    now = clock_number(clock), stamp = clock_text(clock), number = 0,
    tombstones_until = 0, form = 'free', class = '', capacity = 0, declared = 0, used = 0,
    plain = nil, is_over = false, is_listed = false, history = false, age = '0', kept = nil,
    is_unfinished = false, has_more_over = false }
end

-- keep: number of past holds to keep, as text; age: how long they are kept, in ms.
local function set_history(lock, keep, age)
  lock.history = keep ~= '0' and tonumber(keep)
  lock.age = age
end

local function read_counter(lock, text)
  if not text then return end
  lock.is_listed = lock.is_listed or text:byte(1) ~= 126 -- 126 is the code of ~
  local number, till = text:match('^~?(%d+) ?(%d*)')
  lock.number, lock.tombstones_until = tonumber(number) or 0, tonumber(till) or 0
end

local function next_number(lock)
  lock.number = next_after(lock.number, lock.now)
  return whole(lock.number)
end

-- Stores the counter. somebody_waits: true, false, or nil if the caller does not know.
local function keep_counter(lock, somebody_waits)
  local look_closer = lock.tombstones_until > lock.now or somebody_waits or not lock.is_listed
  if not look_closer and somebody_waits == nil then
    look_closer = redis.call('EXISTS', lock.queue) == 1
  end
  local text = whole(lock.number)
  if look_closer then text = '~' .. text .. ' ' .. whole(lock.tombstones_until) end
  if text ~= lock.kept then
    redis.call('SET', lock.counter, text, 'PX', counter_life(lock.number, lock.now))
  end
  lock.kept = text
end

local function has_tombstone(lock, id)
  if lock.tombstones_until <= lock.now then return false end
  local till = redis.call('HGET', lock.waiters, '!' .. id)
  return till and tonumber(till) > lock.now
end

local function add_tombstone(lock, id, for_ms)
  lock.tombstones_until = math.max(lock.tombstones_until, lock.now + for_ms * 1000)
  keep_counter(lock, true)
  -- Each new tombstone removes up to two old ones. Apart from this, only new waiters remove old
  -- tombstones.
  local sample = redis.call('HRANDFIELD', lock.waiters, 2, 'WITHVALUES')
  for i = 1, #sample, 2 do
    local is_tombstone = sample[i]:byte(1) == 33 -- 33 is the code of !
    if is_tombstone and tonumber(sample[i + 1]) <= lock.now then
      redis.call('HDEL', lock.waiters, sample[i])
    end
  end
  redis.call('HSET', lock.waiters, '!' .. id, whole(lock.tombstones_until))
  redis.call('PEXPIRE', lock.waiters, HOUR_MS)
end
