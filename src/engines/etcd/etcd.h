/* etcd.h - the engine for etcd (API v3): its structs, and how it works.
 *
 * Keys. Each request for a lock is one key, its *entry*, below the name of the lock: PREFIX NAME /
 * ATTEMPT. Entries are ordered by their creation, and who holds is a pure function of the list
 * (core/entry_order.h). No record says who holds, so no client has to change one: taking a lock is
 * one write, releasing it is another, and a handoff is the deletion of the entry ahead, which the
 * next waiter sees by its watch. `etcdctl lock` and clientv3's Mutex put their keys into the same
 * place: they stand in the same queue.
 *
 * Liveness. An entry lives as long as the etcd lease that it is attached to. A *session* is such a
 * lease with its renewals; holds with the same ttl in whole seconds share one. A request that may
 * wait begins on the *door* session, which lasts 5 s at most: a waiter that dies holds up the queue
 * no longer than that. The first EXTEND of its hold moves the entry to the session of its ttl. A
 * detached hold has a lease of its own.
 *
 * Belief. A hold is good from when the request was sent that proved its session, for as long as the
 * server granted. A keepalive proves nothing by itself: a leader that lost its place may still
 * acknowledge it. It counts only when a later quorum read, answered by the same member in the same
 * Raft term, has shown our entry.
 *
 * Unknown outcome. A transaction that takes a place compares the client's *epoch*, a key of its
 * own. If a connection broke with such transactions unanswered, the next write raises the epoch:
 * what has not happened by then never will. After that each attempt asks again (same key, same
 * grant), or its entry is deleted.
 *
 * Views. A client that waits for a name watches its keys from now on, on a connection of its own,
 * and keeps the list. Exclusive waiters watch deletions alone; for the other kinds the list is an
 * exact copy of one revision, because a reader that became the writer still has its old entry. An
 * old list can only delay a grant. If the watch began later than the list was read, the list is
 * read again. A watch that broke begins anew; it never resumes at a revision, so a compaction does
 * no harm.
 *
 * Tokens. The token of a hold is a revision between the change that let it in and the deletion of
 * its entry. Exclusive holds and writers take the revision at which their client learned of it;
 * readers and permits overlap, so each that waited writes its own entry and has that revision.
 *
 * Files: etcd.c the functions of engine.h and the URL; etcd_connection.c connections and calls;
 * etcd_session.c sessions and the epoch; etcd_entry.c requests for locks; etcd_replies.c their
 * replies; etcd_renewal.c renewals of all holds of a session together; etcd_convert.c upgrade and
 * downgrade; etcd_resize.c the capacity of a resized semaphore; etcd_view.c lists and watches;
 * etcd_value.c keys and values; etcd_lock_delay.c the setting of that name; etcd_admin.c list and
 * break; etcd_diagnose.c findings; etcd_messages.c messages; protobuf.c and http2.c the wire. */
#pragma once
#include "block_pool.h"
#include "core/entry_order.h"
#include "core/timing.h"
#include "engines/kit/endpoints.h"
#include "engines/kit/redial.h"
#include "engines/kit/session_list.h"
#include "engines/wire_engine.h"
#include "etcd_messages.h"
#include "http2.h"

#include <assert.h>

extern const struct wire_engine_type etcd_wire_engine;

#define ETCD_LIMITS                                                                                \
    {                                                                                              \
        .ttl_min_ms = 1000, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,     \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,         \
        .offers = ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_CAN_BREAK |    \
                  ENGINE_CAN_CONVERT | ENGINE_CAN_RESIZE | ENGINE_NO_BARGING                       \
    }

enum {
    ETCD_PREFIX_MAX = 128,
    ETCD_ID_TEXT = 32,
    ETCD_VALUE_MAX = 400,
    ETCD_DOOR_S = 5, /* longest ttl of the door session */
    /* longest queue of a name: the server sorts all entries for each request */
    ETCD_WAITERS_MAX = 5000,
    /* calls for entries in flight; more would only wait inside the server */
    ETCD_IN_FLIGHT_MAX = 64,
    ETCD_LIST_MAX = 64 /* entries of an exclusive lock that a client reads at once */
};

