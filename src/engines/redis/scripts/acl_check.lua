
-- ---- acl_check.lua - finds out which commands that the verbs need are forbidden to the user
--
-- Reads and writes no key: only asks the server about the user's rights.
-- Keys: 1 lock, 2 counter, of a name that nobody uses. Inboxes and channels have names like the
--   counter's, so a pattern that allows one of them allows all.
-- Argument: 1 letters that say what this client needs besides the locks: i inbox, p channel,
--   s channel in a cluster, - or others: none of these; h history, w WAIT, a WAITAOF, q quorum.
-- Answer: the names of the forbidden commands; empty if there are none, or if the server cannot
--   say.

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
