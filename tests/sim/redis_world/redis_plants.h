/* redis_plants.h - the bugs that the simulator can plant, each of which it must find. They live in
 * the text of a script as the server's model reads it (spoil_script), around the engine and around
 * the claim's step function; never in the product. */
#pragma once

/* id, name, what is wrong; and for those in the library: what its text says, and what it says
 * instead. */
#define PLANTS(X)                                                                                  \
    X(NONE, "none", "", NULL, NULL)                                                                \
    X(RELEASE_ANY, "release-any", "a release deletes whatever is there",                           \
      "    if not is_mine then return 0 end\n"                                                     \
      "    redis.call('DEL', keys[1])\n",                                                          \
      "    redis.call('DEL', keys[1])\n"                                                           \
      "    if not is_mine then return 0 end\n")                                                    \
    X(REVIVE, "revive", "a renewal revives a hold that has ended",                                 \
      "  if not value then return { 0 } end\n",                                                    \
      "  if not value then\n"                                                                      \
      "    local n = clock_text(redis.call('TIME'))\n"                                             \
      "    redis.call('SET', keys[1], args[1] .. ' ' .. n .. ' ' .. ttl .. ' 0 b 1 sim ', 'PX', "  \
      "math.max(ttl, 1))\n"                                                                        \
      "    return { n, ttl }\n"                                                                    \
      "  end\n")                                                                                   \
    X(SHORTEN, "shorten", "an extend may shorten the hold",                                        \
      "  if left < ttl then\n"                                                                     \
      "    redis.call('PEXPIRE', keys[1], args[2])\n",                                             \
      "  if ttl > 0 then\n"                                                                        \
      "    redis.call('PEXPIRE', keys[1], args[2])\n")                                             \
    X(LEAVE_ALONE, "leave-alone", "one that leaves the queue admits nobody",                       \
      "  admit(lock, nil, seen.first)\n", "  if held then admit(lock, nil, seen.first) end\n")     \
    X(SHORT_TURN, "short-turn", "a handoff ends before its waiter can claim it",                   \
      "return now + grace * 1000 end\n", "return now + grace * 125 end\n")                         \
    X(PUSH_START, "push-start", "a hand-over is counted from its message", NULL, NULL)             \
    X(OLD_PUSH, "old-push", "a message that is older than the answer is believed",                 \
      "return { 0, left, again, now, number, place, arrival }",                                    \
      "return { 0, left, again, now, '0', place, arrival }")                                       \
    X(RETRY_TIME, "retry-time",                                                                    \
      "the time of a second ask goes with the server's time in the answer to the first", NULL,     \
      NULL)                                                                                        \
    X(REPLY_TIME, "reply-time", "a grant is counted from its answer", NULL, NULL)                  \
    X(TURN_DRIFT, "turn-drift", "the drift of a hand-over is taken over the hand-over alone",      \
      NULL, NULL)                                                                                  \
    X(NO_TOMBSTONE, "no-tombstone", "a doubt leaves no tombstone",                                 \
      "  if tombstone_ms > 0 then add_tombstone(lock, id, tombstone_ms) end\n", "")                \
    X(BUSY_STAYS, "busy-stays", "one that is told busy stays in the queue",                        \
      "  if r.queued ~= '0' then leave_queue(lock, r.id, r) end\n",                                \
      "  redis.call('ZADD', lock.queue, next_number(lock), r.id)\n"                                \
      "  redis.call('HSET', lock.waiters, r.id, whole(lock.now + r.grace * 4000) .. ' ' .. "       \
      "r.grace * 4 ..\n"                                                                           \
      "    ' ' .. r.grace .. ' ' .. r.ttl .. ' ' .. r.units .. ' ' .. r.capacity .. ' ' .. "       \
      "r.kind .. ' ' ..\n"                                                                         \
      "    r.owner .. ' ' .. r.box .. ' ' .. r.meta)\n")                                           \
    X(NOT_IN_ORDER, "not-in-order", "several names are taken beyond one that is not free",         \
      "    if type(answer) ~= 'string' then break end\n", "")                                      \
    X(ONE_TOKEN, "one-token", "names that are taken together get the token of the first",          \
      "    answers[i + 1] = answer\n", "    answers[i + 1] = answers[1] or answer\n")              \
    X(LOST_PUSH, "lost-push", "a waiter never looks for itself", NULL, NULL)                       \
    X(BARGE, "barge", "a newcomer passes the queue",                                               \
      "    if number and number < tonumber(stamp) then return stamp end\n",                        \
      "    if stamp then return stamp end\n")                                                      \
    X(UPGRADE_KEEPS, "upgrade-keeps", "an upgrade keeps its token",                                \
      "    token = next_number(lock)\n"                                                            \
      "    keep_counter(lock)\n",                                                                  \
      "")                                                                                          \
    X(NEGATIVE, "negative", "a reader that is gone is counted off again",                          \
      "  if held then drop_hold(lock, held, verb == 'x' and 'l' or 'r') end\n",                    \
      "  if held then drop_hold(lock, held, verb == 'x' and 'l' or 'r')\n"                         \
      "  elseif lock.form == 'many' then redis.call('HSET', lock.key, '@u', lock.used - 1) end\n") \
    X(ONE_EXPIRY, "one-expiry", "whoever renews renews for all",                                   \
      "  redis.call('ZADD', lock.ends, whole(till), h.id)\n",                                      \
      "  for _, each in ipairs(redis.call('ZRANGE', lock.ends, 0, -1)) do\n"                       \
      "    redis.call('ZADD', lock.ends, whole(till), each)\n"                                     \
      "  end\n")                                                                                   \
    X(RELEASE_OTHER, "release-other", "a release takes whoever holds",                             \
      "  local held = read_hold(lock, id)\n"                                                       \
      "  if held and verb",                                                                        \
      "  local held = read_hold(lock, id) or\n"                                                    \
      "    (lock.form == 'many' and read_hold(lock, redis.call('ZRANGE', lock.ends, 0, 0)[1]))\n"  \
      "  if held and verb")                                                                        \
    X(TELL_ANOTHER, "tell-another", "the message of a hand-over names the next one in line",       \
      "  local text = id .. ' '",                                                                  \
      "  local next = redis.call('ZRANGE', '{' .. lock_key .. '}:q', 0, 0)[1]\n"                   \
      "  local text = (next or id) .. ' '")                                                        \
    X(INCR, "incr", "tokens are counted from 1 after a loss of data",                              \
      "return number < now and now or number + 1 end\n", "return number + 1 end\n")                \
    X(SET_COUNT, "set-count", "the count of units is repaired by setting it",                      \
      "    lock.used = lock.used - units\n", "    lock.used = 0\n")                                \
    X(INBOX_GROWS, "inbox-grows", "an inbox has no end", "'number' then redis.pcall('PEXPIRE',",   \
      "'' then redis.pcall('PEXPIRE',")                                                            \
    X(ROUNDED, "rounded", "a ttl is sent in whole seconds", NULL, NULL)                            \
    X(COUNT_APART, "count-apart", "an owner's hold is counted off while its other asks go on",     \
      "  elseif units > 0 then\n",                                                                 \
      "  end\n"                                                                                    \
      "  if units > 0 then\n")                                                                     \
    X(ENDLESS_TURN, "endless-turn", "a hand-over has no end",                                      \
      "plain_text(id, token, ttl, meta), 'PX', ms)\n", "plain_text(id, token, ttl, meta))\n")      \
    X(NO_CUT_BACK, "no-cut-back", "a clock that stepped back makes holds longer",                  \
      "  if left > given then\n", "  if false then\n")                                             \
    X(LATE_GRANT, "late-grant", "a grant that comes while leaving is forgotten", NULL, NULL)       \
    X(SHORT_CHANGED, "short-changed", "a hand-over is never claimed", NULL, NULL)                  \
    X(STEP_COUNTS, "step-counts",                                                                  \
      "one who looks is shown the time that a clock's step back added",                            \
      "return { token, math.min(left, given) }", "return { token, left }")                         \
    X(GATHERED, "gathered", "an ask that is let in beside its owner's other one is told to wait",  \
      "  held = r.owner ~= '-' and read_hold(lock, r.id)\n", "  held = false\n")                   \
    X(GATHER_DEAD, "gather-dead", "a dead ask of an owner is let in with the others",              \
      "    if w and arrival and is_alive(w.due, w.asked, w.box, lock.now, lock.waiters) then\n",   \
      "    if w and arrival then\n")                                                               \
    X(WAIT_LEFT, "wait-left", "a grant that too few replicas acknowledged is not taken back",      \
      NULL, NULL)                                                                                  \
    X(LATE_SET, "late-set",                                                                        \
      "a lock that was taken without a token, for one that had given up, is held",                 \
      "    if lock.plain and has_tombstone(lock, lock.plain.id) then set_free(lock) end\n", "")    \
    X(TWO_KEYS, "two-keys", "a release with two keys hands over to nobody",                        \
      "local is_quiet = not text or text", "local is_quiet = not keys[3] or not text or text")     \
    X(HUSHED, "hushed", "a hand-over says that nobody waits any more",                             \
      "  redis.call('SET', keys[2], '~' .. token .. ' ' .. (until_text or '0'), 'PX'",             \
      "  redis.call('SET', keys[2], token, 'PX'")                                                  \
    X(GRAVE_OPENED, "grave-opened", "who sees that nobody waits forgets the tombstones",           \
      "'^~(%d+) 0$'", "'^~(%d+)'")                                                                 \
    X(GRAVE_MISSED, "grave-missed", "who comes to wait forgets the tombstones",                    \
      "not number or (tonumber(number) < now and (till == '' or till == '0'))", "true")            \
    X(LATE_UNDO, "late-undo", "what takes a grant back takes a later one, too",                    \
      "  if held and round and round_of(held.meta) > round then held = nil end\n", "")             \
    X(LATE_DOWNGRADE, "late-downgrade", "what takes an upgrade back takes a later one, too",       \
      "  return who == me and tonumber(since) <= round\n", "  return true\n")                      \
    X(WAIT_SHORT, "wait-short", "a grant counts before the replica has acknowledged it", NULL,     \
      NULL)                                                                                        \
    X(COUNTER_LOST, "counter-lost", "a script that fails half-way leaves a lower counter",         \
      "    restore_counter(keys[2], before, clock_number(clock))\n", "")                           \
    X(LATE_COUNT, "late-count", "a hold has its token before that is counted",                     \
      "  keep_counter(lock, true)\n"                                                               \
      "  if is_me then\n",                                                                         \
      "  if is_me then\n")                                                                         \
    X(HALF_DOWNGRADE, "half-downgrade",                                                            \
      "a downgrade that failed half-way is said not to have happened", NULL, NULL)                 \
    X(HALF_SURE, "half-sure", "what failed half-way is said to have come to nothing", NULL, NULL)  \
    X(LATE_TOKEN, "late-token", "a token is taken after the lock, from an extra counter", NULL,    \
      NULL)                                                                                        \
    X(ADOPT_SURE, "adopt-sure", "who took a hold up releases it without a tombstone", NULL, NULL)  \
    X(ADOPT_BLIND, "adopt-blind", "a hold that is taken up is believed to be new", NULL, NULL)     \
    X(UNORDERED, "unordered", "two names are taken in the order in which they were named", NULL,   \
      NULL)                                                                                        \
    X(HALF_KEPT, "half-kept", "who loses one of two names keeps the other", NULL, NULL)            \
    X(CLOCK_STANDS, "clock-stands",                                                                \
      "a lease is counted on a clock that stands while the machine sleeps", NULL, NULL)            \
    X(UNLISTED, "unlisted", "a name is taken and not added to the index",                          \
      "    if not before then add_to_index(keys[1], args[5]) end\n", "")                           \
    CROWD_PLANTS(X)