/* Longest ttl of a lease in etcd, in seconds. */
#define ETCD_LEASE_TTL_MAX INT64_C(9000000000)
#define ETCD_CALL_TIMEOUT NANOS_OF_MS(1000)
/* EXTENDs that come within this time share a keepalive. */
#define ETCD_SHARE NANOS_OF_MS(50)
/* A hold that was granted after a wait notes its token in its entry, if it lasts this long. */
#define ETCD_SETTLE NANOS_OF_MS(100)
#define ETCD_VIEW_KEPT NANOS_OF_MS(10000)

enum { CONNECTION_COMMANDS, CONNECTION_WATCHES, CONNECTIONS };

struct etcd;
struct etcd_entry;
struct etcd_name;
struct etcd_session;
struct etcd_admin;
struct etcd_proof; /* etcd_renewal.c */

/* ---- Calls ---- */

enum call_kind {
    CALL_AUTHENTICATE,
    CALL_GRANT_LEASE, /* begins a session */
    CALL_KEEP_ALIVE,  /* renews a session */
    CALL_RAISE_EPOCH,
    CALL_PROVE_DOOR, /* reads the epoch's key, to prove a keepalive of the door session */
    CALL_ACQUIRE,
    CALL_TRY_READ,     /* reads the list for a request that does not wait */
    CALL_REFRESH,      /* reads the list for a waiter */
    CALL_CLAIM,        /* writes the entry of a shared hold */
    CALL_VERIFY,       /* checks that the entry exists */
    CALL_PROVE,        /* checks the entries of many holds, for their renewal */
    CALL_MOVE,         /* checks that the entry exists, and moves it to another session */
    CALL_SETTLE,       /* notes the token in the entry, for lists */
    CALL_CONVERT_READ, /* reads the list for an upgrade */
    CALL_CONVERT,      /* makes a reader the writer, or a writer a reader */
    CALL_DELETE,
    CALL_GUARD,        /* lock_delay: writes the guard, and reads those of others */
    CALL_ORPHAN_LEASE, /* lock_delay: a lease for guards whose holds ended without a release */
    CALL_ORPHAN_MARK,  /* lock_delay: attaches those guards to the lease */
    CALL_READ_VIEW,    /* reads the list, for a view */
    CALL_WATCH,        /* the stream of watches */
    CALL_ADMIN,
};

/* One call in flight. */
struct etcd_call {
    struct etcd_call *next, **link;
    struct etcd_connection *connection;
    enum call_kind kind;
    int32_t stream;
    uint64_t number;   /* consecutive number of this call in the client */
    uint64_t revision; /* highest revision seen before the call was sent */
    nanos sent_at;
    bool answered;  /* the reply's message has arrived */
    bool unclaimed; /* no op waits for the reply; counted in connection->unclaimed */
    struct etcd_entry *entry;
    struct etcd_session *session;
    int64_t lease; /* CALL_MOVE: the session's lease at that time */
    struct etcd_name *name;
    struct etcd_name *deletes_in; /* CALL_DELETE: the name that counts it in `deleting` */
    struct etcd_admin *admin;
    struct etcd_proof *proof; /* CALL_PROVE */
};

struct etcd_connection {
    struct etcd *etcd;
    unsigned number;
    enum { CONNECTION_DOWN, CONNECTION_DIALLED, CONNECTION_GREETING, CONNECTION_UP } state;
    struct http2 *http2;
    struct etcd_call *calls;
    uint32_t in_flight; /* number of calls */
    uint32_t unclaimed; /* number of calls that no op waits for */
    nanos since;        /* time of the dial */
    nanos replied_at;   /* time of the last message or end of a call */
    nanos ack_since;    /* since when acknowledgements wait for the next request; 0: none do */
    struct redial redial;
    hf_status status; /* DOWN: the reason */
    char why[320];    /* DOWN: the reason in words */
    bool is_broken;   /* the engine closes the connection as soon as nghttp2 has returned */
};

