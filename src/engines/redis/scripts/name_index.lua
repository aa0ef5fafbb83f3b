
-- ---- name_index.lua - the index: the names that may be in use. A list reads it instead of all
-- keys
--
-- {PREFIX}:names        sorted set: name -> 0, so the names are in byte order
-- {PREFIX}:names:whole  string, the mark that the index is whole. Before a client writes the mark,
--                       it scans all keys and adds every name with a lock or a counter. The mark
--                       expires after an hour; if it is absent, a list scans all keys again.
--
-- A call adds the name when it writes the counter and there was none before. A name has a counter
-- for at least an hour, so the usual acquire and release do nothing about the index. A list removes
-- a name when nothing of its lock is left. So these statements hold:
--
--   * A name is in the index if its counter has no ~, or if a client of ours holds it or waits.
--   * If a name may be missing in the index, its counter is absent or has a ~ (keep_counter), and
--     the next acquire adds the name.
--
-- Nothing fails if the index is missing. If it is full, it is not whole: every list scans until one
-- of them has removed unused names. A list can miss a name that a client of version 0.1 holds, or
-- whose key an operator has deleted, for an hour at most.

local NAMES_MOST = 100000

local function index_key(prefix) return '{' .. prefix .. '}:names' end

-- Returns another key of the lock, by its letter (keys.c).
local function companion(key, letter)
  if key:find('}', 1, true) then return '~' .. letter .. ':' .. key end
  return '{' .. key .. '}:' .. letter
end

-- Returns a key of the lock that the call may leave out.
local function key_of(keys, number, letter) return keys[number] or companion(keys[1], letter) end

-- Adds a name to the index. terms: the last argument of acquire. Its last three digits are the
-- length of the prefix; --- means that there is no index.
local function add_to_index(key, terms)
  local length = tonumber(terms:sub(-3))
  if not length then return end
  local index = index_key(key:sub(1, length))
  local count = redis.pcall('ZCARD', index)
  if type(count) ~= 'number' then return end -- the server refused the command
  if count >= NAMES_MOST then return redis.pcall('DEL', index .. ':whole') end
  redis.pcall('ZADD', index, '0', key:sub(length + 1))
  if count == 0 then redis.pcall('PEXPIRE', index, DAY_MS) end
end
