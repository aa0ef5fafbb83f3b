/* quorum_world.h - what the world of a quorum has besides: planted bugs, and no more than five
 * servers that know nothing of each other. Included once, by sim/quorum_sim.c. */
#pragma once
#include "engines/redis/redis.h"
#include "engines/redlock/redlock.h"

enum {
    NODES = 5,
    TICK_MS = 20,
    UNHEARD_MS = 6000,   /* calm: somebody is granted a lock that nobody holds */
    MAX_TTL_MS = 3000,   /* a server that restarted counts again after it */
    CLOCKS_US = 1000000, /* clocks differ by so much; nothing depends on it */
};

#define WORLD_ENGINE redlock_wire_engine
#define WORLD_LIMITS REDLOCK_LIMITS
#define WORLD_CONNECTIONS (NODES * QUORUM_MEMBER_CONNECTIONS)
#define WORLD_TTL_MAX_MS MAX_TTL_MS
#define WORLD_COUNTS(X)                                                                            \
    X(restarts, "servers that restarted empty")                                                    \
    X(hangs, "servers that hung")                                                                  \
    X(minorities, "clients cut off with a minority")                                               \
    X(majorities, "clients cut off with a majority")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(EMPTY_COUNTS, "empty-counts", "a server that restarted empty counts at once")                \
    X(NO_COUNTS, "no-counts", "a server that refuses counts as one that agrees")
#include "sim/server_world/redis_nodes.h"

static bool servers_restart; /* in this schedule */