/* ---- Sessions ---- */

struct etcd_session {
    struct session base;
    int64_t lease;
    struct etcd_call *keepalive;
    /* member and term of the reply to the newest answered keepalive */
    uint64_t kept_term, kept_member;
    /* number of the last call that was sent before that keepalive was answered */
    uint64_t kept_call;
    nanos round_at; /* time of the next round; 0: none is planned */
};

/* ---- Names ---- */

/* What a view knows of an entry, beside its struct queue_entry. */
struct view_row {
    uint64_t hash; /* hash of the part of the key that follows the name */
    uint64_t changed;
    int64_t lease;
};

/* lock_delay: the guard of a hold that ended without a release. */
struct etcd_orphan {
    char id[ETCD_ID_TEXT + 1];
    uint64_t changed;
};
/* orphans of one name that are attached to a lease at once; the others follow */
enum { ORPHANS_MAX = 8 };

struct etcd_name {
    struct etcd_name *next;
    char *base; /* PREFIX NAME /, with room for an attempt id behind the slash: etcd_value_key() */
    size_t base_len;
    /* first key and end of the range of the name's entries: base_len + 1 bytes each */
    char *first, *last;
    struct etcd_entry *entries; /* entries of this client */
    struct queue_entry *queue;  /* sorted by arrival */
    struct view_row *row;
    size_t count, room;
    uint64_t read_at;  /* revision of the last read; 0: none */
    uint64_t revision; /* revision of the last read or event */
    /* shared: changes up to this revision may be missing, so a read must come before events */
    uint64_t gap;
    uint64_t total; /* number of entries at read_at */
    bool more;      /* the server has entries beyond this list */
    bool shared;    /* some request is not exclusive, so the whole list matters */
    int64_t watch;  /* number of the watch on the name's entries; 0: none */
    bool permits;   /* some request is for a semaphore, so the capacity matters */
    struct queue_resize resize;
    /* revision of the last change of the capacity's key; 0: there is no key */
    uint64_t resize_changed;
    uint64_t resize_at;   /* revision at which the capacity was read; 0: never */
    uint64_t resize_due;  /* the capacity may have changed up to this revision */
    int64_t resize_watch; /* number of the watch on the capacity's key; 0: none */
    struct etcd_call *reading;
    uint32_t deleting;                      /* number of deletions in flight */
    struct etcd_orphan orphan[ORPHANS_MAX]; /* lock_delay: guards that have no lease yet */
    unsigned orphans;
    /* time when the last waiter left; the view is kept for ETCD_VIEW_KEPT after that */
    nanos unused_at;
};

/* ---- Entries ---- */

enum entry_stage {
    ENTRY_NONE,    /* etcd has no such key */
    ENTRY_UNKNOWN, /* etcd may have the key */
    ENTRY_QUEUED,
    ENTRY_HELD
};

