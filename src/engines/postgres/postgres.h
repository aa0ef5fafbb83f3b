/* postgres.h - the engine for a PostgreSQL database: its own structs.
 *
 * Entry points, in the order in which they run:
 *
 *   postgres.c       the door (engines/wire_engine.h): URL and settings; submit, events, tick
 *   pg_ops.c         the struct of an op, and the statement that an op becomes
 *   pg_connection.c  the connection, from dialling through greeting and installing to its end, with
 *                    the requests in flight on it
 *   pg_replies.c     turns a reply of the server into a reply to the client; notifications of
 *                    handoffs
 *   pg_interop.c     the advisory lock that a lease takes as well (interop=)
 *   pg_admin.c       list, history, break, resize; pg_diagnose.c: findings about the server
 *
 * pg_session.c is the only file that knows libpq. sql/ runs inside the server: there the decisions
 * are made, in one transaction each, and 001_install.sql says by which rules.
 *
 * Policies:
 *
 * - One connection for everything. A notification arrives on it between two replies. So if a
 *   request of the waiter is in flight, the reply to that request decides.
 * - The grant is state, the notification only informs. In a durable schema a handoff commits
 *   lazily, so a notified waiter asks again, and that request commits synchronously.
 * - Replies are matched to requests by their order. A reply that does not fit its request ends the
 *   connection, and every op in flight gets an unknown outcome.
 * - With interop= a lease is held only while this session has its advisory lock, too. If the
 *   session ends, the advisory lock ends, too: then the lease is lost, whatever its row says.
 * - Behind a pooler a session is not ours: no prepared statement, no notification, no session key.
 *   The engine recognises a pooler by its process id, which is not that of the server process. A
 *   pooler may hand on a session with replies that another client did not wait for (seen with
 *   PgBouncer 1.18). So each reply about a lease must repeat a number of its request; other replies
 *   are not believed.
 */
#pragma once
#include "base/settings.h"
#include "core/rtt.h"
#include "core/timing.h"
#include "engines/kit/redial.h"
#include "engines/wire_engine.h"
#include "pg_session.h"

enum postgres_setting_id {
#define SETTING SETTING_INDEX
#define SETTING_TEXT SETTING_INDEX
#include "postgres_settings.def"
#undef SETTING
#undef SETTING_TEXT
};

enum {
    PG_ID_TEXT = 32, /* an id in hexadecimal digits, which is a uuid to the server */
    PG_SCHEMA_MAX = 40,
    PG_PREFIX_MAX = 128,
    PG_NAME_MAX = PG_PREFIX_MAX + HF_NAME_MAX,
    PG_META_MAX = HF_LABEL_MAX + 192,
    PG_WAITERS_MAX = 100000,
    PG_SEEN = 1024,
    PG_VERSION_LEAST = 130000
};

struct postgres;
struct pg_op;

/* ---- pg_connection.c ---- */

enum pg_request_kind {
    PG_REQ_VERB,      /* a verb of a lock */
    PG_REQ_ADMIN,     /* a statement of an admin op */
    PG_REQ_UNCLAIMED, /* a statement for whose reply no op waits */
    PG_REQ_HELLO,     /* this kind and the following kinds belong to the greeting */
    PG_REQ_SETUP,
    PG_REQ_INSTALL,
    PG_REQ_PREPARE,
};

/* A request in flight. */
struct pg_request {
    enum pg_request_kind kind;
    uint8_t verb;     /* enum op_verb; PG_REQ_ADMIN: enum admin_verb */
    struct pg_op *op; /* NULL: no op waits for the reply, or the op is gone */
    nanos sent_at, patience;
    int64_t ttl_ms; /* ttl that the request asks for */
    bool measures;  /* no other request was in flight when this request was sent */
    /* PG_REQ_VERB behind a pooler: number that the reply must repeat; otherwise 0 */
    uint64_t echo;
};

enum pg_connection_state { PG_DOWN, PG_DIALLING, PG_GREETING, PG_UP };

struct pg_connection {
    enum pg_connection_state state;
    struct pg_session *session; /* libpq's connection; NULL: DOWN */
    nanos since;                /* DIALLING, GREETING: time when this state began */
    nanos received_at;          /* time when the socket was last readable */
    struct redial redial;
    uint32_t ups; /* number of times the connection came up */
    /* ring of requests in flight, in the order in which they are sent and answered */
    struct pg_request *queue;
    uint32_t first, count, room;
    uint32_t unclaimed; /* number of requests in the queue that no op waits for */
    bool pooled;        /* a pooler stands in between */
    uint64_t echo;      /* number of the last request behind a pooler */
    bool installed;     /* the files of sql/ were run on this connection */
    /* version of the schema before the files were run; 0: there was no schema */
    int found_version;
    bool listens; /* the session has its key and listens to the channel */
    int64_t session_key;
    int version; /* version of the server, as in 150018 */
    struct rtt rtt;
    hf_status last_status;
    char why[800]; /* DOWN: the reason */
};

