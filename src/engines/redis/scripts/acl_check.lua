
-- ---- acl_check.lua - which commands the user may not use, of those that the verbs need
--
-- It only asks the server: no key is read or written.
-- Keys: 1 lock, 2 counter, of a name that nobody uses. Inboxes and channels are called like
--   counters: what goes for one of them goes for all.
-- Argument: 1 letters: i inbox, p channel, s channel in a cluster, - or others: none; h history,
--   w WAIT, a WAITAOF, q of a quorum.
-- Answer: the names of those commands. None: the user may use all, or the server cannot say.

local function rights(keys, args)
  local check = redis.acl_check_cmd
  if not check then return {} end
  local missing, needs = {}, args[1]
  local function try(command, ...)
    local is_known, is_allowed = pcall(check, command, ...)
    if is_known and not is_allowed then missing[#missing + 1] = command end
  end
  local function try_all(commands, ...)
    for command in commands:gmatch('%l+') do try(command, ...) end
  end

  try('time')
  try_all('del exists', keys[1])
  try_all('get set pttl pexpire hget hset hdel hmget hrandfield', keys[1], '1', '1')
  try_all('zadd zrem zpopmin zrange zrangebyscore zscore zrank zcard', keys[1], '1', '1')
  if needs:find('h') then try_all('zremrangebyscore zremrangebyrank', keys[2], '0', '0') end
  if needs:find('w') then try('wait', '1', '1') end
  if needs:find('a') then try('waitaof', '1', '1', '1') end
  if needs:find('q') then try_all('publish subscribe', keys[2]) end
  if needs:find('i') then
    try('rpush', keys[2], '1')
    try('blmpop', '1', '1', keys[2], 'LEFT')
  elseif needs:find('p') then
    try_all('publish subscribe', keys[2])
    try('ping')
  elseif needs:find('s') then
    try_all('spublish ssubscribe sunsubscribe', keys[2])
    try('ping')
  end
  return missing
end
