/* consul.h - the engine for Consul (sessions and keys): its structs, and how it works.
 *
 * Keys. Each request for a lock is one key, its *entry*: PREFIX NAME / ATTEMPT, locked by the
 * session of its client. Entries are ordered by their creation, and core/entry_order.h says who is
 * first. An exclusive hold also has the key PREFIX NAME /.lock, which is the one that `consul lock`
 * uses: an exclusive request holds if its entry is first and .lock names it. So Holdfast and
 * `consul lock` exclude each other. Semaphores and read-write locks are held by their entries
 * alone.
 *
 * Handoff. A release reads the queue; then one transaction passes .lock to the session of the first
 * waiter, touches that waiter's entry, deletes the entry of the holder, and touches the entry of
 * the second waiter, which is first from now on. If nobody waits, .lock is deleted. The release of
 * a hold that had to wait reads the queue a moment longer if nobody else is in it: the former
 * holder may be about to ask again, and then the same transaction can pass .lock to it. If the
 * holder's session ends, Consul deletes .lock, and the first waiter takes it in a
 * transaction of its own.
 *
 * Waiting. A client has one blocking query for each name: the first waiter has it on .lock, others
 * on their own entries, and waiters for shared locks on all keys of the name. The reply to a query
 * proves only one thing: a .lock that names an attempt of this client grants it. After any other
 * reply the queue is read and judged anew.
 *
 * Liveness. An entry lives as long as its session: Consul deletes both together. Holds with the
 * same ttl in whole seconds share a session; a detached hold has its own. Consul ends a session
 * between one and two ttl after its last renewal. A hold is good for one ttl from when a renewal
 * was sent, once a consistent read that was sent after the renewal's reply has seen its keys.
 *
 * Unknown outcome. A transaction that takes a place also checks the *epoch* of its session: the key
 * PREFIX .s/SESSION, which is absent at first. If a connection broke with such a transaction
 * unanswered, the next write changes that key: a transaction that was not carried out by then never
 * will be. A transaction that takes or passes .lock checks the entry or .lock itself, and touches
 * the entry, so that no later deletion can overlook it.
 *
 * Ids. Consul remembers each deleted key for 15 minutes, and each read of a queue walks over those
 * of the name. So a released entry leaves its id to the next request of this client for the name:
 * the keys of a loop of requests are few. A stale read may still show the keys of the id's previous
 * entry. Their index is not above born_after, so they are ignored. An id is not used again if some
 * request of its entry has an unknown outcome. A detached hold has its attempt as id, by which
 * others find it.
 *
 * Tokens. The token of a hold is the Raft index of the change that let it in: of .lock for
 * exclusive holds, of the entry for all others. A shared hold that had to wait writes its entry
 * once more to get a token.
 *
 * Files: consul.c the door and the URL; consul_connection.c connections and calls; consul_session.c
 * sessions and epochs; consul_entry.c requests for locks; consul_replies.c their replies;
 * consul_release.c releases and handoffs; consul_view.c queues and queries; consul_value.c keys and
 * values; consul_admin.c list and break; consul_diagnose.c findings; consul_messages.c JSON. */
#pragma once
#include "consul_messages.h"
#include "core/entry_order.h"
#include "core/timing.h"
#include "engines/kit/endpoints.h"
#include "engines/kit/http_response.h"
#include "engines/kit/redial.h"
#include "engines/kit/session_list.h"
#include "engines/wire_engine.h"

#include <assert.h>

extern const struct wire_engine_type consul_wire_engine;
extern const struct setting_rows consul_settings;

enum consul_setting_id {
#define SETTING SETTING_INDEX
#include "consul_settings.def"
#undef SETTING
};

#define CONSUL_LIMITS                                                                              \
    {                                                                                              \
        .ttl_min_ms = 10000, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,    \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,         \
        .offers = ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_CAN_BREAK |    \
                  ENGINE_NO_BARGING                                                                \
    }

