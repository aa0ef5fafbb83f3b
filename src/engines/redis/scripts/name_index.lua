
-- ---- name_index.lua - which names may be in use: a list reads them instead of all keys
--
-- {PREFIX}:names        sorted set: name -> 0, so in the order of their bytes
-- {PREFIX}:names:whole  string, ends after an hour: before it was written, all keys were scanned,
--                       and every name with a lock or a counter was added. Without it a client
--                       scans them again.
--
-- A name is added when a call writes its counter and none was there. That is once an hour at most,
-- so the usual acquire and release cost nothing more. A list removes the name when nothing of its
-- lock is left. Hence:
--
--   * A name is in the set if its counter has no ~, or if one of our clients holds it or waits.
--   * The counter of a name that may not be in the set is absent or has a ~ (keep_counter), and
--     the next acquire adds the name.
--
-- Nothing fails if the index is missing. If it is full, it is not whole: lists scan until one of
-- them has removed unused names. A list may miss a name that a client of 0.1 holds, or whose key an
-- operator deleted; after an hour at the latest it finds the name.

local NAMES_MOST = 100000

local function index_key(prefix) return '{' .. prefix .. '}:names' end

-- Another key of the lock, by its letter (keys.c).
local function companion(key, letter)
  if key:find('}', 1, true) then return '~' .. letter .. ':' .. key end
  return '{' .. key .. '}:' .. letter
end

-- terms: the last argument of acquire, which ends with the length of the prefix in three digits;
-- ---: there is no index.
local function add_to_index(key, terms)
  local length = tonumber(terms:sub(-3))
  if not length then return end
  local index = index_key(key:sub(1, length))
  local count = redis.pcall('ZCARD', index)
  if type(count) ~= 'number' then return end -- the server refused it
  if count >= NAMES_MOST then return redis.pcall('DEL', index .. ':whole') end
  redis.pcall('ZADD', index, '0', key:sub(length + 1))
  if count == 0 then redis.pcall('PEXPIRE', index, DAY_MS) end
end