/* Those that take a crowd to be found: sim/crowd.c plants them. */
#define CROWD_PLANTS(X)                                                                            \
    X(OWNER_TWICE, "owner-twice",                                                                  \
      "a newcomer is let in beside another request of its owner as if it were a stranger",         \
      "\n"                                                                                         \
      "  joined = join_owner(lock, r)\n",                                                          \
      "\n"                                                                                         \
      "  joined = false\n")                                                                        \
    X(OWNER_MANY, "owner-many",                                                                    \
      "a request of an owner beyond those that are gathered is let in as a stranger",              \
      "    local other = not is_gone and hold_of(lock, w.owner)\n", "    local other = nil\n")     \
    X(DEAD_STAND, "dead-stand",                                                                    \
      "a waiter counts as alive until its record ends, whatever became of its client",             \
      "  if age < PRESENCE_US and age > -STEP_US then return true end\n",                          \
      "  do return true end\n")                                                                    \
    X(FEW_DEAD, "few-dead", "a script removes 64 dead waiters and says that it has finished",      \
      "      drop_dead(lock, me)\n"                                                                \
      "      if lock.is_unfinished then break end\n",                                              \
      "      if round == 64 then break end\n")                                                     \
    X(LONG_TURN, "long-turn", "a handoff lasts much longer than its grace",                        \
      "return now + grace * 1000 end\n", "return now + grace * 5000 end\n")                        \
    X(NO_POLLS, "no-polls", "the first local waiter of a lock does not poll", NULL, NULL)          \
    X(LAST_AGAIN, "last-again", "a waiter that was passed over comes back as the last in line",    \
      "r.arrived = #r.queued > 1 and r.queued", "r.arrived = false")                               \
    X(STEP_WAITS, "step-waits",                                                                    \
      "a dead waiter counts as alive for as much longer as the clock stepped back",                \
      "  if age < PRESENCE_US and age > -STEP_US then return true end\n",                          \
      "  if age < PRESENCE_US then return true end\n")                                             \
    X(LATE_POLL, "late-poll", "a poll that is executed after its waiter's death gets a whole ttl", \
      "  r.first_ms = r.polls and r.grace or r.ttl\n", "  r.first_ms = r.ttl\n")                   \
    X(STEP_SIGNS, "step-signs",                                                                    \
      "a dead client's sign of life lasts for as much longer as the clock stepped back",           \
      "  return left > 0 and left * 1000 < PRESENCE_US + STEP_US\n", "  return left > 0\n")

#include "sim/plant_selection.h"

enum { FIRST_CROWD_PLANT = PLANT_OWNER_TWICE };

static const struct spoiling {
    const char *from, *to; /* NULL: it is not in the library */
} spoilings[] = {
#define X(id, name, text, from, to) {from, to},
    PLANTS(X)
#undef X
};