enum {
    CONSUL_PREFIX_MAX = 128,
    CONSUL_ID_TEXT = 32,
    CONSUL_WAITERS_MAX = 5000, /* longest queue of a name: each request reads all of it */
    /* most calls for entries in flight: the agent answers them one after the other */
    CONSUL_IN_FLIGHT_MAX = 32,
    /* with more calls in flight a LEAVE waits; if the client closes meanwhile, the end of its
     * sessions removes its places */
    CONSUL_LEAVING_MAX = 8,
    CONSUL_FREE_IDS = 8,    /* ids of a name that are kept for later requests */
    CONSUL_LISTED_MAX = 16, /* entries of a shared lock that each request reads itself */
    CONSUL_BODY_MAX = 16 << 20
};

#define CONSUL_CALL_TIMEOUT NANOS_OF_MS(1000)
#define CONSUL_PER_ROW NANOS_OF_MS(5)
/* EXTENDs that come within this time share a renewal. */
#define CONSUL_SHARE NANOS_OF_MS(50)
/* added to the pause of a waiter for each place ahead of it */
#define CONSUL_PER_PLACE NANOS_OF_MS(50)
/* pause of a waiter that has no query */
#define CONSUL_POLL NANOS_OF_MS(500)
/* The first waiter tries again after this time if lock-delay, a setting of Consul, keeps .lock
 * closed. */
#define CONSUL_DELAYED NANOS_OF_MS(250)
#define CONSUL_VIEW_KEPT NANOS_OF_MS(10000)
/* seconds that a query blocks; the agent adds up to a sixteenth */
enum { CONSUL_QUERY_S = 5 };
/* milliseconds for which a release waits for the former holder to come back */
enum { CONSUL_COMES_BACK_MS = 2 };

/* Connection 0 is for commands; each of the others has one blocking query at a time. */
enum { CONNECTION_COMMANDS, CONNECTION_FIRST_QUERY, CONSUL_CONNECTIONS = 17 };

/* Flags by which `consul lock` knows its key. */
#define CONSUL_LOCK_FLAGS UINT64_C(0x2ddccbc058a50c18)

struct consul;
struct consul_entry;
struct consul_name;
struct consul_session;
struct consul_admin;

/* ---- Calls ---- */

enum call_kind {
    CALL_CREATE_SESSION,
    CALL_RENEW_SESSION,
    CALL_DESTROY_SESSION,
    CALL_RAISE_EPOCH,
    CALL_ACQUIRE,
    CALL_TRY_READ,  /* reads the queue for a request without a place */
    CALL_REFRESH,   /* reads the queue for a waiter */
    CALL_TAKE,      /* takes .lock for the first waiter */
    CALL_CLAIM,     /* writes the entry of a shared hold that waited */
    CALL_VERIFY,    /* checks that the keys of a hold are there */
    CALL_MOVE,      /* moves the keys of a hold to another session */
    CALL_READ_END,  /* reads the queue for a release */
    CALL_READ_LATE, /* reads the queue for a release, once a waiter comes or a moment has passed */
    /* reads the queue for a release, consistently: the first read has shown no key of the entry */
    CALL_READ_GONE,
    CALL_END,       /* passes .lock on or deletes it, and deletes the entry */
    CALL_PASS,      /* passes on a .lock that came to an entry out of turn; the entry stays */
    CALL_DELETE,    /* deletes the entry alone */
    CALL_READ_VIEW, /* reads the queue for all waiters of a name */
    CALL_QUERY,     /* blocks until a key changes */
    CALL_ADMIN,
};

/* One call in flight. */
struct consul_call {
    struct consul_call *next; /* next call on the same connection */
    struct consul_connection *connection;
    enum call_kind kind;
    nanos sent_at, patience;
    bool unclaimed; /* no op waits for the reply; counted in connection->unclaimed */
    struct consul_entry *entry;
    struct consul_session *session;
    struct consul_name *name;
    struct consul_admin *admin;
};

