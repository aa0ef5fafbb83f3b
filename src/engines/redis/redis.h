/* redis.h - the engine for one Redis or Valkey server: its own structs.
 *
 * Entry points, in the order in which they run:
 *
 *   redis.c             the door (engines/wire_engine.h): reads the URL; submit, connection
 *                       events, tick
 *   active_ops.c        finds or makes the struct of an op
 *   command_encode.c    turns an op into a command; key_cache.c writes the beginning of it
 *   redis_connection.c  one connection, from dialling to its end, with the requests in flight on it
 *   redis_greeting.c    its greeting; library_load.c: loads what runs inside the server
 *   reply_decode.c      turns a reply of the server into a reply to the client
 *   notifications.c     receives the messages of handoffs; redis_polls.c polls (wake=poll)
 *   presence.c          proves to the server that this client lives while it waits
 *   wait_replicas.c     grants that replicas must acknowledge
 *   followed_server.c   another server takes the place of this one (engines/sentinel);
 *                       recent_releases.c: releases that are repeated there
 *   cluster_member.c    one primary of a cluster (engines/cluster): redirects, ops that move;
 *                       lock_channels.c: the channel of each lock that is waited for there
 *   redis_admin.c       list, break, resize; redis_diagnose.c: findings about the server;
 *                       redis_library.c: installs and prunes libraries
 *
 * keys.c, resp.c, error_replies.def and acl.c know formats; scripts/ runs inside the server. No
 * I/O and no clock here: bytes and time go in, bytes and replies come out.
 *
 * Policies:
 *
 * - The grant is state, the message is only a notification. A release makes the next waiter the
 *   holder, with token and end, inside the server, and then notifies it. If the message is lost,
 *   the record is still there: every waiter also polls, the first in the queue often, those
 *   behind it rarely.
 * - A hold begins at a request that we timed ourselves (notifications.c).
 * - Nothing shortens a hold, and nothing revives one. Every extend sets the later end. A handoff
 *   lasts until the waiter's own next poll plus a grace, so that a lost message costs time and
 *   never the turn. A poll is granted for no longer, because its sender may have died since. The
 *   first extend after such a grant (engine_reply.brief) gets the rest of the ttl.
 * - Every verb ends with admit(): none may leave a waiter that is first and fits. Verbs that
 *   keep a plain lock held, or hand it to the next waiter for the same, know that nobody else
 *   fits, and leave admit() out.
 * - An unknown outcome leaves a tombstone. If a request of an attempt was never answered and the
 *   attempt ends, its release makes the server refuse that attempt id for a minute. So a request
 *   that is still in flight has no effect.
 * - Tokens are max(last + 1, server time in microseconds). They rise through FLUSHALL, restarts
 *   and stale failovers without a key that lives for ever. The counter stays until an hour after
 *   the time that its number names.
 * - What runs inside the server is one Lua library, called by FCALL. A server that offers no
 *   functions runs the same text by EVALSHA (library_load.c decides in the greeting).
 * - A plain exclusive lock is the string that other programs use (SET NX PX), so they and
 *   Holdfast exclude each other. Everything else (other kinds, owners that enter again) is a hash
 *   under the same key.
 * - Replies are matched to requests by their order alone. So a reply that makes no sense ends the
 *   connection, and every op in flight on it gets an unknown outcome. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "cluster_member.h"
#include "core/rtt.h"
#include "core/timing.h"
#include "engines/kit/op_table.h"
#include "engines/kit/pipeline.h"
#include "engines/kit/poll_schedule.h"
#include "engines/kit/redial.h"
#include "engines/wire_engine.h"
#include "followed_server.h"
#include "key_slot.h"
#include "keys.h"
#include "quorum_member.h"
#include "resp.h"
#include "scripts.h"

/* CONNECTION_DURABLE carries only writes that replicas must acknowledge: WAIT covers the writes
 * of its own connection. */
enum { CONNECTION_COMMANDS, CONNECTION_NOTIFY, CONNECTION_DURABLE, CONNECTIONS };
_Static_assert((int)CONNECTIONS == (int)REDIS_CONNECTIONS, "engines above number them");

struct redis;
struct redis_op;

enum redis_setting_id {
#define SETTING SETTING_INDEX
#define SETTING_TEXT SETTING_INDEX
#include "redis_settings.def"
#undef SETTING
#undef SETTING_TEXT
};

enum { REDIS_ACL_MAX = 3 * REDIS_PREFIX_MAX + 24 };

/* ---- redis_connection.c ---- */

