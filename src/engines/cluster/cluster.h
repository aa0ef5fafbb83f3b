/* cluster.h - the engine for a Redis or Valkey Cluster: its own structs.
 *
 * A cluster has 16,384 slots; each key belongs to one, and each slot to one primary. This engine
 * keeps a map of slots, and a Redis engine (redis/cluster_member.h) for each primary. An op goes to
 * the primary that has the slot of its lock. That engine knows locks; this room knows slots.
 *
 *   cluster.c         the door (engines/wire_engine.h): URL, ops, connection events, tick
 *   shards.c          the primaries: their engines, redirects, ops that move
 *   slot_map.c        reads a map of slots and says which shard has which
 *   map_query.c       asks nodes for the map: when, whom, and what if nobody answers
 *   cluster_survey.c  list and diagnose: one request to every primary
 *
 * Policies:
 *
 * - A shard is a primary and its replicas, recognised by their ids. If a replica is promoted, the
 *   shard has another address, and its engine follows: holds are checked there, waiters ask again.
 * - Before the first map all slots belong to the first shard, which has no address yet: ops wait
 *   there, unsent, and move when the map has come.
 * - A server that refuses a request names the one that has the slot. That is believed at once, and
 *   for MOVE_LIFE against every map of another node: nodes learn of a move one after the other.
 * - No map takes a slot away from everybody. If nobody has it, its last owner is asked. */
#pragma once
#include "base/settings.h"
#include "base/url.h"
#include "core/timing.h"
#include "engines/redis/cluster_member.h"
#include "engines/redis/resp.h"
#include "engines/wire_engine.h"

enum {
    CLUSTER_QUERIES = 2, /* connections that ask for the map */
    CLUSTER_QUERY_FIRST = WIRE_CONNECTIONS_MAX - CLUSTER_QUERIES,
    CLUSTER_SHARDS_MAX = CLUSTER_QUERY_FIRST,
    CLUSTER_NODES_MAX = 64, /* that are remembered to ask for the map */
    CLUSTER_REPLICAS_MAX = 8,
    CLUSTER_MOVES_MAX = 64, /* that are remembered */
    CLUSTER_NODE_ID = 40,   /* letters */
    CLUSTER_WHY_MAX = 700,
};
_Static_assert((int)CLUSTER_SHARDS_MAX <= (int)REDIS_CLUSTER_MEMBERS_MAX, "each has an index");

struct cluster;

/* A server: a primary or a replica. */
struct cluster_node {
    char host[256], port[8];
    char id[CLUSTER_NODE_ID + 1]; /* "": unknown */
};

struct cluster_shard {
    struct cluster *cluster;
    unsigned index;
    void *redis; /* NULL: this place is unused */
    struct wire_engine_host host;
    struct cluster_node primary; /* host "": not known yet */
    char replica[CLUSTER_REPLICAS_MAX][CLUSTER_NODE_ID + 1];
    unsigned replicas;
    bool is_named;  /* in the newest map, or by a redirect since */
    bool has_moved; /* its primary has another address: shards_settle() follows */
    nanos lost_at;  /* since when it is down; 0: it is up, or was not needed */
    nanos takes;    /* how long its requests take */
};

enum cluster_query_state { CLUSTER_QUERY_DOWN, CLUSTER_QUERY_DIALLING, CLUSTER_QUERY_UP };

/* A connection that asks one node for the map. */
struct cluster_query {
    unsigned number;
    enum cluster_query_state state;
    bool awaits_login; /* the next reply is that to AUTH */
    nanos since;
    struct cluster_node node;
    struct resp_reader *replies;
};

/* A search for the map. */
struct cluster_search {
    bool is_on, is_wanted;
    bool found;
    unsigned next;   /* how many nodes were asked */
    nanos next_at;   /* when the next one is asked */
    nanos again_at;  /* not before this time */
    uint32_t rounds; /* number of searches since all shards were up */
    hf_status status;
    char why[CLUSTER_WHY_MAX]; /* what the nodes said */
};

/* A slot that a redirect gave to a shard. */
struct cluster_move {
    nanos at; /* 0: unused */
    uint16_t slot;
    uint8_t shard;
};

struct cluster_survey; /* cluster_survey.c */

