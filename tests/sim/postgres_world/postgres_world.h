/* postgres_world.h - what the world of a database has besides sim/wire_world: planted bugs, and
 * what the server keeps. Included once, by sim/postgres_sim.c, as are the other headers here. */
#pragma once
#include "engines/postgres/postgres.h"

static const struct wire_engine_type world_engine; /* postgres_network.h */

#define WORLD_ENGINE world_engine
#define WORLD_LIMITS POSTGRES_LIMITS
#define WORLD_CONNECTIONS 1
#define WORLD_TTL_MAX_MS 3000
#define WORLD_COUNTS(X)                                                                            \
    X(handoffs, "handoffs")                                                                        \
    X(crashes, "crashes")                                                                          \
    X(failovers, "failovers")                                                                      \
    X(undone, "transactions that one of them undid")                                               \
    X(barred, "requests within a grace")                                                           \
    X(unconfirmed, "commits without their standby")                                                \
    X(blocked, "statements that met a locked row")                                                 \
    X(mixed, "replies of others from a pooler")                                                    \
    X(tombstones, "requests that met a tombstone")                                                 \
    X(steps, "steps back of the clock")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(REPLY_TIME, "reply-time", "a belief counts from the reply")                                  \
    X(NOTIFY_TIME, "notify-time", "a hold that was handed off counts from its notification")       \
    X(TRUST_NOTIFY, "trust-notify", "a handoff that is not on disk is believed")                   \
    X(TRUST_LEFT, "trust-left", "a grant is believed that a request behind it gave back")          \
    X(TRUST_WARNING, "trust-warning", "a grant is believed that no standby confirmed")             \
    X(NO_COMMIT, "no-commit", "the session commits as its role does, lazily")                      \
    X(NO_GRACE, "no-grace", "the server grants at once after it lost data")                        \
    X(UPGRADE_IN_GRACE, "upgrade-in-grace",                                                        \
      "a reader becomes the writer beside readers that were lost")                                 \
    X(NO_TOMBSTONE, "no-tombstone", "an unknown outcome leaves no tombstone")                      \
    X(NO_ECHO, "no-echo", "behind a pooler any reply is believed")                                 \
    X(DEAF, "deaf", "a waiter asks again when it is notified, and not otherwise")                  \
    X(GUESS_AGAIN, "guess-again", "a repeated request is sent as a first one that guesses")        \
    X(NO_AGAIN, "no-again", "a repeated request does not say that it is one")                      \
    X(TRUST_CUT, "trust-cut", "an extend that was never answered counts")                          \
    X(TRUST_REFUSED, "trust-refused", "an extend that was refused counts")
#include "sim/wire_world/wire_world.h"

enum { HOLDS = 24, WAITERS = 48, TOMBSTONES = 64, STATES = 64, GRACE_MS = 4000 };

struct model_hold {
    char id[PG_ID_TEXT + 1], kind;
    int64_t units, token, till, ttl; /* microseconds, but ttl in milliseconds */
};

struct model_waiter {
    char id[PG_ID_TEXT + 1], kind;
    int64_t ticket, units, capacity, ttl, due, span, grace, session;
    char channel[48]; /* "": it polls */
};

/* The rows of the one name, as they are behind one transaction. */
struct rows {
    int64_t last, tombstones, capacity, used, since;
    char class;
    int timeline, incarnation; /* of the row, for which the grace is over; of the data */
    struct model_hold hold[HOLDS];
    struct model_waiter waiter[WAITERS]; /* by ticket */
    struct {
        char id[PG_ID_TEXT + 1];
        int64_t till;
    } tombstone[TOMBSTONES];
    unsigned holds, waiters, buried;
};

/* What happens to transactions that were acknowledged. */
enum loss { KEEPS, REPLICATES, FORGETS }; /* a lone server; a synchronous standby; memory=1 */

static struct {
    struct rows rows;
    struct rows state[STATES];            /* a ring: behind each of the last transactions */
    uint64_t written, durable, confirmed; /* number of the last state; on disk; on the standby */
    int timeline;
    enum loss loss;
    bool pooled, polls, has_lost;
    bool steps_back; /* the clock may; then no standby takes over that lacks what was told */
    bool is_alone;   /* the standby is away: commits are confirmed with a warning */
    int64_t wrong_us;
    nanos blocked_until;
    int64_t pids;
} db;

/* What the server knows of a link. */
struct served {
    bool is_over, commits_lazily;
    int64_t key;
    char channel[48], leftover[200]; /* "": none */
};

static struct served served[LINKS];