enum request_kind {
    REQ_VERB,      /* a verb of the library, for an op */
    REQ_STEP,      /* a step of an admin op: redis_admin.c, redis_diagnose.c, redis_library.c */
    REQ_POP,       /* BLMPOP: takes messages from the inbox */
    REQ_LISTEN,    /* SUBSCRIBE; or PING, which tests the subscription */
    REQ_WAIT,      /* WAIT or WAITAOF: wait_replicas.c */
    REQ_TAKE_BACK, /* revokes a grant that too few replicas acknowledged */
    REQ_UNDO,      /* releases a hold of an unknown id; no op waits for the reply */
    REQ_ASKING,    /* ASKING: opens a slot that is being moved here to the next request */
    REQ_PRESENCE,  /* renews the presence key (presence.c); no op waits for the reply */
    REQ_AUTH,      /* this kind and the next ones belong to the greeting */
    REQ_SELECT,
    REQ_SETNAME,
    REQ_INFO,
    REQ_KNOWN,   /* SCRIPT EXISTS: asks which scripts the server has */
    REQ_LIBRARY, /* loads the library */
    REQ_LOAD,    /* loads a script that the server lacks */
    REQ_RIGHTS,  /* asks which rights the user lacks */
};

/* A request in flight. */
struct request {
    union {
        struct flight flight;
        struct {
            nanos sent_at, patience;
        };
    };
    enum request_kind kind;
    uint8_t verb; /* enum op_verb; REQ_STEP: enum admin_verb */
    /* REQ_VERB: number of requests behind this one that were sent in the same call; their replies
     * come in one list */
    uint8_t joined;
    struct redis_op *op; /* NULL: no op waits for the reply, or the op is gone */
    int64_t ttl_ms;      /* ttl that the request asks for */
    bool measures; /* the request measures the round trip, because no other was in flight when it
                      was sent */
    /* a bare SET, or a call with fewer keys than the verb has: if its reply is nil, the full verb
     * follows */
    bool plain;
    bool by_scripts; /* REQ_RIGHTS: it was sent as EVALSHA */
    bool raises;     /* REQ_VERB: asks for a higher token for a grant */
    /* REQ_STEP of a list: index of the name it inspects, and the first waiter to show */
    size_t name_index, from;
};

enum connection_state { CONNECTION_DOWN, CONNECTION_DIALLING, CONNECTION_GREETING, CONNECTION_UP };

struct redis_connection {
    unsigned number;
    enum connection_state state;
    nanos since; /* DIALLING, GREETING: time when that began */
    struct redial redial;
    uint32_t ups; /* number of times the connection came up */
    struct resp_reader *replies;
    struct pipeline queue; /* struct requests in flight, answered in the order of sending */
    char run_id[41];       /* id of the server's process; "": not known */
    uint32_t unclaimed;    /* number of requests in the queue that no op waits for */
    uint32_t loads;        /* number of REQ_LIBRARY and REQ_LOAD in the queue */
    uint32_t in_vain;      /* number of loads since the server last ran a verb */
    uint32_t checks;       /* number of REQ_RIGHTS in the queue */
    struct rtt rtt;        /* round trip of this connection */
    /* the connection was dropped because no reply arrived in time, and none has arrived since */
    bool timed_out;
    hf_status last_status;
    char why[800]; /* DOWN: the reason */
};

/* ---- The engine ---- */

/* The newest QUEUED reply: the times in the message of a handoff are compared with it. */
struct queued_reply {
    bool set;
    nanos asked_at, due; /* time when the request was sent; time of the next poll */
    int64_t at;          /* the server's clock then, in microseconds */
    int64_t number;      /* the lock's token counter then */
};

/* A message of a handoff. */
struct notification {
    bool set;
    int64_t token, till, at; /* till, at: end of the hold and time of the message, server's clock */
};

/* presence.c */
struct presence {
    bool in_use;    /* some op waits in a queue */
    bool is_set;    /* the server has its key, as far as is known */
    bool in_flight; /* a renewal is in flight */
    /* time of the last request that proved to the server that this client lives */
    nanos proved_at;
    nanos renew_at;
    bool has_ended; /* in a cluster: a sign of life came so late that waiters may count as dead */
    struct redis_op *first[64]; /* while polls are due: the first local waiter of each lock, by a
                                   hash of its name */
};

/* followed_server.c */
struct follow {
    bool is_on;
    bool is_known; /* the server to follow is known */
    bool has_lost; /* a connection was lost or refused since redis_follow_take_loss() */
    /* time until which ops stay unsent while no server is up; 0: one is up */
    nanos patience_until;
    /* time until which requests for new locks are held back; 0: they are sent at once */
    nanos hold_back_until;
    /* connections that will tell which server to follow */
    connection_set seek_connections;
};

/* recent_releases.c */
struct recent_releases {
    char *bytes; /* struct recent_release, each followed by its name, oldest first; NULL: none */
    size_t len;
    nanos newest_at;
    uint8_t server_number; /* number of the server on which releases were repeated last; 0: none */
};

/* lock_channels.c */
struct lock_channel;
struct lock_channels {
    struct lock_channel **bucket;
    uint32_t buckets, count; /* buckets: a power of two, 0 before the first channel */
    uint64_t last_id;
    bool has_new;   /* some channels await the connection */
    nanos sweep_at; /* time when unused channels are given up */
};

/* cluster_member.c */
struct cluster_membership {
    bool is_on;
    struct redis_cluster_place place;
    unsigned probe_slot; /* a slot of this server */
    uint32_t strays;     /* number of ops that must move to another server */
    /* earliest time to send a request again that the server could not take */
    nanos resend_at;
};

