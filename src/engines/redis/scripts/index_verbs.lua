
-- ---- index_verbs.lua - reads the index of names, and makes it anew

-- Reads a part of the index.
-- Keys: 1 index, 2 the mark that the index is whole.
-- Arguments: 1 prefix, 2 and 3 range of names, as for ZRANGE BYLEX, 4 most names to read.
-- Answers: {is_whole, last, name ...}: the names that are in use. is_whole: 1: yes; 0: names that
--   are not in the index may be in use, too. last: the last name that was read; '': there are no
--   more.
-- Cost: a ZRANGE, and one or two EXISTS for each name. Removes names of which nothing is left.
local function list_names(keys, args)
  local found = redis.call('ZRANGE', keys[1], args[2], args[3], 'BYLEX', 'LIMIT', '0', args[4])
  local answer = { redis.call('EXISTS', keys[2]),
    #found == tonumber(args[4]) and found[#found] or '' }
  local dead = {}
  for _, name in ipairs(found) do
    local key = args[1] .. name
    local queue, places, counter = companion(key, 'q'), companion(key, 'l'), companion(key, 't')
    if redis.call('EXISTS', counter, key, queue, places) == 0 then
      dead[#dead + 1] = name
    elseif redis.call('EXISTS', key, queue, places) > 0 then
      answer[#answer + 1] = name
    end
  end
  if dead[1] then redis.pcall('ZREM', keys[1], unpack(dead)) end
  return answer
end

-- Returns true if the key is a lock of Holdfast, not a key of another program.
local function is_ours(key)
  if redis.call('EXISTS', companion(key, 't'), companion(key, 'q'), companion(key, 'l')) > 0 then
    return true
  end
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then
    local id = value:match('^(%S+) %d+ %d+ ')
    return id and #id == 22
  end
  if not value then return false end
  local class = redis.pcall('HGET', key, '@k')
  return type(class) == 'string'
end

-- Adds names that a scan has found, as far as there is room. Keys: as for list_names().
-- Arguments: 1 prefix, 2 1: these are the last names of the scan; 0: more follow, 3 ... the names.
-- Answer: number of these names that were not in the index.
local function build_index(keys, args)
  local added, room = 0, NAMES_MOST - redis.call('ZCARD', keys[1])
  for i = 3, #args do
    if added < room and is_ours(args[1] .. args[i]) then
      added = added + redis.call('ZADD', keys[1], '0', args[i])
    end
  end
  redis.call('PEXPIRE', keys[1], DAY_MS)
  if args[2] == '1' and added < room then redis.call('SET', keys[2], '1', 'PX', HOUR_MS) end
  return added
end
