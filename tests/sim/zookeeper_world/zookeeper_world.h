/* zookeeper_world.h - what the world of a ZooKeeper ensemble has besides sim/wire_world: planted
 * bugs, and the structs of the servers. Included once, by sim/zookeeper_sim.c, as are the other
 * headers here. */
#pragma once
#include "engines/zookeeper/zookeeper.h"

#define WORLD_ENGINE zookeeper_wire_engine
#define WORLD_LIMITS ZOOKEEPER_LIMITS
#define WORLD_CONNECTIONS 64
#define WORLD_TTL_MAX_MS 3000
#define WORLD_COUNTS(X)                                                                            \
    X(lags, "servers held up")                                                                     \
    X(cutoffs, "followers cut off")                                                                \
    X(deposed, "leaders cut off")                                                                  \
    X(elections, "elections")                                                                      \
    X(restarts, "servers restarted")                                                               \
    X(collected, "containers collected")                                                           \
    X(expired, "sessions expired")                                                                 \
    X(moved, "requests of sessions that had moved")                                                \
    X(stale_pings, "pings answered by a server that was cut off")                                  \
    X(wraps, "sequences that wrapped")

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(TRUST_PINGS, "trust-pings", "an answered ping proves the session")                           \
    X(TRUST_READS, "trust-reads", "any answered request proves the session")                       \
    X(TRUST_SENT, "trust-sent", "a belief counts from a request that was not answered")            \
    X(TRUST_WRITES, "trust-writes", "a belief counts from the write that was answered")            \
    X(TRUST_GREETING, "trust-greeting", "a greeting proves the session, without a write")          \
    X(REPLY_TIME, "reply-time", "a belief counts from the reply")                                  \
    X(ORPHAN, "orphan", "a lost create is not looked for")                                         \
    X(NO_SYNC, "no-sync", "a lost create is looked for in an old list")                            \
    X(NOT_MOVED, "not-moved", "a lost create may arrive after its session moved")                  \
    X(EARLY_WATCH, "early-watch", "a place that is gone when it is watched is not noticed")        \
    X(LOST_WATCH, "lost-watch", "watches of an old connection are not set again")                  \
    X(SEQUENCE_WRAP, "sequence-wrap", "numbers of places are compared as they are")                \
    X(NUMBER_TOKEN, "number-token", "the token is the number of the place")
#include "sim/wire_world/wire_world.h"

enum {
    MEMBERS = 3,
    NODES = 1024, /* with those that only a server which lags behind still has */
    CHANGES = 16384,
    SESSIONS = 512,
    PATH = 160,
    QUEUE = 64,
    WATCHES = 64,
    PASSWORD = 16,
    REPLY = 300
};

/* One state of a node, as of the transactions from `from` until before `to`. */
struct node {
    char path[PATH], data[ZK_DATA_MAX];
    size_t len;
    int64_t created, from, to; /* to: INT64_MAX while it lasts */
    int64_t owner;             /* session; 0: it is not ephemeral */
    int32_t next_number;       /* for its next sequential child */
};

/* What a transaction did to a path. */
struct change {
    int64_t zxid;
    enum zk_event_type type; /* ZK_EVENT_SESSION: a session has ended */
    int64_t session;
    char path[PATH];
};

struct zk_server_session {
    int64_t id;
    int32_t timeout_ms, first_timeout_ms; /* a new leader knows the first one */
    nanos ends_at;                        /* the leader's timer */
    unsigned owner;                       /* link that the session was taken up on last */
    int64_t greets_at; /* a new one: transaction that makes it; 0: its client was greeted */
};

/* A request that its link's server has read and not answered. */
struct request {
    uint64_t number;
    int32_t xid, code;
    bool is_write, watches;
    char path[PATH];
    int64_t zxid;      /* write: its transaction; 0: the leader has not decided yet */
    char reply[REPLY]; /* write: the frame of its reply */
    size_t reply_len;
};

struct watch {
    bool of_children;
    char path[PATH];
};

/* What a server knows of a link. */
struct served {
    unsigned member;
    int64_t session; /* 0: it was not greeted */
    bool is_over;    /* the server has closed it */
    bool has_ended;  /* its session has: the server closes it */
    nanos closed_at; /* when its client closed it; 0: it is open */
    uint64_t numbers;
    struct request queue[QUEUE];
    unsigned first, count;
    struct watch watch[WATCHES];
    unsigned watches;
};

struct member {
    int64_t applied; /* zxid up to which it has carried out what was decided */
    uint64_t change; /* number of the next change that it carries out */
    uint64_t epoch;  /* messages of earlier epochs are lost */
    struct stream to_leader, from_leader;
    nanos to_held, from_held; /* until then messages to and from the leader are held up */
    bool is_cut;
    bool led;            /* it was the leader when it was cut off */
    int64_t sessions_at; /* highest id of a session at that time */
    int64_t touched[SESSIONS];
    unsigned touches;
};

static struct {
    struct node node[NODES];
    unsigned nodes;
    struct change change[CHANGES]; /* a ring */
    uint64_t changes;
    struct zk_server_session session[SESSIONS];
    unsigned sessions;
    int64_t last_session, zxid;
    nanos commits_at; /* when the last transaction that was decided is on enough disks */
    struct member member[MEMBERS];
    unsigned leader;
    bool has_leader;
    int64_t tick_ms;
    bool pings_wait; /* pings are answered behind writes */
} store;

static struct served *served[LINKS]; /* made when first used, and kept for other schedules */
static unsigned live[LINKS], lives;  /* links that a server has open */
