
-- ---- verbs.lua - offers the verbs: as functions of the library, or by their names
--
-- Verbs that release, or keep what is held, have the flag allow-oom, because they must work when
-- the server's memory is full.

if VERSION then
  local function register(name, callback, ...)
    redis.register_function{ function_name = 'holdfast_' .. VERSION .. '_' .. name,
      callback = callback, flags = { ... } }
  end
  register('acquire', acquire)
  register('acquire_several', acquire_several)
  register('extend', extend, 'allow-oom')
  register('release', release, 'allow-oom')
  register('convert', convert, 'allow-oom')
  register('break', break_hold, 'allow-oom')
  register('resize', resize)
  register('inspect', inspect, 'no-writes', 'allow-stale')
  register('rights', rights, 'no-writes', 'allow-stale')
  register('quorum_acquire', quorum_acquire)
  register('quorum_release', quorum_release, 'allow-oom')
  register('quorum_inspect', quorum_inspect, 'no-writes', 'allow-stale')
  register('names', list_names, 'allow-oom')
  register('index', build_index, 'allow-oom')
  return
end
if seen then
  local in_full = { acquire = acquire_in_full, release = release_in_full,
    extend = extend_in_full }
  return in_full[verb](KEYS, ARGV, seen)
end
local verbs = { acquire_several = acquire_several, convert = convert, ['break'] = break_hold,
  resize = resize, inspect = inspect, rights = rights, quorum_acquire = quorum_acquire,
  quorum_release = quorum_release, quorum_inspect = quorum_inspect, names = list_names,
  index = build_index }
return verbs[verb](KEYS, ARGV)
