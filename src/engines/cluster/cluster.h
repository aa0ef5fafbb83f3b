/* cluster.h - the engine for a Redis or Valkey Cluster: its own structs.
 *
 * A cluster has 16,384 slots; each key belongs to one, and each slot to one primary. This engine
 * keeps a map of slots, and a Redis engine (redis/cluster_member.h) for each primary. An op goes to
 * the primary that has the slot of its lock. That engine knows locks; this room knows slots.
 *
 *   cluster.c the door (engines/wire_engine.h): URL, ops, connection events, tick shards.c the
 *   primaries: their engines, redirects, ops that move slot_map.c reads a map of slots and says
 *   which shard has which slot map_query.c asks nodes for the map: when to ask, which node, and
 *   what to do if none answers cluster_survey.c list and diagnose: one request to every primary
 *
 * Policies:
 *
 * - A shard is a primary and its replicas, recognised by their ids. If a replica is promoted, the
 *   shard has another address, and its engine follows: holds are checked there, waiters ask again.
 * - Before the first map all slots belong to the first shard, which has no address yet: ops wait
 *   there, unsent, and move when the map has come.
 * - A redirect names the server that has the slot, and is believed at once. For MOVE_LIFE it counts
 *   more than a map, except a map of that server: nodes learn of a move one after the other.
 * - If a map names no owner for a slot, the slot stays with its last owner.
 * - A primary that is cut off says that the cluster is down, but its own map still names it as an
 *   owner. So after such a reply another node is asked first.
 * - Slots often move by the hundred, and redirects tell only of those that are used. REVIEW_AFTER
 *   the last redirect the map is asked for once more; then connections to primaries without slots
 *   are closed. */
#pragma once
#include "base/settings.h"
#include "base/url.h"
#include "core/timing.h"
#include "engines/kit/connection_numbers.h"
#include "engines/redis/cluster_member.h"
#include "engines/redis/resp.h"
#include "engines/wire_engine.h"

enum {
    CLUSTER_QUERIES = 2, /* number of connections that ask for the map: numbers 0 and 1 */
    CLUSTER_SHARDS_MAX = CLUSTER_SLOTS,
    CLUSTER_REPLICAS_MAX = 8,
    CLUSTER_MOVES_MAX = 64, /* number of redirects that are remembered */
    CLUSTER_NODE_ID = 40,   /* letters in the id of a node */
    CLUSTER_WHY_MAX = 700,
};
struct cluster;

/* A server: a primary or a replica. */
struct cluster_node {
    char host[256], port[8];
    char id[CLUSTER_NODE_ID + 1]; /* "": unknown */
};

struct cluster_shard {
    struct cluster *cluster;
    uint16_t index;
    int first;   /* number of the shard's first connection; -1: no op has come yet */
    void *redis; /* the shard's Redis engine; NULL: this place is unused */
    struct wire_engine_host host;
    struct cluster_node primary; /* address of the primary; host "": not known yet */
    char replica[CLUSTER_REPLICAS_MAX][CLUSTER_NODE_ID + 1];
    unsigned replicas;
    bool is_named; /* the shard is named by the newest map or a later redirect */
    /* the primary has a new address: shards_settle() makes the engine follow */
    bool has_moved;
    nanos lost_at; /* time since when the shard is down; 0: it is up, or no op needed it */
    nanos takes;   /* time that requests to the shard take */
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
    unsigned next;   /* number of nodes that were asked */
    nanos next_at;   /* time when the next node is asked */
    nanos again_at;  /* earliest time of the next search */
    uint32_t rounds; /* number of searches since all shards were last up */
    hf_status status;
    char why[CLUSTER_WHY_MAX]; /* errors of the nodes, in words */
};

/* A slot that a redirect gave to a shard. */
struct cluster_move {
    nanos at; /* time of the redirect; 0: unused */
    uint16_t slot, shard;
};

struct cluster_survey; /* requests to all primaries, cluster_survey.c */

struct cluster {
    const struct wire_engine_host *host;
    struct url url; /* URL for one server: user, password and database */
    struct settings settings;
    char scheme[24];
    const char *prefix; /* prefix of all keys; points into `settings` */
    bool polls;
    unsigned stride;                   /* number of connections of a shard */
    struct connection_numbers numbers; /* numbers of the connections of all shards */
    /* TLS files of all nodes; host and port are filled in for each dial */
    struct endpoint endpoint;
    char user[256], password[512];
    hf_status open_status; /* status of the last engine that could not be opened */
    nanos connect_timeout;
    nanos last_now; /* last `now` passed in; redirects have no time argument */

    bool is_mapped; /* a map has arrived */
    uint16_t owner[CLUSTER_SLOTS];
    struct cluster_shard **shard; /* indexed by shard; a used place is never moved */
    void **member;                /* engines of the shards, for redis_cluster_move_strays() */
    /* number of places that were ever used; number of allocated places */
    unsigned shards, shard_room;
    struct cluster_move move[CLUSTER_MOVES_MAX];
    unsigned next_move;