struct redis_admin;  /* redis_admin.c */
struct library_care; /* redis_library.c */

/* What the engine keeps of an op from its first submit until forget(): small, because each hold has
 * one. */
struct resting_op {
    struct known_op known; /* known.active is a struct redis_op */
    /* this field and those below have the same meaning as in redis_op; they are kept while the op
     * rests */
    nanos acknowledged;
    uint32_t first_ttl_ms;
    bool sent : 1, cut : 1;
    uint8_t confirmed_by;
    uint16_t home; /* index of this server in its cluster */
};
_Static_assert(sizeof(struct resting_op) == 40, "a hold costs no more here");

/* An op that is in flight or waits. */
struct redis_op {
    struct redis_op *next, *prev;  /* list redis.ops; `next` also links redis.unused */
    struct redis_op *next_replied; /* list redis.replied */
    struct redis_op *next_first;   /* chain in presence.first */
    struct resting_op *resting;
    struct engine_op *op; /* the client's op; the engine writes only its `connections` */
    bool replied;         /* true while it is in the list redis.replied */
    bool unsent;          /* op->verb waits for the connection to come up */
    bool sent;            /* some request went out for it */
    bool cut;             /* an ACQUIRE that went out was never answered, and may still arrive */
    uint8_t confirmed_by; /* server_number of the last reply that said that the op holds; 0: none */
    bool queued;          /* the server put the op into the queue */
    bool released;        /* the first part of a long release has released it already */
    bool listens;         /* wants to be notified when its lock is free (quorum) */
    bool unheard;         /* listens, and the server has not confirmed the subscription yet */
    bool needs_all_keys;  /* an extend with one key was not enough */
    /* its slot is being moved to the server that gets the next request, so ASKING goes first */
    bool asking;
    bool vouches;      /* its polls are the sign of life of all waiters for its lock here */
    uint8_t redirects; /* number of times in a row that a server named another one */
    /* number of times in a row that the server could not take the op's request for the moment */
    uint8_t refusals;
    uint16_t stray_to; /* index + 1 of the server that the op must move to; 0: none */
    nanos refused_at;  /* time of the first of these `refusals`; 0: none */
    nanos resend_at;   /* unsent: earliest time to send it; 0: at once */
    /* channel on which the op is notified, in a cluster; NULL: none */
    struct lock_channel *channel;
    uint32_t in_flight[CONNECTIONS]; /* number of requests in flight */
    uint32_t acquiring;              /* number of ACQUIREs in flight */
    int64_t
        first_ttl_ms; /* ttl that sets op_timeout; an extend with another ttl does not change it */
    uint64_t
        /* a grant must exceed this token, the highest of this client at the request; 0: any */
        floor;
    struct queued_reply queued_reply;
    struct notification notification;
    struct poll_waiter poll_waiter; /* wake=poll: its place in the schedule */
    bool notified;                  /* the op was notified to poll, and has not asked since */
    /* the op was granted, and its next request says that the client knows */
    bool knows_grant;
    /* joint_acquire.c */
    bool is_ahead;          /* the op was sent before the client submits it */
    bool has_reply;         /* is_ahead: held_back is the reply for when the client submits it */
    uint8_t kept_by;        /* has_reply: server_number of the server that replied */
    bool is_joined;         /* until the op is sent: joined or joins is valid */
    int64_t arrival_number; /* its number in the server's queue; 0: not queued */
    struct redis_admin *admin;
    struct library_care *care;
    unsigned diagnose_replies; /* ADMIN_DIAGNOSE: number of replies so far */
    unsigned diagnose_lacks;   /* bits of the steps that the server refused */
    bool left_unacknowledged;  /* its LEAVE was sent while a grant awaited replicas */
    bool awaits_replicas;      /* held_back awaits the reply to the WAIT in flight */
    enum op_verb held_verb;    /* the verb that held_back answers */
    hf_status lack;            /* status to report once the revoke of a grant is answered */
    char *lack_text;           /* the text to report with it */
    nanos acknowledged; /* end of the hold as replicas acknowledged it; 0: they were not asked */

    /* The fields below are not cleared when the struct is used for another op. */
    char id[REDIS_ID_TEXT + 1];
    /* is_joined: the op that is sent in one call with this one, and the op before it; or NULL */
    struct redis_op *joined, *joins;
    struct engine_op
        sent_op; /* copy of *op at the last submit: the client changes *op at any time */
    /* reported when enough replicas have acknowledged it, or when the client submits the op */
    struct engine_reply held_back;
};

/* What the terms of an ACQUIRE are made of. The terms are all its words behind the id. Settings are
 * part of them, too. */
struct terms {
    int64_t ttl_ms, first_ttl_ms;
    uint64_t round, token, flags;
    int64_t arrival_number;
    uint32_t units, capacity;
};
_Static_assert(sizeof(struct terms) == 56, "no gaps: compared as a whole");