struct consul_connection {
    struct consul *consul;
    unsigned number;
    enum { CONNECTION_DOWN, CONNECTION_DIALLED, CONNECTION_UP } state;
    struct http_response response;
    uint64_t index;            /* X-Consul-Index of the response that is being read */
    struct consul_call *calls; /* list of calls in flight; the first one is answered next */
    uint32_t in_flight, unclaimed;
    nanos since;   /* time of the dial */
    nanos read_at; /* time when the last bytes arrived */
    struct redial redial;
    hf_status status; /* reason why the connection is down */
    char why[320];    /* that reason in words */
    /* the connection is dropped before the engine returns to its driver */
    bool is_broken;
    bool was_up;              /* the connection was up at least once */
    struct consul_name *name; /* name whose query uses this connection; NULL: unused */
};

/* ---- Sessions ---- */

struct consul_session {
    struct session base;
    char id[CONSUL_SESSION_TEXT + 1];
    struct consul_call *renewal;
    uint64_t epoch;        /* modify index of the epoch's key; 0: no such key */
    bool must_raise_epoch; /* a transaction of unknown outcome may still be in flight */
    bool raising;          /* a change of the epoch's key is in flight */
    bool has_left_hold;    /* a hold on the session was forgotten without a release */
};

/* ---- Names ---- */

/* What a view knows of an entry, beside its struct queue_entry. */
struct view_row {
    uint64_t hash; /* hash of the key's part behind the name */
    uint64_t changed;
    /* attempt id; "": an entry of another program */
    char tail[CONSUL_ID_TEXT + 1];
    char session[CONSUL_SESSION_TEXT + 1];
    char value[CONSUL_VALUE_MAX + 1];
};

/* The key .lock of a name. */
struct view_lock {
    bool exists;
    bool is_held; /* a session has locked the key */
    /* attempt id in the key's value; "": the value of another program */
    char attempt[CONSUL_ID_TEXT + 1];
    char session[CONSUL_SESSION_TEXT + 1];
    uint64_t changed, token;
};

enum query_target { QUERY_NONE, QUERY_LOCK, QUERY_ENTRY, QUERY_TREE };

/* The id of an entry that was released, and the highest index that any of the entry's keys had. */
struct free_id {
    char id[CONSUL_ID_TEXT + 1];
    uint64_t ended;
};

struct consul_name {
    struct consul_name *next;
    /* PREFIX NAME /, with room for an attempt id behind the slash: consul_value_key() */
    char *base;
    size_t base_len;
    struct consul_entry *entries; /* entries of this client */
    struct queue_entry *queue;    /* sorted by arrival */
    struct view_row *row;
    size_t count, room;
    struct view_lock lock;
    uint64_t index;                  /* X-Consul-Index of the queue; 0: the queue was not read */
    bool shared;                     /* some request for the name is for a shared lock */
    struct consul_connection *query; /* connection of the name's blocking query; NULL: none */
    enum query_target target;        /* key that the last query watched */
    /* QUERY_ENTRY: the index at which the watched entry was created */
    uint64_t watched;
    uint64_t query_index;  /* X-Consul-Index that the query returned; 0: none */
    uint64_t caught_up_to; /* query_index for which the queue was last read */
    struct consul_call *reading;
    bool reads_again;  /* something happened after the read in flight was sent: read again */
    uint32_t deleting; /* number of releases in flight */
    nanos unused_at;   /* time when the last entry left; the view is kept for a while after that */
    struct free_id free_id[CONSUL_FREE_IDS];
    unsigned free_ids;
};

/* ---- Entries ---- */

enum entry_stage {
    ENTRY_NONE,    /* Consul has no such key */
    ENTRY_UNKNOWN, /* Consul may have the key */
    ENTRY_QUEUED,
    ENTRY_HELD
};

