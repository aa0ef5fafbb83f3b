/* etcd_world.h - what the world of an etcd has besides sim/wire_world: planted bugs, and what the
 * servers of a schedule are. Included once, by sim/etcd_sim.c, as are the other headers here. */
#pragma once
#include "engines/etcd/etcd.h"

enum { LOCK_DELAY_MS = 4000 };

#define WORLD_ENGINE etcd_wire_engine
#define WORLD_LIMITS ETCD_LIMITS
#define WORLD_CONNECTIONS CONNECTIONS
#define WORLD_TTL_MAX_MS 3000
#define WORLD_RESIZES true
#define WORLD_COUNTS(X)                                                                            \
    X(revokes, "live leases ended")                                                                \
    X(stale, "keepalives acknowledged by an old leader")                                           \
    X(elections, "elections")                                                                      \
    X(resizes, "resizes")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(NO_VERIFY, "no-verify", "a keepalive counts without a read behind it")                       \
    X(NO_TERM, "no-term", "the read behind a keepalive does not compare the term")                 \
    X(NO_EPOCH, "no-epoch", "a late request for a place does not compare the epoch")               \
    X(LATE_RAISE, "late-raise", "a raise of the epoch does not compare its last change")           \
    X(NO_LOOK, "no-look", "a watch that began late does not read the list again")                  \
    X(OLD_TOKEN, "old-token", "the token of a reader that waited is the creation of its key")      \
    X(NO_BAR, "no-bar", "an upgrade does not compare the first waiter")                            \
    X(NO_CHANGES, "no-changes", "the waiters of a shared lock watch deletions alone")              \
    X(OLD_CAPACITY, "old-capacity", "a permit does not compare the capacity that let it in")       \
    X(REPLY_TIME, "reply-time", "a belief counts from the reply")                                  \
    X(NO_GUARD, "no-guard", "lock_delay: guards of lost holds are not seen")                       \
    X(SHORT_DELAY, "short-delay", "lock_delay: the guard of a lost hold is gone at once")
#include "sim/wire_world/wire_world.h"

/* What the servers know of a link. */
struct member {
    nanos stale_until; /* it follows a leader that was replaced, until then, */
    uint64_t term;     /* in that term */
};

static struct member members[LINKS];