/* The terms that were written last, in wire format. */
struct form {
    struct terms terms;
    size_t len; /* length; 0: none yet */
    char bytes[1024];
};

/* The keys of one lock in wire format: key_cache.c. */
struct cached_keys {
    struct resp_command words; /* the keys; empty: this struct is unused */
    size_t lock_len;           /* length of the first word, the key of the lock */
    size_t name_at, name_len;  /* offset and length of the lock's name in `words` */
    /* length of the first two words: the keys of the lock and of its counter */
    size_t two_len;
};

/* A name that is in the server's index for certain, until `until`. */
struct listed_name {
    uint64_t hash;
    nanos until;
};
#define LISTED_FOR NANOS_OF_MS(1800000) /* half of the time for which a counter is kept */

enum { CACHED_KEYS = 128, LISTED_NAMES = 1024, REDIS_WAITERS_MAX = 100000 };

struct redis {
    const struct wire_engine_host *host;
    struct endpoint address;
    char where[ENDPOINT_TEXT_MAX]; /* "host:port", for messages */
    char user[256], password[512];
    int64_t db;
    char client_name[128]; /* ends with "/" and the name of our library (redis_library.c) */
    char prefix[REDIS_PREFIX_MAX + 1];
    /* letter for how waiters are notified, and name of the inbox */
    char box[REDIS_PREFIX_MAX + 64];
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos connect_timeout;
    int64_t history, history_age_ms;
    /* number of replicas that must acknowledge a grant, and the time for that */
    int64_t replicas, replica_timeout_ms;
    bool synced;                  /* replicas and server must have written grants to their files */
    bool durable;                 /* `replicas` or `synced` is set */
    bool waits;                   /* a WAIT is in flight */
    uint64_t round;               /* number of grants revoked so far: wait_replicas.c */
    char self[REDIS_ID_TEXT + 1]; /* random id of this client */
    char about[160];              /* " pid host ": the middle of meta */
    struct reply_holder hold_ahead;        /* holder in the reply that is being decoded */
    char holder_words[HF_LABEL_MAX + 128]; /* hold_ahead as text, for a quorum */
    size_t about_len;
    uint64_t highest; /* highest token that this client was ever given */
    char run_id[41];  /* process of the server that answered last; "": unknown */
    /* number of that process among those seen: 1 to 255, then again from 1 */
    uint8_t server_number;
    char lacking[REDIS_ACL_MAX]; /* rights that the user is known to lack; "": none */
    bool by_scripts;             /* verbs are called by EVALSHA; otherwise by FCALL */
    bool has_loaded;             /* this client loaded the library, in its last greeting */
    char no_functions[200];      /* by_scripts: the reason, in the server's words */
    struct timing timing;        /* sheet for timing_ttl_ms, cached by redis_op_timing() */
    int64_t timing_ttl_ms;
    char pace[128];         /* `timing` as the last seven words of acquire.lua's last argument */
    struct resp_words past; /* history and history_age_ms in wire format */
    struct form form;
    struct cached_keys cached[CACHED_KEYS];
    struct listed_name listed[LISTED_NAMES]; /* indexed by hash: key_cache.c */

    struct redis_connection connection[CONNECTIONS];
    struct resp_command command; /* the command that is being written */
    struct redis_op *ops, *unused;
    uint32_t unused_count;
    struct redis_op *replied;
    struct op_table known_ops; /* a struct resting_op for each op */
    struct poll_schedule polls;
    uint32_t queued; /* number of ops in the server's queues */
    struct presence presence;
    bool is_quorum_member; /* true: a member of a quorum, see quorum_member.h */
    struct follow follow;
    struct recent_releases recent;
    struct cluster_membership cluster;
    struct lock_channels channels;
    uint32_t listeners; /* number of ops that listen */
    nanos up_since;     /* when the server was started, on our clock; TIME_NEVER: unknown */
    bool subscribed;
    nanos listened_at; /* subscribed: when the subscription last proved to work */
    nanos last_now;    /* last `now` passed in; needed because forget() has no time argument */
};

/* ---- redis_connection.c ---- */

/* Returns the request whose reply comes next; NULL: none. */
static inline struct request *redis_connection_first(const struct redis_connection *connection)
{
    return connection->queue.count ? pipeline_at(&connection->queue, 0) : NULL;
}

/* Dials the connection if it is down. Returns false if it cannot be dialled now; connection->why
 * says why. */
bool redis_connection_need(struct redis *r, struct redis_connection *connection, nanos now);
/* Dials a connection whose state is CONNECTION_DIALLING. */
void redis_connection_dial(struct redis *r, struct redis_connection *connection, nanos now);
/* Sends r->command and adds the request to the queue. Returns false if the connection broke. */
bool redis_connection_send(struct redis *r, struct redis_connection *connection,
                           struct request request, nanos now);
/* Adds a request that was sent in the same call as the one before. Returns false if the connection
 * broke. */
bool redis_connection_join(struct redis *r, struct redis_connection *connection,
                           struct request request, nanos now);