/* One attempt of this client, from its first op until it is forgotten. */
struct consul_entry {
    struct consul_entry *next, **link;
    struct consul_entry *beside; /* next entry of the same name */
    struct engine_op *op;        /* NULL: forgotten, and only its deletion is awaited */
    struct engine_op sent;       /* copy of *op at the last submit */
    char id[CONSUL_ID_TEXT + 1];
    uint64_t hash; /* hash of `id`, to find its row in a view */
    /* keys with that id that last changed at this index or earlier belong to an earlier entry */
    uint64_t born_after;
    /* highest index of the keys that the release in flight deletes */
    uint64_t ends_at;
    uint64_t ended_at; /* that index, once the keys are deleted; 0: the id must not be used again */
    struct consul_name *name;
    struct consul_session *session;
    enum entry_stage stage;
    enum op_verb verb; /* verb that awaits its reply; OP_NONE: none */
    nanos asked_at;    /* time when `verb` was submitted */
    /* submit time of an unanswered ACQUIRE that `verb` has replaced; 0: there is none */
    nanos unheard_since;
    struct consul_call *call;
    /* end of the hold as told to the client; the session may live longer; 0: not known */
    nanos good_until;
    nanos take_at; /* time of the next try to take .lock; 0: not planned */
    uint64_t created, changed, token;
    unsigned tries;
    bool asked_for_lock; /* the last ACQUIRE asked for .lock as well */
    /* the entry has a place; one read of the queue will decide about several entries */
    bool awaits_view;
    bool has_waited; /* another holder came before this entry */
    bool was_read;   /* CALL_TRY_READ was answered: the request may take a place */
    /* the queue shows the entry as the holder; the session must be proven before the reply */
    bool is_granted;
    bool just_created;            /* no queue was read since the entry took its place */
    struct session_member member; /* of `session` */
    bool is_ending;               /* the entry's removal is counted in name->deleting */
    /* the entry's release has read the queue and found the entry to be the holder */
    bool ends_hold;
    /* an earlier release has an unknown outcome, so this one reports RELEASED in any case */
    bool ends_blindly;
    /* a key of the hold is missing: the others are removed before the reply */
    bool is_lost;
    bool is_watched;    /* a hold that was renewed: its keys are watched */
    bool is_done;       /* forgotten, and nothing is left to send */
    bool may_come_late; /* a request of the entry has an unknown outcome, or had one */
    hf_status refusal;  /* status to reply once its place in the queue is deleted */
    char refusal_text[320];
};

/* ---- The engine ---- */

struct consul {
    const struct wire_engine_host *host;
    struct endpoints endpoints;
    const struct endpoint *endpoint; /* server in use, or dialled last; NULL: none yet */
    char where[ENDPOINT_TEXT_MAX];   /* `endpoint` as messages show it */
    char prefix[CONSUL_PREFIX_MAX + 2];
    size_t prefix_len;
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos connect_timeout, call_timeout;
    int64_t lock_delay_ms;
    int64_t wall_offset_ms; /* wall clock minus the boot clock that `now` comes from */
    char about[160];        /* "pid host" */

    struct consul_connection connection[CONSUL_CONNECTIONS];
    struct session *sessions; /* list of struct consul_session */
    struct consul_name *names;
    struct consul_entry *entries;
    struct consul_admin *admins;
    struct consul_text body, head; /* parts of the request that is being written */
    nanos last_now;    /* last `now` passed in; needed because forget() has no time argument */
    uint32_t deleting; /* number of releases in flight, of all names */
    uint32_t leaving;  /* number of forgotten entries that are being removed */
    /* number of changes of epoch keys so far, used to give each change other Flags */
    uint64_t raises;
    bool is_known;    /* the server has answered like a Consul agent */
    bool has_backlog; /* some request is held back until others are answered */
};