struct cluster {
    const struct wire_engine_host *host;
    struct url url; /* of one server: who logs in, which database */
    struct settings settings;
    char scheme[24];
    const char *prefix; /* of all keys: in `settings` */
    bool polls;
    unsigned stride;          /* connections of a shard */
    unsigned shards_most;     /* that there are numbers for */
    unsigned shards;          /* places in `shard` that were ever used */
    struct endpoint endpoint; /* TLS files of all nodes; host and port are filled in */
    char user[256], password[512];
    hf_status open_status; /* of the last engine that could not be opened */
    nanos connect_timeout;
    nanos last_now; /* last `now` passed in; redirects have no time argument */

    bool is_mapped; /* a map has come */
    uint8_t owner[CLUSTER_SLOTS];
    struct cluster_shard shard[CLUSTER_SHARDS_MAX];
    struct cluster_move move[CLUSTER_MOVES_MAX];
    unsigned next_move;

    struct cluster_node node[CLUSTER_NODES_MAX]; /* those of the URL first */
    unsigned nodes, seeds, first;                /* first: it is asked first */
    struct cluster_query query[CLUSTER_QUERIES];
    struct cluster_search search;
    struct resp_command command; /* that is being written */
    struct cluster_survey *surveys;
};

extern const struct wire_engine_type cluster_wire_engine;

/* ---- shards.c ---- */

hf_status shards_open(struct cluster *c); /* the first one, without an address */
void shards_close(struct cluster *c);
/* The shard whose primary is there, or was a replica of it; makes one if there is none. NULL: there
 * is no room or no memory. */
struct cluster_shard *shards_find_or_make(struct cluster *c, const char *host, const char *port);
/* A free place with an engine. NULL: as above. */
struct cluster_shard *shards_make(struct cluster *c);
/* The shard that gets the op now. */
struct cluster_shard *shards_route(struct cluster *c, struct engine_op *op, nanos now);
/* After every event: follows primaries, moves ops, notes which shards are lost. */
void shards_settle(struct cluster *c, nanos now);
/* Some slots have another owner: the ops of each shard are looked through. */
void shards_review(struct cluster *c);
bool shards_are_lost(const struct cluster *c); /* and ops need one of them */
uint32_t shards_slots_of(const struct cluster *c, const struct cluster_shard *shard);

/* ---- slot_map.c ---- */

/* Reads the reply of a node to CLUSTER SLOTS. NULL: done; otherwise what is wrong with it. */
const char *slot_map_read(struct cluster *c, const struct cluster_node *from,
                          const struct resp_reply *resp, nanos now);
/* A redirect gave that slot to a shard. */
void slot_map_moved(struct cluster *c, unsigned slot, const struct cluster_shard *to);

/* ---- map_query.c ---- */

void map_query_up(struct cluster *c, unsigned number, nanos now);
void map_query_bytes(struct cluster *c, unsigned number, const char *bytes, size_t len, nanos now);
void map_query_down(struct cluster *c, unsigned number, hf_status status, const char *why,
                    nanos now);
/* Begins, continues and ends searches. Returns when to call it again. */
nanos map_query_tick(struct cluster *c, nanos now);
/* Connections that ask. */
uint32_t map_query_connections(const struct cluster *c);
/* That node is asked first from now on. */
void map_query_prefer(struct cluster *c, const char *host, const char *port);
void map_query_close(struct cluster *c);

/* ---- cluster_survey.c ---- */

/* Whether an op asks all primaries: a list of several names, or diagnose. */
bool survey_is_needed(const struct engine_op *op);
void survey_begin(struct cluster *c, struct engine_op *op, nanos now);
/* Returns false if the op is no survey. */
bool survey_forget(struct cluster *c, const struct engine_op *op);
/* The survey that an op of a shard is part of; NULL: none. */
struct cluster_survey *survey_of_part(const struct cluster *c, const struct engine_op *op);
void survey_on_reply(struct cluster_survey *survey, struct engine_op *part,
                     const struct engine_reply *reply);
void survey_on_row(struct cluster *c, struct cluster_survey *survey,
                   const struct cluster_shard *shard, const struct hf_row *row);
void survey_on_finding(struct cluster *c, const struct cluster_survey *survey,
                       const struct hf_finding *finding);
bool surveys_wait(const struct cluster *c); /* for the map */
/* No map could be had: those that wait for it fail. */
void surveys_fail(struct cluster *c, hf_status status, const char *why);
/* After every event: begins and ends surveys. */
void surveys_settle(struct cluster *c, nanos now);
void surveys_close(struct cluster *c);