/* ---- The engine ---- */

#define POSTGRES_LIMITS                                                                            \
    {                                                                                              \
        .ttl_min_ms = 100, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,      \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,         \
        .offers = ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_REENTRANT |    \
                  ENGINE_CAN_RESIZE | ENGINE_CAN_BREAK | ENGINE_CAN_CONVERT | ENGINE_FINDS_HOLDS   \
    }

/* The newest QUEUED reply: the times in the notification of a handoff are compared with it. */
struct pg_queued_reply {
    bool set;
    nanos asked_at, due; /* time when the request was sent; time of the next poll */
    int64_t at;          /* the server's clock at the time of the reply, in microseconds */
    int64_t number;      /* the lock's token counter at the time of the reply */
};

/* What the engine keeps of an op from its first submit until forget(). */
struct pg_op {
    struct pg_op *next, *prev;               /* list postgres.ops */
    struct pg_op *next_active, *prev_active; /* list postgres.active */
    struct engine_op *op;     /* op of the client; only its `connections` may be written */
    struct engine_op sent_op; /* copy of *op at the last submit */
    struct pg_queued_reply queued_reply; /* the newest QUEUED reply, while the op waits */
    char *list_after;                    /* PG_REQ_ADMIN: name after which the next page begins */
    int64_t first_ttl_ms;                /* ttl that sets op_timeout; extends do not change it */
    int64_t ticket;                      /* the op's place in the queue; 0: unknown */
    uint32_t in_flight, acquiring;       /* number of requests, and of ACQUIREs among them */
    bool active;                         /* the op is in postgres.active */
    bool unsent;                         /* the op waits for the connection to come up */
    bool sent;                           /* some request was sent for the op */
    /* interop: value of connection.ups when the session took the advisory lock; 0: the session does
     * not have it */
    uint32_t key_ups;
    uint32_t key_given; /* interop: that value for an advisory lock whose release is in flight */
    uint32_t key_polls; /* interop: number of tries in a row to take the lock */
    bool cut;           /* an ACQUIRE was sent and never answered, and may still arrive */
    bool queued;        /* the server put it into the queue */
};

/* The newest replies about a name. Names may share a cell: wrong values only cost time. */
struct pg_seen {
    int32_t era;
    bool contended; /* the lock had waiters */
};

/* The advisory lock that a lease takes as well (setting interop). */
enum pg_interop { PG_INTEROP_OFF, PG_HASHTEXT, PG_HASHTEXTEXTENDED, PG_NUMBER };

struct postgres {
    const struct wire_engine_host *host;
    struct pg_keywords keywords;
    char where[300]; /* "host:port/database", for messages */
    char schema[PG_SCHEMA_MAX + 1], prefix[PG_PREFIX_MAX + 1];
    char commit[16];
    /* memory: value of the setting; polls: wake=poll, or the server is behind a pooler */
    bool memory, may_install, polls;
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos connect_timeout;
    int64_t history, history_age_ms;
    char channel[48];
    char about[160];      /* " pid host ": the middle of meta */
    struct timing timing; /* sheet for timing_ttl_ms, cached by pg_op_timing() */
    int64_t timing_ttl_ms;
    char pace[128]; /* `timing` as the last argument of acquire() */
    enum pg_interop interop;
    char acquire[900], release[500], extend[200], convert[200]; /* statements */
    struct pg_seen seen[PG_SEEN];
    struct pg_connection connection;
    struct pg_op *ops;    /* list of all ops */
    struct pg_op *active; /* list of ops in flight, unsent or queued */
    uint32_t queued;      /* number of ops in the server's queues */
    nanos swept_at;       /* time when the last sweep was sent or postponed */
};

/* ---- pg_connection.c ---- */

/* Dials the connection if it is down. Returns false if it cannot be dialled now; connection->why
 * says why. */
bool pg_connection_need(struct postgres *p, nanos now);
/* Lets the next connection create the schema, whatever the setting says, because an administrator
 * asks for it. */
void pg_connection_may_install(struct postgres *p, nanos now);
/* Sends a statement (like pg_session_execute()) and adds the request to the queue. */
bool pg_connection_send(struct postgres *p, struct pg_request request, const char *name,
                        const char *sql, int count, const char *const *values, nanos now);
void pg_connection_ready(struct postgres *p, nanos now);
nanos pg_connection_tick(struct postgres *p, nanos now);
/* Closes a connection that cannot be used any more, and replies to all ops in flight on it. */
__attribute__((format(printf, 4, 5))) void pg_connection_drop(struct postgres *p, hf_status status,
                                                              nanos now, const char *format, ...);
/* Clears the op in its requests, because it is about to be freed. */
void pg_connection_forget(struct postgres *p, const struct pg_op *a);
/* Makes the server notify this client: takes a session key and listens to its channel. */
void pg_connection_listen(struct postgres *p, nanos now);