static inline struct consul_connection *consul_commands(struct consul *c)
{
    return &c->connection[CONNECTION_COMMANDS];
}

/* ---- consul_connection.c ---- */

/* Dials if the connection is down and may be dialled. Returns true if it is up. */
bool consul_connection_need(struct consul_connection *connection, nanos now);
void consul_connection_field(void *connection, const char *name, const char *value);
/* Sends the request whose method and path are in c->head and whose body is c->body. Returns NULL
 * if it could not be sent. */
struct consul_call *consul_call(struct consul_connection *connection, enum call_kind kind,
                                nanos now);
/* Sends the transaction in c->body. Returns NULL if it could not be sent. */
struct consul_call *consul_call_txn(struct consul *c, enum call_kind kind, bool reads, nanos now);
/* Sends a read of all keys of a name. Returns NULL if it could not be sent. */
struct consul_call *consul_call_tree(struct consul *c, enum call_kind kind,
                                     const struct consul_name *name, nanos now);
/* Notes that no op waits for this call any more, although the entry still needs its reply. */
void consul_call_claim_none(struct consul_call *call);
/* Notes that the reply to this call is no longer needed. */
void consul_call_abandon(struct consul_call *call);
void consul_connection_drop(struct consul_connection *connection, hf_status status, const char *why,
                            nanos now);
void consul_connection_up(struct consul_connection *connection, nanos now);
void consul_connection_down(struct consul_connection *connection, hf_status status, const char *why,
                            nanos now);
void consul_connection_bytes(struct consul_connection *connection, const char *bytes, size_t len,
                             nanos now);
nanos consul_connection_tick(struct consul_connection *connection, nanos now);
/* Drops the connections that are broken. */
void consul_connections_mend(struct consul *c, nanos now);
void consul_connection_close(struct consul_connection *connection);

/* ---- consul_session.c ---- */

/* Returns the session for a ttl of `seconds`, or that of a detached attempt. NULL: no memory. */
struct consul_session *consul_session_of(struct consul *c, int64_t seconds,
                                         const struct id *attempt);
struct consul_session *consul_session_of_id(struct consul *c, const char *id);
/* Returns a session for an entry that another process made. */
struct consul_session *consul_session_adopt(struct consul *c, const struct consul_entry *entry,
                                            const char *id);
/* Returns true if the session is alive and its epoch is unchanged. Otherwise it sends what is
 * missing. */
bool consul_session_need(struct consul *c, struct consul_session *session, nanos now);
/* Returns true if no request sent on the session earlier can still take effect. */
bool consul_epoch_need(struct consul *c, struct consul_session *session, nanos now);
size_t consul_epoch_key(const struct consul *c, const struct consul_session *session, char *key,
                        size_t size);
/* Returns true if a renewal that was sent at `since` or later was answered, whether or not it is
 * proven yet. Otherwise sends a renewal. */
bool consul_session_keep(struct consul *c, struct consul_session *session, nanos since, nanos now);
/* Called when the reply to a consistent read or write has shown that the session exists, if that
 * request was sent after the last renewal was answered. */
void consul_session_prove(struct consul_session *session);
void consul_session_lost(struct consul *c, struct consul_session *session);
void consul_session_on_reply(struct consul *c, const struct consul_call *call,
                             const struct consul_reply *reply, nanos now);
nanos consul_session_tick(struct consul *c, nanos now);
void consul_session_attach(struct consul_entry *entry, struct consul_session *session);
/* The client closes: ends the sessions that are not needed. If `hurries`, ends also the sessions
 * that releases still need. */
void consul_sessions_farewell(struct consul *c, bool hurries, nanos now);
void consul_sessions_close(struct consul *c);

/* ---- consul_entry.c ---- */