    struct cluster_node *node; /* known servers, those of the URL first */
    /* number of servers, of allocated places, and of servers in the URL; index of the server to ask
     * first
     */
    unsigned nodes, node_room, seeds, first;
    struct cluster_query query[CLUSTER_QUERIES];
    struct cluster_search search;
    /* a primary said that the cluster is down: perhaps that primary is cut off, so the next search
     * begins at another node */
    bool is_doubted;
    nanos review_at; /* time to ask for the map after redirects; TIME_NEVER: no redirect came */
    struct resp_command command; /* command that is being written */
    struct cluster_survey *surveys;
};

extern const struct wire_engine_type cluster_wire_engine;

/* ---- shards.c ---- */

bool cluster_node_is_at(const struct cluster_node *node, const char *host, const char *port);
/* Returns true if the last map named the node with that id as a replica of the shard. */
bool cluster_shard_has_replica(const struct cluster_shard *shard, const char *id);
/* Makes the first shard, which has no address yet. */
hf_status shards_open(struct cluster *c);
void shards_close(struct cluster *c);
/* Gives the shard numbers for its connections, because an op will come to it. */
void shards_need(struct cluster_shard *shard);
/* Returns the shard whose primary or replica has that id, or whose primary has that address. Makes
 * a shard if there is none. NULL: no room or no memory. */
struct cluster_shard *shards_find_or_make(struct cluster *c, const char *host, const char *port);
/* Opens an engine at an unused place. NULL: no room or no memory. */
struct cluster_shard *shards_make(struct cluster *c);
/* Returns the shard that an op goes to now. */
struct cluster_shard *shards_route(struct cluster *c, struct engine_op *op, nanos now);
/* After every event: follows primaries, moves ops, notes which shards are lost. */
void shards_settle(struct cluster *c, nanos now);
/* Moves the ops of every shard to the present owners of their slots, because some slots have
 * another owner. */
void shards_review(struct cluster *c);
/* Returns true if some shard is down and ops need it. */
bool shards_are_lost(const struct cluster *c);
uint32_t shards_slots_of(const struct cluster *c, const struct cluster_shard *shard);

/* ---- slot_map.c ---- */

/* Reads a node's reply to CLUSTER SLOTS. Returns NULL if it was valid; otherwise what is wrong
 * with it. */
const char *slot_map_read(struct cluster *c, const struct cluster_node *from,
                          const struct resp_reply *resp, nanos now);
/* Notes that a redirect gave that slot to a shard. */
void slot_map_moved(struct cluster *c, unsigned slot, const struct cluster_shard *to);

/* ---- map_query.c ---- */

void map_query_up(struct cluster *c, unsigned number, nanos now);
void map_query_bytes(struct cluster *c, unsigned number, const char *bytes, size_t len, nanos now);
void map_query_down(struct cluster *c, unsigned number, hf_status status, const char *why,
                    nanos now);
/* Begins, continues and ends searches. Returns when to call it again. */
nanos map_query_tick(struct cluster *c, nanos now);
/* Returns the connections that ask for the map. */
connection_set map_query_connections(const struct cluster *c);
/* Adds a node to those that are asked for the map. Without memory the node is left out. */
void map_query_add_node(struct cluster *c, const struct cluster_node *node);
/* Makes that node the first one to ask. */
void map_query_prefer(struct cluster *c, const char *host, const char *port);
void map_query_close(struct cluster *c);

/* ---- cluster_survey.c ---- */

/* Returns true if an op needs all primaries: a list of several names, or diagnose. */
bool survey_is_needed(const struct engine_op *op);
void survey_begin(struct cluster *c, struct engine_op *op, nanos now);
/* Drops the survey of an op. Returns false if the op is no survey. */
bool survey_forget(struct cluster *c, const struct engine_op *op);
/* Returns the survey that an op of a shard belongs to; NULL: none. */
struct cluster_survey *survey_of_part(const struct cluster *c, const struct engine_op *op);
void survey_on_reply(struct cluster_survey *survey, struct engine_op *part,
                     const struct engine_reply *reply);
void survey_on_row(struct cluster *c, struct cluster_survey *survey,
                   const struct cluster_shard *shard, const struct hf_row *row);
void survey_on_finding(struct cluster *c, const struct cluster_survey *survey,
                       const struct hf_finding *finding);
/* Returns true if a survey waits for the map. */
bool surveys_wait(const struct cluster *c);
/* Fails the surveys that wait for the map, because no map could be read. */
void surveys_fail(struct cluster *c, hf_status status, const char *why);
/* After every event: begins and ends surveys. */
void surveys_settle(struct cluster *c, nanos now);
void surveys_close(struct cluster *c);