/* The meaning of a server's error. */
struct pg_error {
    hf_status status;
    bool drop; /* the connection cannot be used any more */
    char text[600];
};
struct pg_error pg_error_of(const struct postgres *p, const struct pg_reply *reply);

/* ---- pg_ops.c ---- */

/* Returns NULL without memory. */
struct pg_op *pg_op_find_or_make(struct postgres *p, struct engine_op *op);
void pg_op_submit(struct postgres *p, struct pg_op *a, nanos now);
/* Returns true if the op is a LEAVE whose request releases whatever the op was granted. */
bool pg_op_gives_back(const struct postgres *p, const struct pg_op *a);
/* Releases a lease that the client does not know about; no reply follows. */
void pg_op_give_back(struct postgres *p, struct pg_op *a, nanos now);
void pg_op_forget(struct postgres *p, struct engine_op *op);
/* Sends the ops that wait for the connection, which is up now. */
void pg_op_send_unsent(struct postgres *p, nanos now);
/* Replies to the client, after op->connections was updated. */
void pg_op_reply(struct postgres *p, struct pg_op *a, const struct engine_reply *reply);
void pg_op_fail(struct postgres *p, struct pg_op *a, nanos asked_at, hf_status status,
                const char *text);
/* Fails the op, because the connection is down. */
void pg_op_fail_with_connection(struct postgres *p, struct pg_op *a, nanos now);
void pg_op_set_queued(struct postgres *p, struct pg_op *a, bool queued);
/* Adds the op to the list of active ops or removes it, according to its fields. */
void pg_op_settle(struct postgres *p, struct pg_op *a);
const struct timing *pg_op_timing(struct postgres *p, const struct pg_op *a);
struct pg_seen *pg_seen_of(struct postgres *p, const struct engine_op *op);
void pg_id_text(const struct id *id, char text[PG_ID_TEXT + 1]);
/* Writes the name with its prefix, as it is stored on the server. */
void pg_full_name(const struct postgres *p, const struct engine_op *op, char name[PG_NAME_MAX + 1]);

/* ---- pg_interop.c ---- */

/* Reads the setting interop. HF_CONFIG: another setting excludes it. */
hf_status pg_interop_read(struct postgres *p, const char *mode);
/* Makes the statements of acquire and release include the advisory lock. */
void pg_interop_statements(struct postgres *p);
/* Fills in the last arguments of these statements, in text. Returns the number of arguments;
 * `numbers` has room for two. */
int pg_interop_values(const struct postgres *p, const struct pg_op *a, const char **values,
                      char numbers[2][24]);
/* If the op cannot be done with interop=, or its advisory lock is lost, replies and returns
 * true. */
bool pg_interop_refuses(struct postgres *p, struct pg_op *a, nanos now);
/* Returns true if the current session has the advisory lock of the op. */
bool pg_interop_has_key(const struct postgres *p, const struct pg_op *a);
/* Fills in the reply if the lease is held, but another session has its advisory lock. */
void pg_interop_key_is_taken(struct postgres *p, struct pg_op *a, struct engine_reply *reply);
/* Releases the advisory lock of an op that is about to be freed. */
void pg_interop_forget(struct postgres *p, struct pg_op *a);

/* ---- pg_replies.c ---- */

/* Returns false if the reply does not fit the request. */
bool pg_reply_to_verb(struct postgres *p, const struct pg_request *request,
                      const struct pg_reply *reply);
/* Notes that an acquire took its advisory lock, even if its commit is not certain. */
void pg_reply_note_key(struct postgres *p, const struct pg_request *request,
                       const struct pg_reply *reply);
void pg_reply_notified(struct postgres *p, const char *payload, nanos now);
/* Makes all waiters ask again. */
void pg_reply_notify_all(struct postgres *p);

/* ---- pg_admin.c, pg_diagnose.c ---- */

void pg_admin_begin(struct postgres *p, struct pg_op *a, nanos now);
bool pg_admin_reply(struct postgres *p, const struct pg_request *request,
                    const struct pg_reply *reply, nanos now);
void pg_diagnose_begin(struct postgres *p, struct pg_op *a, nanos now);
/* Reports whether the schema was created or changed on this connection. */
void pg_diagnose_installation(struct postgres *p, struct pg_op *a);
void pg_diagnose_reply(struct postgres *p, const struct pg_request *request,
                       const struct pg_reply *reply);

/* ---- install.c: made from sql/ ---- */

/* names of the files, in the order of their numbers */
extern const char *const pg_sql_files[];
extern const int pg_sql_count;

extern const struct wire_engine_type postgres_wire_engine;
extern const struct setting_rows postgres_settings;
bool postgres_passes_on(const char *name, size_t len);
void postgres_fit_defaults(struct settings *settings);