/* One attempt of this client, from its first op until it is forgotten. */
struct etcd_entry {
    struct etcd_entry *next, **link;
    struct etcd_entry *beside; /* next entry of the same name */
    struct engine_op *op;      /* NULL: forgotten, and only its deletion is awaited */
    struct engine_op sent;     /* copy of *op at the last submit */
    char id[ETCD_ID_TEXT + 1];
    uint64_t hash; /* hash of `id`, to find its row in a view */
    struct etcd_name *name;
    struct etcd_session *session;
    enum entry_stage stage;
    /* what the stored entry says as of revision `changed`; before the write: what to write */
    hf_kind kind;
    bool confirmed;
    enum op_verb verb; /* verb that awaits its reply; OP_NONE: none */
    nanos asked_at;    /* when `verb` was submitted */
    /* submit time of an unanswered ACQUIRE that `verb` has replaced; 0: there is none */
    nanos unheard_since;
    struct etcd_call *call;
    nanos settle_at; /* when to note the token in the entry; 0: the token is there */
    /* end of the hold as told to the client; the session may live longer; 0: not known */
    nanos good_until;
    uint64_t created, changed, token;
    uint64_t seen_at; /* newest revision at which the hold's entry was seen */
    /* send time of the newest keepalive after which the entry was seen to exist; 0: none */
    nanos shown_at;
    struct etcd_proof *proof; /* the proof in flight that has the entry; NULL: none */
    unsigned proof_at;        /* index of the entry in `proof` */
    uint64_t
        /* for a request that does not wait: revision of the list that decided; 0: none */
        try_revision;
    unsigned tries;
    /* the list shows the request as a holder; the session must be proven before the reply */
    bool is_granted;
    bool is_guarded; /* lock_delay: the entry's guard is written, and no orphan is in the way */
    nanos guard_at;  /* lock_delay: time of the next poll for orphans; 0: now */
    struct session_member member; /* of `session` */
    /* the attempt has an unknown outcome: delete its entry, if there is one */
    bool deletes_blindly;
    bool is_watched;        /* a hold that was renewed: its entry is watched */
    bool is_done;           /* forgotten, and nothing is left to send */
    int64_t watch;          /* number of the watch on this entry alone; 0: none */
    hf_status refusal;      /* status to reply once the place in the queue is deleted */
    char refusal_text[320]; /* text of that reply */
};

/* ---- The engine ---- */

struct etcd_watch {
    struct etcd_name *name;
    struct etcd_entry *entry;
    bool is_of_resize; /* the watch is on the capacity of `name` */
    bool used;
};

struct etcd {
    const struct wire_engine_host *host;
    struct endpoints endpoints;
    const struct endpoint *endpoint; /* server in use, or dialled last; NULL: none yet */
    char where[ENDPOINT_TEXT_MAX];   /* `endpoint` as messages show it */
    char token[512];                 /* the user's authentication token; "": none */
    char prefix[ETCD_PREFIX_MAX + 1];
    size_t prefix_len;
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos connect_timeout, call_timeout;
    nanos lock_delay;       /* value of the setting; 0: none */
    int64_t wall_offset_ms; /* wall clock minus the boot clock that `now` comes from */
    char about[160];        /* "pid host" */
    uint64_t cluster;       /* id of the cluster; 0: not known yet */
    uint64_t revision;      /* highest revision that was seen */
    uint64_t calls;         /* number of calls so far */

    char epoch_key[ETCD_PREFIX_MAX + 32];
    uint64_t epoch;
    /* revision of the newest known change of the epoch's key; 0: none */
    uint64_t epoch_changed;
    bool must_raise_epoch; /* a transaction of unknown outcome may still be in flight */
    bool epoch_is_set;     /* the server has the key, attached to the door session */
    bool raising;          /* a raise is in flight */

    struct etcd_connection connection[CONNECTIONS];
    struct session *sessions; /* list of struct etcd_session */
    struct etcd_session *door;
    struct etcd_name *names;
    struct etcd_entry *entries;
    struct etcd_watch *watch; /* array indexed by watch id */
    size_t watches;
    int32_t watch_stream; /* stream number of the watches; -1: none */
    struct etcd_call *watch_call;
    struct pb_writer message;
    struct block_pool pool; /* memory of entries and calls */
    nanos last_now;         /* last `now` passed in; needed because forget() has no time argument */
    struct etcd_admin *admins;
    uint32_t deleting; /* number of deletions in flight, of all names */
    bool has_backlog;  /* some request is held back until others are answered */
};

/* ---- etcd_connection.c ---- */