/* Closes a connection that cannot be used any more, and replies to all ops in flight on it. */
__attribute__((format(printf, 5, 6))) void
redis_connection_drop(struct redis *r, struct redis_connection *connection, hf_status status,
                      nanos now, const char *format, ...);
void redis_connection_down(struct redis *r, struct redis_connection *connection, hf_status status,
                           const char *why, nanos now);
void redis_connection_bytes(struct redis *r, struct redis_connection *connection, const char *bytes,
                            size_t len, nanos now);
nanos redis_connection_tick(struct redis *r, struct redis_connection *connection, nanos now);
/* Returns what may be wrong with a dial that takes too long, or "". */
const char *redis_connection_advice(const struct redis *r,
                                    const struct redis_connection *connection);
/* Returns true if no reply has arrived for much longer than earlier replies took. */
bool redis_connection_is_hung(const struct redis_connection *connection, nanos now);
/* Makes all waiters ask again. */
void redis_connection_notify_all(struct redis *r);
/* The op is going away: replies to its requests are dropped from now on. */
void redis_connection_forget(struct redis_connection *connection, const struct redis_op *op);

/* What an error reply means. */
struct error_reply {
    hf_status status;
    bool leave;           /* the connection cannot be used any more */
    bool outcome_unknown; /* the script may have begun: all, some or none of it was carried out */
    char text[240 + REDIS_ACL_MAX];
};
struct error_reply redis_error_reply(const struct redis *r, const struct resp_reply *error);

/* ---- redis_greeting.c ---- */

/* Sends the greeting. */
void redis_greeting_begin(struct redis *r, struct redis_connection *connection, nanos now);
/* Asks which rights the user lacks, unless this question is in flight. Returns true if the reply is
 * awaited. Ops must stay unsent until then; redis_op_send_unsent() runs after the reply. */
bool redis_greeting_check_rights(struct redis *r, struct redis_connection *connection, nanos now);
/* Handles the reply to a request of the greeting, or to one that loads the library. */
void redis_greeting_answer(struct redis *r, struct redis_connection *connection,
                           enum request_kind kind, const struct resp_reply *resp, nanos now);
/* Handles the reply to the first call of the library. */
void redis_greeting_rights(struct redis *r, struct redis_connection *connection,
                           const struct request *request, const struct resp_reply *resp, nanos now);
/* Ends the greeting, once every reply to it has arrived: the connection is up. */
void redis_greeting_end(struct redis *r, struct redis_connection *connection, nanos now);
/* Returns the value of a field of INFO; NULL: no such field. */
const char *redis_greeting_info_field(const char *info, const char *field);

/* ---- library_load.c ---- */

/* Returns true if the error says that the server lacks the library or the script, or has no
 * functions. The verb that was called has not begun. */
bool redis_load_is_needed(const struct resp_reply *resp);
/* Returns true if the error says that FCALL cannot be used at all. */
bool redis_load_has_no_functions(const char *error);
/* Handles the error that the server lacks the library or the script: loads it, unless a load is in
 * flight. If the server has no functions, verbs are called by EVALSHA from now on. */
void redis_load(struct redis *r, struct redis_connection *connection,
                const struct resp_reply *error, nanos now);
/* Writes the command that loads the library. `replaces`: the server replaces a library of the same
 * name. */
void redis_load_write(struct redis *r, bool replaces);
/* Loads the scripts that are missing according to `known`, the reply to SCRIPT EXISTS. If that is
 * NULL or an error, loads all. */
void redis_load_missing(struct redis *r, struct redis_connection *connection,
                        const struct resp_reply *known, nanos now);
/* Returns true if the error says that another client has loaded the library meanwhile. */
bool redis_load_is_done(const struct resp_reply *error);
/* Handles the refusal to load or call the library: uses scripts from now on. */
void redis_load_refused(struct redis *r, struct redis_connection *connection,
                        const struct resp_reply *error, nanos now);
/* Returns the error to report if the scripts could not be loaded either. Valid until the next
 * call. */
const struct resp_reply *redis_load_why_not(const struct redis *r, const struct resp_reply *resp);

/* ---- acl.c ---- */

/* Writes the call that asks which rights the user lacks. Returns false if nothing was written. */
bool redis_acl_write(struct redis *r);
/* Writes a name that nobody uses and whose lock is in that slot. */
void redis_acl_name_in_slot(const struct redis *r, unsigned slot, char *name, size_t size);
/* Reads the reply to the call that redis_acl_write() wrote, and sets r->lacking. An unexpected
 * reply changes nothing. */
void redis_acl_read(struct redis *r, const struct resp_reply *resp);

/* Writes the right that a DENIED error names, as in "+get"; "": none. */
void redis_acl_missing(const struct redis *r, const char *error, char text[REDIS_ACL_MAX]);

/* ---- active_ops.c ---- */

/* Returns the struct of an active op; NULL if nothing is in flight for the op and it does not
 * wait. */