/* Called when the release has deleted the entry's keys: another request may have its id. */
void consul_entry_ended(struct consul_entry *entry);
void consul_entry_submit(struct consul *c, struct engine_op *op, nanos now);
void consul_entry_forget(struct consul *c, struct engine_op *op);
/* Sends what the entry's verb needs next, unless a call for it is in flight. */
void consul_entry_advance(struct consul *c, struct consul_entry *entry, nanos now);
/* Calls consul_entry_advance() for all entries. */
void consul_entries_advance(struct consul *c, nanos now);
void consul_entry_reply(struct consul *c, struct consul_entry *entry, struct engine_reply reply);
void consul_entry_fail(struct consul *c, struct consul_entry *entry, hf_status status,
                       const char *text, nanos retry_at);
void consul_entries_reap(struct consul *c); /* Drops the entries that are done. */
void consul_entry_attach_call(struct consul_entry *entry, struct consul_call *call);
void consul_entry_send_take(struct consul *c, struct consul_entry *entry, nanos now);
void consul_entry_send_claim(struct consul *c, struct consul_entry *entry, nanos now);
void consul_entry_send_verify(struct consul *c, struct consul_entry *entry, nanos now);
/* Returns true if a forgotten place must be removed once there is a connection: it would hold up
 * the queue while its session lives. */
bool consul_entry_tries_on(const struct consul_entry *entry, hf_status status);
/* Fails the requests that were not sent, because the server cannot be reached. */
void consul_entries_fail_unsent(struct consul *c, const struct consul_connection *connection);
void consul_entries_notify_waiters(struct consul *c);
void consul_entry_set_stage(struct consul_entry *entry, enum entry_stage stage);
nanos consul_entries_tick(struct consul *c, nanos now);
void consul_entries_close(struct consul *c);

/* ---- consul_release.c ---- */

/* Begins to remove the keys of an entry, or continues. */
void consul_release_begin(struct consul *c, struct consul_entry *entry, nanos now);
/* Passes a .lock that arrived out of turn to the first in the queue. */
void consul_release_pass(struct consul *c, struct consul_entry *entry, nanos now);
void consul_release_on_reply(struct consul *c, struct consul_entry *entry, enum call_kind kind,
                             const struct consul_reply *reply, nanos now);
/* Called when the removal of an entry has ended, or was given up. */
void consul_release_over(struct consul *c, struct consul_entry *entry);

/* ---- consul_replies.c ---- */

/* Handles the reply to a call of an entry. */
void consul_entry_on_reply(struct consul *c, struct consul_call *call,
                           const struct consul_reply *reply, nanos now);
/* Handles that a call of an entry was cut: the call may have been carried out, unless
 * not_processed. */
void consul_entry_on_cut(struct consul *c, struct consul_call *call, bool not_processed,
                         hf_status status, const char *text, nanos now);
void consul_entry_reply_refusal(struct consul *c, struct consul_entry *entry);
/* Decides about an entry with a place, by the queue that was read: grants it, refuses it, or keeps
 * it waiting. */
void consul_entry_decide(struct consul *c, struct consul_entry *entry, nanos now);
/* Grants the entry, because it holds. With `token` 0 it must be written once more to get a
 * token. */
void consul_entry_granted(struct consul *c, struct consul_entry *entry, uint64_t token, nanos now);
void consul_entry_continue_grant(struct consul *c, struct consul_entry *entry, nanos now);
void consul_entry_lose(struct consul *c, struct consul_entry *entry);
void consul_entry_again(struct consul *c, struct consul_entry *entry, nanos now);

/* ---- consul_view.c ---- */