/* Dials if the connection is down and may be dialled. Returns true if it is up. */
bool etcd_connection_need(struct etcd_connection *connection, nanos now);
/* Sends e->message as a call of that method. Returns NULL if it could not be sent. */
struct etcd_call *etcd_call(struct etcd_connection *connection, enum call_kind kind, nanos now);
/* Notes that no op waits for this call any more, although the entry or session still needs its
 * reply. */
void etcd_call_claim_none(struct etcd_call *call);
/* Notes that the reply to this call is no longer needed. */
void etcd_call_abandon(struct etcd_call *call);
/* Closes the connection, and replies to every op in flight on it. */
void etcd_connection_drop(struct etcd_connection *connection, hf_status status, const char *why,
                          nanos now);
void etcd_connection_up(struct etcd_connection *connection, nanos now);
void etcd_connection_down(struct etcd_connection *connection, hf_status status, const char *why,
                          nanos now);
/* Sends e->message as a call for an admin op. Returns NULL if it could not be sent. */
struct etcd_call *etcd_call_path(struct etcd_connection *connection, const char *path, nanos now);
void etcd_connection_bytes(struct etcd_connection *connection, const char *bytes, size_t len,
                           nanos now);
nanos etcd_connection_tick(struct etcd_connection *connection, nanos now);
void etcd_connection_flush(struct etcd *e, nanos now);
void etcd_connection_close(struct etcd_connection *connection);

/* ---- etcd_session.c ---- */

/* Returns the session for a ttl of `seconds`, or that of a detached attempt. NULL: no memory. */
struct etcd_session *etcd_session_of(struct etcd *e, int64_t seconds, const struct id *attempt);
struct etcd_session *etcd_session_of_lease(struct etcd *e, int64_t lease);
/* Returns a session for an entry that another process made, on the lease that the entry has. */
struct etcd_session *etcd_session_adopt(struct etcd *e, const struct etcd_entry *entry,
                                        int64_t lease);
/* Returns true if the session is alive and the epoch is known to the server. Otherwise it sends
 * what is missing. */
bool etcd_session_need(struct etcd *e, struct etcd_session *session, nanos now);
bool etcd_epoch_need(struct etcd *e, nanos now);
/* Returns true if a request sent at `since` or later renewed the session, proven or not.
 * Otherwise it sends a keepalive. */
bool etcd_session_keep(struct etcd *e, struct etcd_session *session, nanos since, nanos now);
/* Handles that a quorum read or write has shown a key of the session. That proves the session if
 * the request was sent after the last keepalive was answered. */
void etcd_session_prove(struct etcd_session *session, const struct message *message);
void etcd_session_lost(struct etcd *e, struct etcd_session *session, nanos now);
void etcd_session_on_reply(struct etcd *e, struct etcd_call *call, struct message *message,
                           nanos now);
nanos etcd_session_tick(struct etcd *e, nanos now);
void etcd_session_attach(struct etcd_entry *entry, struct etcd_session *session);
void etcd_sessions_close(struct etcd *e);

static inline struct etcd_entry *etcd_entry_of_member(struct session_member *member)
{
    return (struct etcd_entry *)(void *)((char *)member - offsetof(struct etcd_entry, member));
}

/* ---- etcd_renewal.c ---- */

/* Called for an EXTEND that no caller asked for. Returns true if the hold was proven recently
 * enough to be renewed. Otherwise the entry's session begins a round, unless one is in flight. */