static inline struct redis_op *redis_active_op(const struct engine_op *op)
{
    const struct known_op *known = op->engine_state;
    return known ? known->active : NULL;
}

/* Returns NULL without memory. */
struct redis_op *redis_op_find_or_make(struct redis *r, struct engine_op *op);
bool redis_op_same_name(const struct redis_op *a, const struct redis_op *other);
void redis_op_forget(struct redis *r, struct engine_op *op);
/* Puts ops to rest that got a reply and are idle now. Called last in every function of the engine's
 * table, because it makes pointers to a redis_op invalid. */
void redis_ops_rest(struct redis *r);
void redis_ops_free(struct redis *r);
/* Returns the first op with that id; NULL: none. */
struct resting_op *redis_resting_op_of(struct redis *r, const char id[REDIS_ID_TEXT]);
/* Returns the next op with the same id. */
struct resting_op *redis_resting_op_next(const struct resting_op *one);

/* ---- joint_acquire.c ---- */

/* Handles that the client submits an op, which may be ahead. Returns true if the server has
 * answered it already; then the reply is reported. */
bool redis_joint_submit(struct redis *r, struct redis_op *a);
/* Takes the op out of the group with which it would be sent. */
void redis_joint_part(struct redis_op *a);
/* Sends the call that acquires for the op and for those that are joined to it. */
void redis_joint_send(struct redis *r, struct redis_op *a, struct redis_connection *connection,
                      nanos now);
/* Keeps the reply to an op that was sent before the client submitted it, until the client does. */
void redis_joint_keep(struct redis *r, struct redis_op *a, const struct engine_reply *reply);
/* Handles that the call ended without an answer for this op. `is_unknown`: the server may have
 * executed a part of it. */
void redis_joint_unasked(struct redis *r, struct redis_op *a, bool is_unknown);

/* ---- command_encode.c ---- */

void redis_op_submit(struct redis *r, struct redis_op *a, nanos now);
/* Adds the arguments of the verb acquire behind the id. */
void redis_op_add_terms(struct redis *r, const struct redis_op *a);
/* An ACQUIRE or UPGRADE is being sent: sets the token that its grant must exceed. */
void redis_op_set_floor(const struct redis *r, struct redis_op *a);
/* Updates a->op->connections. */
void redis_op_set_connections(struct redis *r, struct redis_op *a);
/* The connection has come up, or is being greeted: sends the ops that waited for that. */
void redis_op_send_unsent(struct redis *r, const struct redis_connection *connection, nanos now);
/* Sends a->sent_op on a connection that is up. */
void redis_op_send(struct redis *r, struct redis_op *a, nanos now);
/* Asks the server to raise the token of a grant by `verb` above a->floor. Returns false if that
 * could not be sent. */
bool redis_op_raise(struct redis *r, struct redis_op *a, enum op_verb verb, nanos now);
/* Replies to the client, after op->connections was updated. */
void redis_op_reply(struct redis *r, struct redis_op *a, const struct engine_reply *reply);
void redis_op_fail(struct redis *r, struct redis_op *a, nanos asked_at, hf_status status,
                   const char *text);
void redis_op_refuse(struct redis *r, struct redis_op *a, nanos asked_at,
                     const struct error_reply *error_reply);
/* The connection is down: fails the op. */
void redis_op_fail_with(struct redis *r, struct redis_op *a,
                        const struct redis_connection *connection, nanos now);
void redis_op_set_queued(struct redis *r, struct redis_op *a, bool queued);
/* Writes the verb release. `channel` and `terms` are its arguments 2 and 3; NULL: left out. */
void redis_op_write_release(struct redis *r, const char *id, const struct cached_keys *cached,
                            const char *channel, const char *terms);
/* Releases a hold whose id belongs to no op here any more. */
void redis_op_undo(struct redis *r, const char *id, const char *key, size_t key_len, nanos now);

/* Returns the connection for a verb. */
struct redis_connection *redis_op_connection(struct redis *r, const struct redis_op *a,
                                             enum op_verb verb);
bool redis_op_is_in_flight(const struct redis_op *a);
/* Returns the timing of an op; valid until the next call for another op. */
const struct timing *redis_op_timing(struct redis *r, const struct redis_op *a);

/* ---- key_cache.c ---- */

/* Begins a call of the verb on that lock, with room for `arguments` further words. Returns false
 * without memory. */
bool redis_script_begin_uncached(struct redis *r, enum script_id script,
                                 const struct redis_keys *keys, unsigned arguments);
/* Finds the keys of a lock, valid until the next call. HF_INVALID: the name cannot have a key;
 * HF_NO_MEMORY. error_text() says why. */
hf_status redis_key_cache_find(struct redis *r, const char *name, size_t len,
                               const struct cached_keys **cached);
void redis_script_begin(struct redis *r, enum script_id script, const struct cached_keys *cached,
                        unsigned arguments);
void redis_script_begin_two_keys(struct redis *r, enum script_id script,
                                 const struct cached_keys *cached, unsigned arguments);
/* Begins a call for several locks with `keys` keys in all; redis_script_keys() and then
 * redis_script_verb() follow. */
