/* cluster_world.h - what the world of a cluster has besides: planted bugs, three primaries of which
 * two have a replica, and what each node believes of slots and primaries. Included once, by
 * sim/cluster_sim.c, as are the other headers here. */
#pragma once
#include "engines/cluster/cluster.h"
#include "engines/redis/redis.h"

enum {
    NODES = 5, /* a and b, c and d are a primary and its replica; e is a primary alone */
    SHARDS = 3,
    MOVABLE = 2, /* shards that the lock moves between, and that fail over */
    TICK_MS = 20,
    TOLD_MS = 300,          /* calm: a lost record is reported so long after the failover */
    CLOCKS_US = 4000,       /* clocks differ by so much and are no fault: see timing_drift() */
    NODE_TIMEOUT_MS = 1000, /* a primary that is cut off stops after it */
    LEARNS_MS = 400,        /* a node learns of a change within it, if it is not cut off */
    UNHEARD_MS = 3000,      /* calm: somebody is granted a lock that nobody holds */
    FREE_AFTER_MS = 4000,
};

#define WORLD_ENGINE cluster_wire_engine
#define WORLD_LIMITS REDIS_LIMITS
/* Beside the five nodes the engine may have a shard without an address. */
#define WORLD_CONNECTIONS (CLUSTER_QUERIES + (NODES + 1) * REDIS_CONNECTIONS)
#define WORLD_TTL_MAX_MS 3000
#define WORLD_RULES                                                                                \
    {                                                                                              \
        .exact = true                                                                              \
    }
#define WORLD_COUNTS(X)                                                                            \
    X(moves, "moves of the slot")                                                                  \
    X(keys, "keys that moved")                                                                     \
    X(kept, "failovers that kept all data")                                                        \
    X(stale, "failovers that lost the newest writes")                                              \
    X(splits, "old primaries that went on")                                                        \
    X(refusals, "times that a primary said that the cluster is down")                              \
    X(partitions, "groups cut off")                                                                \
    X(strong, "failovers while the replica must acknowledge")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(HALF_MOVED, "half-moved", "a server executes requests for keys that have moved away")        \
    X(NO_RECHECK, "no-recheck", "holds are not checked at another server")                         \
    X(NO_SEARCH, "no-search", "the map is read once, and redirects alone are followed")            \
    X(ALWAYS_ASKING, "always-asking", "ASKING goes before every request")                          \
    X(NO_WAIT, "no-wait", "replicas=1: grants count before the replica acknowledges them")
#include "sim/server_world/redis_nodes.h"

/* What a node believes. */
struct view {
    unsigned primary[SHARDS]; /* index of the node */
    uint64_t epoch[SHARDS];   /* of the failover that made it the primary */
    unsigned owner;           /* shard that has the lock's slot */
    uint64_t moves;           /* number of moves that it knows */
    nanos learns_at;          /* 0: it knows all, or is cut off */
    nanos down_until;         /* after a start it says that the cluster is down */
    nanos cut_since;          /* 0: it sees the others */
};

enum step { IDLE, PROMOTING, MOVE_BEGINS, KEYS_MOVE, MOVE_ENDS };

static struct {
    struct view truth, view[NODES];
    struct model_cluster place[NODES];
    unsigned slot;      /* of the lock */
    bool is_strong;     /* replicas=1: the replica must acknowledge */
    bool is_clean;      /* nothing is lost: the slot moves, operators replace primaries */
    bool keeps_history; /* history=5, so that a lock may have all its keys */
    enum step step;
    nanos step_at;
    unsigned shard, from, to; /* of a failover: two nodes; of a move: two shards */
    bool keeps;               /* the failover loses nothing */
    nanos split_until;        /* an old primary may go on until then */
    nanos well_since;         /* nothing has gone on since then */
} s;
