/* consul_world.h - what the world of a Consul has besides sim/wire_world: planted bugs, and the
 * structs of the servers. Included once, by sim/consul_sim.c, as are the other headers here. */
#pragma once
#include "engines/consul/consul.h"
#include "engines/consul/json_library.h"

/* With lock_delay, .lock stays closed for as long as a hold can be believed. */
enum { LOCK_DELAY_MS = 3000 };

#define WORLD_ENGINE consul_wire_engine
#define WORLD_LIMITS CONSUL_LIMITS
#define WORLD_CONNECTIONS CONSUL_CONNECTIONS
#define WORLD_TTL_MAX_MS LOCK_DELAY_MS
#define WORLD_COUNTS(X)                                                                            \
    X(elections, "elections")                                                                      \
    X(deposed, "agents that followed an old leader")                                               \
    X(stale, "reads answered from old data")                                                       \
    X(vain, "renewals acknowledged by an old leader")                                              \
    X(doubtful, "writes of unknown outcome")                                                       \
    X(leaderless, "requests without a leader")                                                     \
    X(expired, "sessions expired")                                                                 \
    X(destroyed, "live sessions ended")                                                            \
    X(delayed, "locks refused for the lock-delay")                                                 \
    X(slow, "replies that came late")                                                              \
    X(reused, "calls with ids used again")                                                         \
    X(natives, "holds of another program")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(NOT_CONSISTENT, "not-consistent", "the read behind a renewal is not consistent")             \
    X(NOT_CONFIRMED, "not-confirmed", "a release believes a read of old data")                     \
    X(TWO_TTL, "two-ttl", "a renewal is believed for two ttl")                                     \
    X(REPLY_TIME, "reply-time", "a belief counts from the reply")                                  \
    X(OLD_TOKEN, "old-token", "the token of a reader that waited is the creation of its key")      \
    X(LOCK_INDEX, "lock-index", "the token of an exclusive hold is LockIndex")                     \
    X(NO_EPOCH, "no-epoch", "a late request for a place does not check the epoch")                 \
    X(SAME_EPOCH, "same-epoch", "a second raise of an epoch changes nothing")                      \
    X(NO_LOCK_CHECK, "no-lock-check", ".lock is taken without a check that it is free")            \
    X(NO_ROW_CHECK, "no-row-check", ".lock is passed on without a check of the waiter's entry")    \
    X(NO_PLACE_CHECK, "no-place-check", "a late request brings back a place that was left")        \
    X(NO_TOUCH, "no-touch", "passing .lock on changes no entry of a waiter")                       \
    X(OLD_KEYS, "old-keys",                                                                        \
      "an entry takes the keys of the one that had its id before for its own")                     \
    X(SHORT_DELAY, "short-delay", "lock_delay: a lost .lock is free at once")
#include "sim/wire_world/wire_world.h"

enum {
    AGENTS = 3,
    PAIRS = 128,
    OLD_PAIRS = 8192, /* that only an old leader still has */
    SESSIONS = 1024,
    DELAYS = 256,
    QUERIES = 128,
    KEY = 96,
    VALUE = 4 * (CONSUL_VALUE_MAX + 3) / 3 + 1 /* in base 64 */
};

struct kv_pair {
    char key[KEY], value[VALUE], session[CONSUL_SESSION_TEXT + 1];
    uint64_t flags, created, changed, lock_index;
    uint64_t to; /* of an old one: index of the change that ended it */
};

struct server_session {
    char id[CONSUL_SESSION_TEXT + 1];
    int64_t seconds, delay_ms;
    nanos ends_at;
};

/* A key that the lock-delay of a session keeps closed. */
struct closed_key {
    char key[KEY];
    nanos until;
};

/* A blocking query that waits. */
struct query {
    unsigned link;
    char key[KEY];
    bool recurse;
    uint64_t index;
    nanos ends_at;
};

/* An agent follows a leader that was replaced until `stale_until`, and sees what that one had. */
struct agent {
    nanos stale_since, stale_until;
    nanos slow_until; /* its replies come late until then */
    uint64_t index, deleted_at;
};

static struct {
    struct kv_pair pair[PAIRS], before[PAIRS]; /* `before`: a transaction that may fail */
    unsigned pairs;
    struct kv_pair old[OLD_PAIRS];
    unsigned olds;
    struct server_session session[SESSIONS];
    unsigned sessions;
    struct closed_key closed[DELAYS];
    unsigned closes;
    struct query query[QUERIES];
    unsigned queries;
    struct agent agent[AGENTS];
    uint64_t index;      /* of Raft */
    uint64_t deleted_at; /* index of the last deletion of a key of the lock */
    uint64_t last_session;
    nanos leaderless_until; /* no leader is elected until then */
    nanos doubtful_until;   /* writes end in an error until then, carried out or not */
    nanos free_until;       /* a .lock that went with its session may stay free until then */
    nanos native_until;     /* another program has .lock until then; 0: it has not */
    bool ends_early;        /* sessions end between one and two ttl; otherwise after two */
    bool delays;            /* the clients have lock_delay */
} store;

static nanos held_until[LINKS]; /* requests of a link wait for a leader until then */

static struct agent *agent_of(unsigned link)
{
    return &store.agent[links[link].host - 'a'];
}

static bool is_stale(const struct agent *agent)
{
    return agent->stale_until > w.now;
}