void redis_script_begin_several(struct redis *r, enum script_id script, unsigned keys,
                                unsigned arguments);
void redis_script_keys(struct redis *r, const struct cached_keys *cached);
void redis_script_verb(struct redis *r, enum script_id script);
/* Returns the number of keys that a call names for one lock. A message to an inbox works only on a
 * server where scripts may use keys that the call does not name. So a client with an inbox names
 * two of the lock's keys only: each further key would cost the server 0.1 us. */
unsigned redis_keys_of_lock(const struct redis *r);
/* Begins a call about the index of names (scripts/name_index.lua). */
void redis_script_begin_index(struct redis *r, enum script_id script, unsigned arguments);
/* Returns true if the name is certainly in the index. */
bool redis_key_cache_is_listed(const struct redis *r, const char *name, size_t len, nanos now);
/* Notes that the name is in the index: a script of this client has written its counter. */
void redis_key_cache_set_listed(struct redis *r, const char *name, size_t len, nanos now);
/* Forgets which names are in the index: another server may lack names that this client added. */
void redis_key_cache_unlist(struct redis *r);
void redis_script_begin_one_key(struct redis *r, enum script_id script,
                                const struct cached_keys *cached, unsigned arguments);
/* Like redis_keys_of(), with the settings of this client. */
hf_status redis_keys_here(const struct redis *r, struct redis_keys *keys, const char *name,
                          size_t len);
void redis_key_cache_free(struct redis *r);

/* ---- reply_decode.c ---- */

void redis_op_on_resp(struct redis *r, const struct request *request, const struct resp_reply *resp,
                      nanos now);

/* ---- wait_replicas.c ---- */

/* Keeps a reply until replicas have acknowledged the write. */
void redis_durable_wait(struct redis *r, struct redis_op *a, enum op_verb verb,
                        const struct engine_reply *reply, nanos now);
/* If the end of a hold was read without asking replicas, limits it to the end that they have
 * acknowledged: a renewal may have reached too few of them. */
void redis_durable_limit(const struct redis_op *a, struct engine_reply *reply);
void redis_durable_taken_back(struct redis *r, const struct request *request,
                              const struct resp_reply *resp, nanos now);
void redis_durable_answer(struct redis *r, const struct resp_reply *resp, nanos now);
/* Called when the connection is down: no reply to WAIT will come. */
void redis_durable_cut(struct redis *r, const char *why);
/* Explains a LEAVE that came before replicas acknowledged the grant. */
void redis_durable_explain_leave(const struct redis *r, struct engine_reply *reply);

/* ---- notifications.c ---- */

/* Makes the engine read notifications if an op waits. */
void redis_notify_listen(struct redis *r, nanos now);
void redis_notify_on_pop(struct redis *r, const struct resp_reply *resp, nanos now);
void redis_notify_on_listen(struct redis *r, const struct resp_reply *resp, nanos now);
/* Returns true if it is a published message, not a reply to a request. */
bool redis_notify_on_publish(struct redis *r, const struct resp_reply *resp, nanos now);
nanos redis_notify_tick(struct redis *r, nanos now);
void redis_notify_set_listener(struct redis *r, struct redis_op *a, bool listens, nanos now);
void redis_notify_ping(struct redis *r, nanos now); /* Tests the subscriptions with PING. */
/* Returns true if the subscriptions proved to work a moment ago. */
bool redis_notify_is_proved(const struct redis *r, nanos now);
/* Handles the text of a message. */
void redis_notify_on_text(struct redis *r, const struct resp_reply *text, nanos now);
/* Handles a message that came before the reply to the op's own request. */
void redis_notify_consider(struct redis *r, struct redis_op *a, nanos now);
/* Returns true if a brief hold, counted from a request that was sent at asked_at, is good for long
 * enough that an extend reaches the server in time. */
bool redis_notify_leaves_time(struct redis *r, const struct redis_op *a, nanos asked_at, nanos good,
                              nanos now);

/* ---- presence.c ---- */

/* Begins the signs of life: the first waiter of this client was queued by a request sent at
 * `asked_at`. */
void redis_presence_begin(struct redis *r, nanos asked_at);
void redis_presence_answer(struct redis *r, const struct request *request,
                           const struct resp_reply *resp, nanos now);
/* Called when the connection is down: no reply will arrive. */
void redis_presence_cut(struct redis *r);
nanos redis_presence_tick(struct redis *r, nanos now);
/* Called in a cluster when the server has queued the op once more. */
void redis_presence_on_queued(struct redis *r, struct redis_op *a, nanos now);

/* ---- recent_releases.c ---- */

/* Notes that the server released the op's hold, if the server may be replaced and nobody else can
 * hold with the same attempt id. */
void redis_recent_note(struct redis *r, const struct redis_op *a);
/* Returns true if releases must be repeated on another server that takes the place of this one. */
bool redis_recent_is_due(const struct redis *r, nanos now);
/* Called when the connection for commands came up: repeats the releases of the last seconds if the
 * server is another one. */