struct consul_name *consul_name_of(struct consul *c, const char *name, size_t len);
/* Takes the keys of the name from a reply, as of `index`. Returns false without memory. */
bool consul_view_take(struct consul_name *name, const struct consul_reply *reply, uint64_t index);
void consul_view_take_lock(struct consul_name *name, const struct consul_pair *pair);
/* Judges the queue. Returns the entry's row, or -1 if it is not in the queue. */
ptrdiff_t consul_view_judge(struct consul_name *name, const struct consul_entry *entry);
/* Returns true if the request would hold if it were appended to the queue. */
bool consul_view_would_hold(struct consul_name *name, const struct consul_entry *entry);
/* Returns true if .lock names the entry. */
bool consul_view_has_lock(const struct consul_entry *entry);
/* Returns true if the queue, as read during the hold, shows an exclusive waiter behind it. */
bool consul_view_knows_next(const struct consul_entry *entry);
bool consul_view_is_busy(const struct consul_name *name);
void consul_view_drop_row(struct consul_name *name, ptrdiff_t row);
/* Sends a query for the name if a waiter, or a hold that is watched, needs one. */
void consul_view_need(struct consul *c, struct consul_name *name, nanos now);
void consul_view_read(struct consul *c, struct consul_name *name, nanos now);
void consul_view_catch_up(struct consul *c, struct consul_name *name, nanos now);
void consul_view_on_query(struct consul *c, struct consul_name *name,
                          const struct consul_reply *reply, nanos now);
void consul_view_on_read(struct consul *c, struct consul_name *name,
                         const struct consul_reply *reply, nanos now);
void consul_view_query_lost(struct consul *c, struct consul_connection *connection);
bool consul_name_is_wanted(const struct consul_name *name);
nanos consul_views_tick(struct consul *c, nanos now);
uint64_t consul_view_hash(const char *text, size_t len);
void consul_views_close(struct consul *c);

/* ---- consul_value.c ---- */

/* An entry as it is stored. */
struct consul_value {
    struct queue_entry queue;
    int64_t ttl_ms, at_ms, pid;
    uint64_t token; /* 0: the value has no token */
    bool detached;
    char host[65], label[HF_LABEL_MAX + 1];
};
/* Writes the value of an entry. Returns its length. */
size_t consul_value_write(const struct consul *c, const struct consul_entry *entry,
                          char out[CONSUL_VALUE_MAX + 1], nanos now);
/* Writes the value of .lock: the attempt, and the value of its entry. Returns its length. */
size_t consul_value_lock(char out[CONSUL_VALUE_MAX + 1], const char *attempt, const char *value);
/* Reads a pair below a name's base; `tail` is the rest of its key. Returns false if the key is not
 * an entry: such a key of another program is ignored. */
bool consul_value_read(struct consul_value *value, const struct consul_pair *pair,
                       struct slice tail);
/* Reads .lock. If the value is ours, `value` receives its part that describes an entry; may be
 * NULL. */
struct view_lock consul_value_read_lock(const struct consul_pair *pair, struct consul_value *value);
bool consul_value_is_lock(struct slice tail);
bool consul_value_is_own(struct slice tail);
/* Writes the name to `out`, encoded so that it has no "/", and returns the length. With a "/"
 * behind it, no name is a prefix of another. */
size_t consul_value_encode_name(char *out, const char *name, size_t len);
size_t consul_value_decode_name(char *out, size_t size, const char *name, size_t len);
void consul_value_id(const struct id *id, char text[CONSUL_ID_TEXT + 1]);
/* Returns a key of the name, in a buffer that the next call for the same name overwrites. */
struct slice consul_value_key(const struct consul_name *name, const char *tail);
#define CONSUL_LOCK_TAIL ".lock"

/* ---- consul_admin.c, consul_diagnose.c ---- */

void consul_admin_submit(struct consul *c, struct engine_op *op, nanos now);
void consul_admin_forget(struct consul *c, struct engine_op *op);
void consul_admin_on_reply(struct consul *c, struct consul_call *call,
                           const struct consul_reply *reply, nanos now);
void consul_admin_on_cut(struct consul *c, struct consul_call *call, const char *why);
void consul_admins_advance(struct consul *c, nanos now);
void consul_admins_fail(struct consul *c, const struct consul_connection *connection);
void consul_admins_close(struct consul *c);
