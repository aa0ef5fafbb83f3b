/* failover_world.h - what the world of servers that replace each other has besides:
 * planted bugs, three sentinels, and a name that points to the primary of the three servers of
 * sim/server_world. Included once, by sim/failover_sim.c, as are the other headers here. */
#pragma once
#include "engines/redis/redis.h"
#include "engines/sentinel/sentinel.h"

enum {
    NODES = 3,
    TICK_MS = 20,         /* between two looks of the world at its servers */
    TOLD_MS = 200,        /* calm: a lost record is reported so long after the switch */
    AHEAD_MS = 1500,      /* longest step of a clock that is a fault */
    CLOCKS_US = 4000,     /* clocks differ by so much and are no fault: see timing_drift() */
    LISTENS_MS = 3000,    /* all clients listen to the sentinels so long after the beginning */
    RELEASES = 16,        /* releases that the world remembers */
    REPEATED_MS = 8000,   /* a client repeats its releases for so long, and a bit longer */
    UNHEARD_MS = 2500,    /* calm: somebody is granted a lock that nobody holds */
    FREE_AFTER_MS = 4000, /* a failover may take so long */
};

/* Every fourth schedule plays redis:, by a name that is looked up at every dial. */
static const struct wire_engine_type *world_engine = &sentinel_wire_engine;

#define WORLD_ENGINE (*world_engine)
#define WORLD_LIMITS REDIS_LIMITS
#define WORLD_CONNECTIONS (REDIS_CONNECTIONS + 2 * SENTINELS_MAX)
#define WORLD_TTL_MAX_MS 3000
#define WORLD_RULES                                                                                \
    {                                                                                              \
        .exact = true                                                                              \
    }
#define WORLD_COUNTS(X)                                                                            \
    X(kept, "failovers that kept all data")                                                        \
    X(stale, "failovers to a replica that lagged")                                                 \
    X(splits, "old primaries that went on")                                                        \
    X(empties, "primaries that restarted empty")                                                   \
    X(partitions, "groups cut off")                                                                \
    X(steps, "failovers to another clock")                                                         \
    X(cutoffs, "sentinels cut off")                                                                \
    X(aborts, "failovers that were given up")                                                      \
    X(strong, "failovers while all replicas must acknowledge")

/* The last one is no bug of ours: the setting after_failover=wait in its strictest form, and why
 * there is none. */
#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(NO_ROLE, "no-role", "the greeting does not look at the role")                                \
    X(ANY_EPOCH, "any-epoch", "a sentinel is believed whatever its epoch")                         \
    X(NO_RECHECK, "no-recheck", "holds are not checked at another server")                         \
    X(NO_FLOOR, "no-floor", "the new server is not told the highest token")                        \
    X(HOLDS_BACK, "holds-back", "requests stay held back after a failover that was given up")      \
    X(NO_LISTEN, "no-listen", "announcements of sentinels are not listened to")                    \
    X(NO_REPEAT, "no-repeat", "releases are not repeated at another server")                       \
    X(NO_WAIT, "no-wait", "replicas=2: grants count before the replicas acknowledge them")         \
    X(NOT_SHORTER, "not-shorter", "a check at another server does not end a belief sooner")        \
    X(WAITS, "waits", "after_failover=wait: a new primary serves nobody for the longest ttl")
#include "sim/server_world/redis_nodes.h"

struct watcher {
    unsigned primary; /* index of the node that it names */
    uint64_t epoch;
    bool leads;      /* it leads the failover that goes on */
    nanos cut_until; /* it hears nothing of other servers */
};

/* What a client knows. */
struct knowledge {
    unsigned life;         /* of the client: a new one knows nothing */
    uint64_t believed;     /* highest epoch that it believed */
    uint64_t epoch;        /* of the newest primary that it was at */
    bool is_held_back;     /* planted: for ever, until it follows another server */
    uint64_t token;        /* highest token that it was given */
    uint64_t floor[SLOTS]; /* the same when it asked, */
    int asked_by[SLOTS];   /* and its connection then */
};

struct released {
    struct id attempt;
    unsigned client, life; /* life: of the client then; 0: none */
    nanos at;
};

enum step { IDLE, CHOOSING, PROMOTING, FOLLOWING, ANNOUNCING };

static struct {
    struct watcher watcher[NODES];
    unsigned primary, name; /* the present primary; the node that the name `p` points to */
    uint64_t epoch;
    bool is_strong; /* replicas=2: all replicas must acknowledge */
    bool by_name;   /* clients use redis: and the name */
    bool are_ahead; /* calm: the clock of each new primary is ahead of the one before */
    enum step step;
    nanos step_at;
    unsigned from, to, leader;
    bool keeps;        /* the failover loses nothing */
    bool gives_up;     /* it is given up after the choice */
    nanos split_until; /* an old primary may go on until then */
    nanos well_since;  /* no failover has gone on since then */
    struct knowledge knows[CLIENTS];
    struct released released[RELEASES];
    unsigned releases;
} s;
