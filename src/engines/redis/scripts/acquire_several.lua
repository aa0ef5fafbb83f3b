
-- ---- acquire_several.lua - acquires several locks in their order, up to the first that is not free
--
-- A client that takes several names takes them in the order of their bytes, and asks for a name
-- only when it holds those before. This call does the same: it stops behind the first lock that is
-- not granted, so nobody ever waits for a lock while holding a later one.
--
-- Keys: those of each lock, one lock after the other. Arguments: those of acquire, for each lock.
-- Answers: a list with the answer of acquire for each lock. It is shorter than the list of locks
--   if one of them was not granted: that one is the last, and those behind it were not touched.
-- Cost: that of acquire for each lock.

local function acquire_several(keys, args)
  local answers, count = {}, #args / 5
  local per_lock = #keys / count
  for i = 0, count - 1 do
    local answer = acquire({ unpack(keys, i * per_lock + 1, (i + 1) * per_lock) },
      { unpack(args, i * 5 + 1, (i + 1) * 5) })
    answers[i + 1] = answer
    if type(answer) ~= 'string' then break end
  end
  return answers
end