void redis_recent_repeat(struct redis *r, nanos now);
void redis_recent_free(struct redis *r);

/* ---- followed_server.c ---- */

/* Returns true for a request for a new lock while the server is being replaced. */
static inline bool redis_is_held_back(const struct redis *r, const struct redis_op *a, nanos now)
{
    return r->follow.hold_back_until && now < r->follow.hold_back_until && !a->sent &&
           a->sent_op.verb == OP_ACQUIRE;
}
nanos redis_follow_tick(struct redis *r, nanos now);
/* Called when a connection was lost. */
void redis_follow_lost(struct redis *r, nanos now);
/* Returns true if ops stay unsent for a while although their connection is down: another server
 * may be named. */
bool redis_follow_is_patient(const struct redis *r, const struct redis_op *a, hf_status status,
                             nanos now);

/* ---- cluster_member.c ---- */

/* Returns the connection as a set. */
static inline connection_set redis_connection_bit(const struct redis *r, unsigned connection)
{
    return connection_set_of(r->cluster.place.first_connection + connection);
}
/* Returns true if the error is a redirect or a refusal of a cluster: then the request is sent
 * elsewhere or again later, and the op gets its reply from that. */
bool redis_cluster_on_error(struct redis *r, const struct request *request,
                            const struct resp_reply *resp, nanos now);
/* Returns true if the error says that the server does not have the slot now. If it names another
 * server, the engine above is told. */
bool redis_cluster_is_elsewhere(struct redis *r, const struct resp_reply *resp);
/* Makes the server accept the next request of this op for a slot that is being moved there.
 * Returns false if the connection broke. */
bool redis_cluster_send_asking(struct redis *r, struct redis_op *a,
                               struct redis_connection *connection, nanos now);
nanos redis_cluster_tick(struct redis *r, nanos now);

/* ---- lock_channels.c ---- */

/* Reads messages for the op from now on, because it waits. */
void redis_channel_join(struct redis *r, struct redis_op *a, nanos now);
/* Called when the op does not wait any more. */
void redis_channel_leave(struct redis *r, struct redis_op *a);
/* The connection is up: subscribes channels that are not subscribed yet. */
void redis_channels_listen(struct redis *r, nanos now);
void redis_channels_cut(struct redis *r); /* Called when the connection is down. */
/* Handles a reply to a subscription, or to PING. */
void redis_channels_on_reply(struct redis *r, const struct request *request,
                             const struct resp_reply *resp, nanos now);
/* Returns true if it is a message, or says that a subscription has ended. */
bool redis_channels_on_push(struct redis *r, const struct resp_reply *resp, nanos now);
void redis_channels_free(struct redis *r);

/* ---- redis_polls.c ---- */

/* Returns true if the server sends no messages about handoffs: wake=poll, or member of a quorum. */
static inline bool redis_polls_only(const struct redis *r)
{
    return r->box[0] == 'n' || r->box[0] == 'c' || r->box[0] == '-';
}
/* Returns true if the client is notified by channels in the slots of its locks. */
static inline bool redis_has_channels(const struct redis *r)
{
    return r->box[0] == 's';
}
/* Handles that the server queued the op with that arrival number. Returns the time of its next
 * poll. */
nanos redis_poll_next(struct redis *r, struct redis_op *a, int64_t arrival,
                      const struct engine_reply *queued, nanos now);
void redis_poll_leave(struct redis *r, struct redis_op *a,
                      nanos now); /* Called when the op does not wait any more. */
/* A local op has released its lock: notifies the next local waiter. */
void redis_poll_own_release(struct redis *r, const struct redis_op *released);

/* ---- redis_diagnose.c ---- */

void redis_diagnose_begin(struct redis *r, struct redis_op *a, nanos now);
void redis_diagnose_answer(struct redis *r, const struct request *request,
                           const struct resp_reply *resp);
/* Reports a finding about this server. `advice` may be NULL: none. */
__attribute__((format(printf, 6, 7))) void redis_find(struct redis *r, const struct redis_op *a,
                                                      const char *what, hf_health health,
                                                      const char *advice, const char *format, ...);
/* Returns the value that follows a name in a list of names and values; NULL: none. */
const struct resp_reply *redis_value_of(const struct resp_reply *list, const char *name);
/* Returns true if the text of a library is the one that this engine would load. */
bool redis_is_our_library(const struct resp_reply *code);

/* ---- redis_library.c ---- */

/* ADMIN_INSTALL, ADMIN_USES, ADMIN_PRUNE. */
void redis_library_begin(struct redis *r, struct redis_op *a, nanos now);
void redis_library_answer(struct redis *r, const struct request *request,
                          const struct resp_reply *resp, nanos now);

/* ---- redis_admin.c ---- */

void redis_admin_begin(struct redis *r, struct redis_op *a, nanos now);
void redis_admin_answer(struct redis *r, const struct request *request,
                        const struct resp_reply *resp, nanos now);
void redis_admin_free(struct redis_op *a); /* also frees a->care */
