/* sentinel.h - the engine for a Redis or Valkey server that sentinels watch: its own structs.
 *
 * Sentinels are processes that watch one primary and its replicas. When the primary dies, they
 * agree on a replica that takes its place. This engine asks them which server is the primary,
 * listens to what they announce, and tells the Redis engine inside it (redis/followed_server.h)
 * which server to follow. Ops go straight to that engine, which knows locks; this room knows
 * sentinels.
 *
 *   sentinel.c         the door (engines/wire_engine.h): URL, ops, connection events, tick
 *   sentinel_query.c   asks a sentinel for the primary, one question a connection
 *   sentinel_listen.c  subscriptions: what the sentinels announce
 *   primary.c          decides which server is the primary, and when to ask again
 *
 * Policies:
 *
 * - The first answer is believed, because the greeting verifies the role. After that an answer
 *   counts only if its epoch is higher than that of the present primary. Every failover has a
 *   higher epoch; a sentinel that was cut off still names the old primary with the old epoch.
 * - The announcement of a failover only makes this engine ask, because an announcement has no
 *   epoch: a late one may be about a failover that a later failover has undone.
 * - From the choice of a new primary until its announcement, or for 3 s, requests for new locks are
 *   held back: the new primary may never learn of a lock that the old primary grants now.
 * - If no sentinel answers, the server that was named last is followed. While the primary works, no
 *   sentinel is needed. */
#pragma once
#include "core/timing.h"
#include "engines/redis/followed_server.h"
#include "engines/redis/resp.h"
#include "engines/wire_engine.h"

enum {
    SENTINELS_MAX = 7,
    SENTINEL_NAME_MAX = 128, /* bytes of the name of the primary */
    SENTINEL_WHY_MAX = 300,
};

enum sentinel_setting_id {
#define SETTING SETTING_INDEX
#define SETTING_TEXT SETTING_INDEX
#include "sentinel_settings.def"
#undef SETTING
#undef SETTING_TEXT
};

/* UP: connected. A connection for queries is DOWN again after its answer. */
enum sentinel_connection_state { SENTINEL_DOWN, SENTINEL_DIALLING, SENTINEL_UP };

/* The question that the next replies on a connection answer. */
enum sentinel_request {
    SENTINEL_REQ_AUTH,
    SENTINEL_REQ_MASTER, /* SENTINEL MASTER name */
    /* SENTINEL GET-MASTER-ADDR-BY-NAME name, for users without the right to SENTINEL MASTER */
    SENTINEL_REQ_ADDRESS,
    /* SENTINEL MASTERS: the names that the sentinel knows; asked because it does not know ours */
    SENTINEL_REQ_NAMES,
    SENTINEL_REQ_EVENTS, /* messages of the subscription */
};

struct sentinel_connection {
    unsigned number;
    enum sentinel_connection_state state;
    enum sentinel_request next; /* kind of the next reply */
    nanos since;                /* time when the dial began, or when the last bytes arrived */
    nanos dial_at;              /* DOWN: earliest time of the next dial */
    nanos ping_at;              /* subscribed: time of the next PING; 0: a PING is in flight */
    uint32_t failures;          /* number of failed dials in a row */
    struct resp_reader *replies;
};

struct sentinel_node {
    struct endpoint address;
    char where[ENDPOINT_TEXT_MAX];
    struct sentinel_connection query, listen;
    bool is_queried;  /* was asked in this search */
    hf_status status; /* status of its last answer; HF_UNAVAILABLE before the first */
    char why[SENTINEL_WHY_MAX];
};

/* A server that a sentinel named. */
struct sentinel_answer {
    char host[256], port[8];
    uint64_t epoch; /* epoch of the failover; 0: unknown */
};

/* A search for the primary. */
struct sentinel_search {
    bool is_on;
    bool is_wanted;  /* another search follows at once */
    bool found;      /* a sentinel named the primary */
    nanos next_at;   /* time when the next sentinel is asked */
    unsigned next;   /* index of that sentinel, counted from `first` */
    nanos again_at;  /* earliest time of the next search */
    uint32_t rounds; /* number of searches since the primary was last up */
};

struct sentinel {
    const struct wire_engine_host *host;
    void *redis;
    char scheme[24];
    char name[SENTINEL_NAME_MAX + 1]; /* name of the primary at the sentinels */
    char user[256], password[512];    /* login at the sentinels */
    struct endpoint primary;          /* the present primary; host "": none yet */
    uint64_t epoch;                   /* epoch of the answer that named the primary */
    nanos epoch_at;                   /* time when a sentinel last confirmed the primary */
    nanos listen_from;                /* time when to subscribe; 0: before the first op */
    nanos lost_at;                    /* time since when the primary is down; 0: it is up */
    nanos connect_timeout;
    struct sentinel_search search;
    struct resp_command command; /* command that is being written */
    /* index of the sentinel that answered last, which is asked first next time */
    unsigned first;
    unsigned nodes;
    struct sentinel_node node[SENTINELS_MAX];
};

extern const struct wire_engine_type sentinel_wire_engine;

/* ---- sentinel.c ---- */

/* Dials, unless the connection is open or dial_at is in the future. */
void sentinel_connection_dial(struct sentinel *s, struct sentinel_node *node,
                              struct sentinel_connection *connection, nanos now);
/* Sends s->command. Returns false if the connection failed. */
bool sentinel_connection_send(struct sentinel *s, struct sentinel_connection *connection);
/* Sends AUTH if there is a user or a password. */
bool sentinel_connection_log_in(struct sentinel *s, struct sentinel_connection *connection);
void sentinel_connection_close(struct sentinel *s, struct sentinel_connection *connection);
/* Closes the connection after a failure: the next dial comes after a pause. */
void sentinel_connection_fail(struct sentinel *s, struct sentinel_connection *connection,
                              nanos now);

/* ---- sentinel_query.c ---- */

void sentinel_query_up(struct sentinel *s, struct sentinel_node *node, nanos now);
void sentinel_query_reply(struct sentinel *s, struct sentinel_node *node,
                          const struct resp_reply *resp, nanos now);
/* Handles the failure of a query. Adds the sentinel's name to `why`. */
void sentinel_query_failed(struct sentinel *s, struct sentinel_node *node, hf_status status,
                           const char *why, nanos now);
nanos sentinel_query_tick(struct sentinel *s, struct sentinel_node *node, nanos now);

/* ---- sentinel_listen.c ---- */

void sentinel_listen_up(struct sentinel *s, struct sentinel_node *node, nanos now);
void sentinel_listen_reply(struct sentinel *s, struct sentinel_node *node,
                           const struct resp_reply *resp, nanos now);
nanos sentinel_listen_tick(struct sentinel *s, struct sentinel_node *node, nanos now);

/* ---- primary.c ---- */

/* Handles the answer of a sentinel to a query. */
void primary_on_answer(struct sentinel *s, const struct sentinel_answer *answer, nanos now);
/* Handles the announcement that the server at host:port is the primary now. */
void primary_on_switch(struct sentinel *s, const char *host, const char *port, nanos now);
/* Handles the announcement that a failover has chosen the new primary, or has been given up. */
void primary_on_choice(struct sentinel *s, bool is_chosen, nanos now);
/* Asks all sentinels, at once or when the pause is over. */
void primary_query_all(struct sentinel *s, nanos now);
/* After every event: begins, continues and ends searches. Returns when to call it again. */
nanos primary_tick(struct sentinel *s, nanos now);
