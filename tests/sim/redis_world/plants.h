/* plants.h - the bugs that the simulator can plant, each of which it must find. They live in the text of a script as
 * the server's model reads it (spoil_script), around the engine and around the claim's step function; never in the
 * product. */
#pragma once

/* id, name, what is wrong; and for those in a script: the script, what its text says, and what it says instead. */
#define PLANTS(X)                                                                                                      \
    X(NONE, "none", "", NULL, NULL, NULL)                                                                              \
    X(RELEASE_ANY, "release-any", "a release deletes whatever is there", "release",                                    \
      "      if mine then\n        call('DEL', KEYS[1])\n", "      call('DEL', KEYS[1])\n      if mine then\n")        \
    X(REVIVE, "revive", "a renewal revives a hold that has ended", "extend", "  if not value then return { 0 } end\n", \
      "  if not value then\n    local t = call('TIME')\n    local n = t[1] .. ('00000' .. t[2]):sub(-6)\n"             \
      "    call('SET', KEYS[1], id .. ' ' .. n .. ' ' .. ttl .. ' 0 b 1 sim ', 'PX', math.max(ttl, 1))\n"              \
      "    return { n, ttl }\n  end\n")                                                                                \
    X(SHORTEN, "shorten", "an extend may shorten the hold", "extend", "      if left < ttl then\n",                    \
      "      if ttl > 0 then\n")                                                                                       \
    X(LEAVE_ALONE, "leave-alone", "one that leaves the queue admits nobody", "release",                                \
      "' or 'r') end\nadmit(nil, first)\n", "' or 'r') end\nif held then admit(nil, first) end\n")                     \
    X(SHORT_TURN, "short-turn", "a hand-over ends before its waiter's next look", "*",                                 \
      "  local till = max(w.due, now + w.grace * 1000)\n", "  local till = now + w.grace * 125\n")                     \
    X(PUSH_START, "push-start", "a hand-over is counted from its message", NULL, NULL, NULL)                           \
    X(OLD_PUSH, "old-push", "a message that is older than the answer is believed", "ask",                              \
      "arrival or whole(number), place }", "arrival or '0', place }")                                                  \
    X(RETRY_TIME, "retry-time", "the time of a second ask goes with the server's time in the answer to the first",     \
      NULL, NULL, NULL)                                                                                                \
    X(REPLY_TIME, "reply-time", "a grant is counted from its answer", NULL, NULL, NULL)                                \
    X(TURN_DRIFT, "turn-drift", "the drift of a hand-over is taken over the hand-over alone", NULL, NULL, NULL)        \
    X(NO_TOMBSTONE, "no-tombstone", "a doubt leaves no tombstone", "release",                                          \
      "if doubt > 0 then bury(id, doubt) end\n", "")                                                                   \
    X(BUSY_STAYS, "busy-stays", "one that is told busy stays in the queue", "ask",                                     \
      "  if queued ~= '0' then leave_queue(me.id, me) end\n",                                                          \
      "  call('ZADD', queue, next_number(), me.id)\n"                                                                  \
      "  call('HSET', waiters, me.id, whole(now + me.grace * 4000) .. ' ' .. me.grace * 4 .. ' ' .. me.grace .. ' ' "  \
      ".. me.ttl .. ' ' .. "                                                                                           \
      "me.units ..\n  ' ' .. me.capacity .. ' ' .. me.kind .. ' ' .. me.owner .. ' ' .. me.box .. ' ' .. me.meta)\n")  \
    X(LOST_PUSH, "lost-push", "a waiter never looks for itself", NULL, NULL, NULL)                                     \
    X(BARGE, "barge", "a newcomer passes the queue", "ask",                                                            \
      "    if plain_number and plain_number < tonumber(stamp) then", "    if took then")                               \
    X(UPGRADE_KEEPS, "upgrade-keeps", "an upgrade keeps its token", "convert",                                         \
      "      token = next_number()\n      if history", "      if history")                                             \
    X(NEGATIVE, "negative", "a reader that is gone is counted off again", "release",                                   \
      "' or 'r') end\nadmit(nil, first)\n",                                                                            \
      "' or 'r') elseif form == 'many' then set_used(used - 1) end\nadmit(nil, first)\n")                              \
    X(ONE_EXPIRY, "one-expiry", "whoever renews renews for all", "extend",                                             \
      "  call('ZADD', ends, whole(till), h.id)\n",                                                                     \
      "  for _, each in ipairs(call('ZRANGE', ends, 0, -1)) do call('ZADD', ends, whole(till), each) end\n")           \
    X(RELEASE_OTHER, "release-other", "a release takes whoever holds", "release", "local held = read_hold(id)\n",      \
      "local held = read_hold(id) or (form == 'many' and read_hold(call('ZRANGE', ends, 0, 0)[1]))\n")                 \
    X(TELL_ANOTHER, "tell-another", "the message of a hand-over names the next one in line", "*",                      \
      "  local text = w.id .. ' '", "  local text = (call('ZRANGE', queue, 0, 0)[1] or w.id) .. ' '")                  \
    X(INCR, "incr", "tokens are counted from 1 after a loss of data", "*",                                             \
      "  number = number < now and now or number + 1\n", "  number = number + 1\n")                                    \
    X(SET_COUNT, "set-count", "the count of units is repaired by setting it", "*",                                     \
      "  if h.units > 0 then set_used(used - h.units) end\n", "  if h.units > 0 then set_used(0) end\n")               \
    X(INBOX_GROWS, "inbox-grows", "an inbox has no end", "*", "    call('PEXPIRE', box, '60000')\n", "")               \
    X(ROUNDED, "rounded", "a ttl is sent in whole seconds", NULL, NULL, NULL)                                          \
    X(COUNT_APART, "count-apart", "an owner's hold is counted off while its other asks go on", "*",                    \
      "      write_hold(heir)\n      return\n", "      write_hold(heir)\n")                                            \
    X(ENDLESS_TURN, "endless-turn", "a hand-over has no end", "*", "w.meta, 'PX', format('%d', ms))\n", "w.meta)\n")   \
    X(NO_CUT_BACK, "no-cut-back", "a clock that stepped back makes holds longer", "ask",                               \
      "  if form == 'plain' and left > plain.ttl then\n", "  if false then\n")                                         \
    X(LATE_GRANT, "late-grant", "a grant that comes while leaving is forgotten", NULL, NULL, NULL)                     \
    X(SHORT_CHANGED, "short-changed", "a hand-over is never claimed", NULL, NULL, NULL)                                \
    X(STEP_COUNTS, "step-counts", "one who looks is shown the time that a clock's step back added", "extend",          \
      "return { token, math.min(left, given) }", "return { token, left }")                                             \
    X(STEP_WAITS, "step-waits", "a hand-over lasts as much longer as the clock stepped back", "*",                     \
      "  return min(tonumber(due), now + tonumber(span) * 1000)\n", "  return tonumber(due)\n")                        \
    X(GATHERED, "gathered", "an ask that is let in beside its owner's other one is told to wait", "ask",               \
      "held = not token and me.owner ~= '-' and read_hold(me.id)\n", "held = false\n")                                 \
    X(GATHER_DEAD, "gather-dead", "a dead ask of an owner is let in with the others", "*",                             \
      "    if w and w.due > now then\n", "    if w then\n")                                                            \
    X(WAIT_LEFT, "wait-left", "a grant that too few replicas acknowledged is not taken back", NULL, NULL, NULL)        \
    X(LATE_SET, "late-set", "a lock that was taken without a token, for one that had given up, is held", "ask",        \
      "  if plain and is_buried(plain.id) then set_free() end\n", "")                                                  \
    X(TWO_KEYS, "two-keys", "a release with two keys hands over to nobody", "release", "is_quiet = not text or text",  \
      "is_quiet = not KEYS[3] or not text or text")                                                                    \
    X(HUSHED, "hushed", "a hand-over says that nobody waits any more", "release", "  keep_counter(true)",              \
      "  keep_counter(false)")                                                                                         \
    X(GRAVE_OPENED, "grave-opened", "who sees that nobody waits forgets the tombstones", "release", "'^~(%d+) 0$'",    \
      "'^~(%d+)'")                                                                                                     \
    X(GRAVE_MISSED, "grave-missed", "who comes to wait forgets the tombstones", "ask",                                 \
      "number < now and tombs == 0 and now", "now")                                                                    \
    X(LATE_UNDO, "late-undo", "what takes a grant back takes a later one, too", "release",                             \
      "if held and round and round_of(held.meta) > round then held = nil end\n", "")                                   \
    X(LATE_DOWNGRADE, "late-downgrade", "what takes an upgrade back takes a later one, too", "convert",                \
      "  return who == me and tonumber(since) <= round\n", "  return true\n")                                          \
    X(WAIT_SHORT, "wait-short", "a grant counts before the replica has acknowledged it", NULL, NULL, NULL)             \
    X(LATE_TOKEN, "late-token", "a token is taken after the lock, from an extra counter", NULL, NULL, NULL)            \
    X(ADOPT_SURE, "adopt-sure", "who took a hold up releases it without a tombstone", NULL, NULL, NULL)                \
    X(ADOPT_BLIND, "adopt-blind", "a hold that is taken up is believed to be new", NULL, NULL, NULL)                   \
    X(UNORDERED, "unordered", "two names are taken in the order in which they were named", NULL, NULL, NULL)           \
    X(HALF_KEPT, "half-kept", "who loses one of two names keeps the other", NULL, NULL, NULL)                          \
    X(CLOCK_STANDS, "clock-stands", "a lease is counted on a clock that stands while the machine sleeps", NULL, NULL,  \
      NULL)

#include "sim/planting.h"

static const struct spoiling {
    const char *script, *from, *to; /* script "*": wherever the text is; NULL: it is none of these */
} spoilings[] = {
#define X(id, name, text, script, from, to) {script, from, to},
    PLANTS(X)
#undef X
};