bool etcd_renewal_need(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Returns true if the entry's last proof is recent enough for such an EXTEND. */
bool etcd_renewal_is_recent(const struct etcd_entry *entry);
/* Returns the earliest send time of a keepalive that is recent enough. */
nanos etcd_renewal_since(const struct etcd_session *session, nanos now);
/* Notes that a request about this entry alone has shown that it exists. */
void etcd_renewal_show(struct etcd_entry *entry, const struct message *message);
/* Plans to read the entry of a hold soon, together with others: it may have been deleted unseen. */
void etcd_renewal_read_soon(struct etcd_entry *entry, nanos now);
/* Continues the round, because a keepalive was answered. */
void etcd_renewal_kept(struct etcd *e, struct etcd_session *session, nanos now);
/* Takes the entry out of its proof, because it is no longer a hold of its session. */
void etcd_renewal_leave(struct etcd_entry *entry);
void etcd_renewal_on_reply(struct etcd *e, struct etcd_call *call, struct message *message,
                           nanos now);
nanos etcd_renewal_tick(struct etcd *e, nanos now);
void etcd_proof_free(struct etcd_proof *proof);

/* ---- etcd_entry.c ---- */

void etcd_entry_submit(struct etcd *e, struct engine_op *op, nanos now);
void etcd_entry_forget(struct etcd *e, struct engine_op *op);
/* Sends what the entry's verb needs next, unless a call for it is in flight. */
void etcd_entry_advance(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Calls etcd_entry_advance() for all entries. */
void etcd_entries_advance(struct etcd *e, nanos now);
void etcd_entry_reply(struct etcd *e, struct etcd_entry *entry, struct engine_reply reply);
void etcd_entry_fail(struct etcd *e, struct etcd_entry *entry, hf_status status, const char *text,
                     nanos retry_at);
void etcd_entry_drop(struct etcd *e, struct etcd_entry *entry);
void etcd_entries_reap(struct etcd *e); /* Drops the entries that are done. */
void etcd_entry_send_claim(struct etcd *e, struct etcd_entry *entry, nanos now);
void etcd_entry_send_verify(struct etcd *e, struct etcd_entry *entry, nanos now);
void etcd_entry_send_delete(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Fails the requests that were not sent, because the server cannot be reached. */
void etcd_entries_fail_unsent(struct etcd *e, const struct etcd_connection *connection);
void etcd_entries_notify_waiters(struct etcd *e);
void etcd_entry_set_stage(struct etcd_entry *entry, enum entry_stage stage);
nanos etcd_entries_settle(struct etcd *e, nanos now);
/* Reads the list for the entry. */
void etcd_entry_send_list(struct etcd *e, struct etcd_entry *entry, enum call_kind kind, nanos now);
/* Sends e->message as a call of the entry. */
void etcd_entry_send(struct etcd *e, struct etcd_entry *entry, enum call_kind kind, nanos now);
void etcd_entries_close(struct etcd *e);

/* ---- etcd_replies.c ---- */

/* Handles the reply to a call of an entry. */
void etcd_entry_on_reply(struct etcd *e, struct etcd_call *call, struct message *message,
                         nanos now);
/* Handles that a call of an entry was cut: the call may have been carried out, unless
 * not_processed. */
void etcd_entry_on_cut(struct etcd *e, struct etcd_call *call, bool not_processed, hf_status status,
                       const char *text, nanos now);
/* Handles that a call of an entry was refused. */
void etcd_entry_on_refusal(struct etcd *e, struct etcd_call *call, const struct http2_end *end,
                           nanos now);
void etcd_entry_reply_refusal(struct etcd *e, struct etcd_entry *entry);
void etcd_entry_reply_busy(struct etcd *e, struct etcd_entry *entry);
/* Replies to a request that the list lets in, but that lock_delay still holds back. */
void etcd_entry_reply_delayed(struct etcd *e, struct etcd_entry *entry, nanos now);
void etcd_entry_continue_grant(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Sends once more what the verb needs next, a few times at most. */
void etcd_entry_again(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Handles that the entry is gone: the hold or the place is lost. */
void etcd_entry_lose(struct etcd *e, struct etcd_entry *entry);
/* Copies what a read of a hold's entry says into the client's entry. */
void etcd_entry_take(struct etcd *e, struct etcd_entry *entry, const struct key_value *pair);
/* Copies what the stored entry says into the client's entry. */
void etcd_entry_note(struct etcd_entry *entry, const struct key_value *pair);
/* Replies EXTENDED, for the ttl or for the time that is left. */
void etcd_entry_reply_extended(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Grants the entry, because the list says that it holds. */
void etcd_entry_granted(struct etcd *e, struct etcd_entry *entry, uint64_t revision, nanos now);

/* ---- etcd_convert.c ---- */

static inline bool etcd_converts(enum op_verb verb)
{
    return verb == OP_UPGRADE || verb == OP_DOWNGRADE;
}
/* Returns true if the entry already is what the verb asks for. */
bool etcd_is_converted(const struct etcd_entry *entry);
/* Sends the next request of a conversion, when the token and the session of the hold are known. */
void etcd_convert_advance(struct etcd *e, struct etcd_entry *entry, nanos now);
void etcd_convert_on_read(struct etcd *e, struct etcd_entry *entry, struct message *message,
                          nanos now);
void etcd_convert_on_reply(struct etcd *e, struct etcd_entry *entry, struct message *message,
                           nanos now);

/* ---- etcd_resize.c ---- */

/* Adds a read of the name's capacity to the transaction in e->message. */
void etcd_resize_read(struct etcd *e, const struct etcd_name *name, enum txn_branch branch);
/* Adds the condition that the capacity is still the one by which the list was judged. */
void etcd_resize_compare(struct etcd *e, const struct etcd_name *name);
/* Writes the message that creates the watch name->resize_watch. */
void etcd_resize_watch(struct etcd *e, const struct etcd_name *name);
/* Adds an operation to the transaction in e->message: it deletes the capacity if the name has no
 * entry except `own`. */
void etcd_resize_drop(struct etcd *e, const struct etcd_name *name, struct slice own);
/* Takes over the capacity from the last of these responses. If there are none, the capacity was not
 * read. */
void etcd_resize_take(struct etcd_name *name, struct pb_reader responses, uint64_t revision);
/* Returns true if the entry can never become a holder. */
bool etcd_resize_is_too_big(const struct etcd_name *name, const struct queue_entry *entry);

/* ---- etcd_lock_delay.c ---- */

/* Adds the deletion of the entry's guard to the transaction in e->message. */
void etcd_guard_delete(struct etcd *e, const struct etcd_entry *entry);
/* Returns true if the request may be granted. Otherwise it sends what is missing, or waits for a
 * reply. */
bool etcd_guard_need(struct etcd *e, struct etcd_entry *entry, nanos now);
/* Handles the reply to the transaction that writes the guard. */
void etcd_guard_on_reply(struct etcd *e, struct etcd_entry *entry, struct message *message,
                         nanos now);
void etcd_guard_on_lease(struct etcd *e, struct etcd_entry *entry, const struct message *message,
                         nanos now);
void etcd_guard_on_marked(struct etcd *e, struct etcd_entry *entry, nanos now);
nanos etcd_guards_tick(struct etcd *e, nanos now);

/* ---- etcd_view.c ---- */

struct etcd_name *etcd_name_of(struct etcd *e, const char *name, size_t len);
/* Replaces the list by the pairs of a read of the whole range as of `revision`, unless the list is
 * newer. Returns false without memory. */
bool etcd_view_take(struct etcd *e, struct etcd_name *name, struct message *read,
                    uint64_t revision);
/* Judges the list. Returns the entry's row, or -1 if it is not in the list. */
ptrdiff_t etcd_view_judge(struct etcd_name *name, const struct etcd_entry *entry);
/* Replaces the list by the reply to a read. Takes over the capacity if the reply has it. */
bool etcd_view_take_reply(struct etcd *e, struct etcd_name *name, struct message *reply);
/* Copies the row's values into the entry. */
void etcd_view_note(const struct etcd_name *name, ptrdiff_t row, struct etcd_entry *entry);
/* Returns true if the request would hold if it were appended to the list. */
bool etcd_view_would_hold(struct etcd_name *name, const struct etcd_entry *entry);
/* Grants or refuses every waiter of the name for which the list is enough to decide. */
void etcd_view_decide(struct etcd *e, struct etcd_name *name, nanos now);
/* Begins to watch the name, because a request waits for it. */
void etcd_view_need(struct etcd *e, struct etcd_name *name, nanos now);
void etcd_view_read(struct etcd *e, struct etcd_name *name, nanos now);
void etcd_view_on_watch(struct etcd *e, const char *bytes, size_t len, nanos now);
void etcd_view_on_read(struct etcd *e, struct etcd_call *call, struct message *message, nanos now);
/* Call etcd_views_lost() when the stream of watches has ended with its connection, and
 * etcd_views_resume() when a new connection is up. */
void etcd_views_lost(struct etcd *e);
void etcd_views_resume(struct etcd *e, nanos now);
void etcd_view_watch_entry(struct etcd *e, struct etcd_entry *entry, nanos now);
void etcd_view_unwatch(struct etcd *e, int64_t watch);
bool etcd_views_wanted(const struct etcd *e);
bool etcd_views_listening(const struct etcd *e);
nanos etcd_views_tick(struct etcd *e, nanos now);
/* Watches all changes of the name's entries from now on, because a request that is not exclusive
 * uses the name. */
void etcd_view_share(struct etcd *e, struct etcd_name *name);
/* Returns the part of the key that follows the name's base; empty if the key has another base. */
struct slice etcd_view_tail(const struct etcd_name *name, struct slice key);
struct range_request etcd_view_range(const struct etcd_name *name, bool whole);
uint64_t etcd_view_hash(const char *text, size_t len);
void etcd_views_close(struct etcd *e);

/* ---- etcd_value.c ---- */

/* An entry as it is stored. */
struct etcd_value {
    struct queue_entry queue;
    int64_t ttl_ms, at_ms, pid;
    uint64_t token; /* 0: the value has no token */
    bool detached;
    char host[65], label[HF_LABEL_MAX + 1];
};
/* The fields of an entry that are not in its request. */
struct etcd_state {
    hf_kind kind;
    bool confirmed;
    bool new_token; /* the token is the revision of this write */
};
/* Writes the value of an entry. Returns its length. */
size_t etcd_value_write(const struct etcd *e, const struct etcd_entry *entry,
                        struct etcd_state state, char out[ETCD_VALUE_MAX], nanos now);
/* Writes a value that was read. Returns its length. */
size_t etcd_value_print(const struct etcd_value *value, char out[ETCD_VALUE_MAX]);
/* Reads a pair below a name's base; `tail` is the rest of its key. Returns false if the key is not
 * an entry: such a key of another program is ignored. */
bool etcd_value_read(struct etcd_value *value, const struct key_value *pair, struct slice tail);
/* Appends the name to `out`, encoded so that no name is a prefix of another. Returns its length. */
size_t etcd_value_encode_name(char *out, const char *name, size_t len);
size_t etcd_value_decode_name(char *out, size_t size, const char *name, size_t len);
void etcd_value_id(const struct id *id, char text[ETCD_ID_TEXT + 1]);
/* Returns the key of an entry, in a buffer that the next call for the same name overwrites. */
struct slice etcd_value_key(const struct etcd_entry *entry);

/* ---- etcd_admin.c, etcd_diagnose.c ---- */

void etcd_admin_submit(struct etcd *e, struct engine_op *op, nanos now);
void etcd_admin_forget(struct etcd *e, struct engine_op *op);
void etcd_admin_on_reply(struct etcd *e, struct etcd_call *call, const char *bytes, size_t len,
                         nanos now);
void etcd_admin_on_end(struct etcd *e, struct etcd_call *call, const struct http2_end *end,
                       nanos now);
void etcd_admins_advance(struct etcd *e, nanos now);
void etcd_admins_fail(struct etcd *e, const struct etcd_connection *connection);
void etcd_admins_close(struct etcd *e);
void etcd_diagnose_begin(struct etcd *e, struct etcd_admin *admin, nanos now);
