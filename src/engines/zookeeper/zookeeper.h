/* zookeeper.h - the engine for ZooKeeper (3.5 or newer): its structs, and how it works.
 *
 * Nodes. A lock is a container node, ROOT/NAME. Each request for it is one ephemeral sequential
 * child, its *place*. The server numbers the places, and who holds is a pure function of their
 * names (core/entry_order.h). So taking a lock is one write, releasing it is another, and a handoff
 * is the deletion of the place ahead, which the next waiter watches. Curator's and go-zk's locks
 * put their nodes beside ours: they stand in the same queue.
 *
 * Liveness. A place lives as long as the session that made it. A session is one connection; holds
 * with the same ttl share one, whose timeout is 3/2 of the ttl. A detached hold, and an attempt
 * that the caller named, has a *private* session: its id and password are in the data of the place,
 * so that another process can go on with it. A private session is connected only while something is
 * in flight for it.
 *
 * Belief. A follower that is cut off from its leader answers pings for seconds after the leader has
 * ended the session. So a ping proves nothing, and an answered quorum write does. But a write that
 * goes through a follower does not restart the leader's timer either: the follower reports its
 * sessions when the leader asks, every half tick, and half a tick is at most a quarter of a
 * session's timeout. So the client takes a write that was answered, and the newest request that had
 * its reply at least a quarter of the timeout before that write was sent. A hold is good for the
 * timeout, counted from when that request was sent; or from the greeting of the connection, which
 * the leader itself confirms. A request without a reply counts for nothing: it may reach the
 * follower together with the write. Pings at a sixteenth of the timeout keep that loss small.
 * core/session.h keeps the time that is proven so, and the members that are lost with a session.
 *
 * Unknown outcome. If a connection breaks with the creation of a place unanswered, the session is
 * taken up again, here or on another server. By then every request of the old connection has been
 * carried out or refused: a list behind a sync shows whether the place is there, by the attempt in
 * its name. If the session expired, nothing is left of it.
 *
 * Old lists. A server may lag behind. A server that replies to a creation has all earlier changes.
 * So a list read after that reply has every place ahead that was not deleted for good. An old list
 * only delays a grant.
 *
 * Tokens. The token of a hold is the creation (czxid) of its place. Grants follow the order of
 * creation, so tokens rise.
 *
 * Files: zookeeper.c the door and the URL; zk_session.c sessions, their connections and belief;
 * zk_call.c requests in flight; zk_entry.c requests for locks; zk_replies.c their replies;
 * zk_list.c lists and watches; zk_place.c names and data of places; zk_admin.c list and break;
 * zk_diagnose.c findings, with zk_words.c; zk_messages.c and jute.c the wire. */
#pragma once
#include "core/entry_order.h"
#include "core/timing.h"
#include "engines/kit/connection_numbers.h"
#include "engines/kit/endpoints.h"
#include "engines/kit/pipeline.h"
#include "engines/kit/redial.h"
#include "engines/kit/session_list.h"
#include "engines/wire_engine.h"
#include "zk_messages.h"

#include <assert.h>
#include <stddef.h>

extern const struct wire_engine_type zookeeper_wire_engine;

#define ZOOKEEPER_LIMITS                                                                           \
    {                                                                                              \
        .ttl_min_ms = 300, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,      \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,         \
        .offers = ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_CAN_BREAK |    \
                  ENGINE_NO_BARGING                                                                \
    }

enum {
    ZK_ROOT_MAX = 128,
    ZK_BUCKETS = 256, /* buckets for the locks of a session */
    ZK_ID_TEXT = 32,
    ZK_DATA_MAX = 512,
    /* number of shared sessions (one per ttl); there may be private ones besides */
    ZK_SHARED_MAX = 16,
    ZK_TOUCHES = 32,   /* number of answered requests that a session remembers */
    ZK_PING_PART = 16, /* a session with places is pinged after 1/16 of its timeout */
    ZK_IDLE_PART = 4,  /* a session without places is pinged after 1/4 of its timeout */
    /* most holds and waiters of a name together. Lists grow with them: Java clients refuse lists of
     * more than 1 MB (jute.maxbuffer), our own codec more than JUTE_FRAME_MAX. */
    ZK_PLACES_MAX = 10000,
    /* requests in flight; a server stops reading at its own globalOutstandingLimit */
    ZK_IN_FLIGHT_MAX = 1000,
};

#define ZK_CALL_TIMEOUT NANOS_OF_MS(1000)
/* shortest time-out of a call: the ensemble writes to disk first */
#define ZK_CALL_LEAST NANOS_OF_MS(200)
/* time after which a private session is refreshed: another process may take over its connection */
#define ZK_PRIVATE_REFRESH NANOS_OF_MS(1000)
#define ZK_IDLE_CLOSE NANOS_OF_MS(30000)

struct zk;
struct zk_admin;
struct zk_entry;
struct zk_lock;
struct zk_session;

/* ---- Calls ---- */

enum zk_call_kind {
    CALL_BEAT,   /* a quorum write, to prove the session */
    CALL_MAKE,   /* creates a node above a place */
    CALL_CREATE, /* creates a place */
    CALL_LIST,   /* reads the places of a lock, for all its waiters */
    CALL_SYNC,   /* sent before CALL_FIND; its reply is ignored */
    CALL_FIND,   /* reads the places, to see whether an attempt has one */
    CALL_READ,   /* reads the data of a place that another process made */
    CALL_WATCH,  /* sets a watch on the place ahead */
    CALL_SEE,    /* checks the entry's own place and sets a watch on it */
    CALL_NOTE,   /* writes a longer ttl into the data of the place */
    CALL_DELETE,
    CALL_ADMIN,
    CALL_CLOSE, /* ends the session */
};

/* One request in flight. Replies come in the order of the requests. */
struct zk_call {
    struct flight flight; /* send time and number; the number is the xid */
    enum zk_call_kind kind;
    bool unclaimed; /* no op waits for the reply; counted in session->unclaimed */
    bool deletes;   /* the request deletes a place; counted in zk->deleting */
    /* time at which the leader knew the session, if this write is answered */
    nanos touched_at;
    struct zk_entry *entry;
    struct zk_lock *lock;
    struct zk_admin *admin;
    uint32_t index; /* CALL_ADMIN: index of the row that is read */
};

/* ---- Sessions ---- */

struct zk_session {
    struct session base; /* first field: kit/session_list.h; its ttl is in milliseconds */
    struct zk *zk;
    int number; /* number of the session's connection; -1: none */
    enum { SESSION_DOWN, SESSION_DIALLED, SESSION_GREETING, SESSION_UP } state;
    int64_t id; /* id at the server; 0: none yet */
    char password[ZK_PASSWORD_MAX];
    size_t password_len;
    /* timeout to ask the server for; timeout that the server granted */
    int32_t wanted_ms, timeout_ms;
    int64_t zxid; /* newest zxid that was seen */
    int32_t xid;

    unsigned first; /* index of the server to dial if no dial failed */
    struct redial redial;
    char where[ENDPOINT_TEXT_MAX];
    nanos since;      /* time of the dial */
    nanos greeted_at; /* time when the greeting was sent */
    hf_status status; /* reason why the session is down */
    char why[320];    /* that reason in words */
    bool is_broken;   /* the connection is dropped before the engine returns to its driver */
    bool is_over;     /* base.is_private: the hold was released */
    bool is_closing;  /* CALL_CLOSE was sent */
    bool must_redial; /* redials for a longer timeout once nothing is in flight */

    struct jute_inbox inbox;
    struct pipeline calls;
    uint32_t unclaimed; /* number of calls that no op waits for */
    nanos answered_at;  /* time of the last reply, pings aside */
    nanos pinged_at;    /* time when the first unanswered ping was sent; 0: none */
    nanos sent_at;      /* time when anything was sent */
    /* ring of the answered requests on this connection */
    struct {
        nanos sent_at, answered_at;
    } touch[ZK_TOUCHES];
    unsigned touches;
    nanos written_at; /* send time of the newest write that was answered; 0: none */
    bool is_beating;  /* a CALL_BEAT is in flight */
    nanos beat_sent_at;

    struct zk_lock *locks, *bucket[ZK_BUCKETS];
    unsigned watched; /* number of entries whose place is watched */
    nanos unused_at;  /* time when the last entry left */
};

/* A lock as one session knows it. */
struct zk_lock {
    struct zk_lock *next, **link; /* links of session->locks */
    struct zk_lock *same_hash;    /* next lock in its bucket */
    struct zk_lock *loose;        /* next lock in zk->loose */
    bool is_loose;
    struct zk_session *session;
    uint32_t hash;
    char *path;
    struct zk_entry *entries;
    uint32_t lists;   /* number of reads in flight */
    bool lists_again; /* something happened since the last read was sent: read again */
    bool has_permits; /* the lock is a semaphore: every change of the children matters */
};

/* ---- Entries ---- */

enum entry_stage {
    ENTRY_NONE,    /* the attempt has no place */
    ENTRY_UNKNOWN, /* the attempt may have a place */
    ENTRY_QUEUED,
    ENTRY_HELD
};

/* One attempt of this client, from its first op until it is forgotten. */
struct zk_entry {
    struct zk_entry *next, **link;
    struct zk_entry *beside; /* next entry of the same lock */
    struct session_member member;
    struct engine_op *op;  /* NULL: forgotten, and only its deletion is awaited */
    struct engine_op sent; /* copy of *op at the last submit */
    char id[ZK_ID_TEXT + 1];
    struct zk_lock *lock;
    enum entry_stage stage;
    enum op_verb verb; /* verb that awaits its reply; OP_NONE: none */
    nanos asked_at;    /* time when `verb` was submitted */
    /* submit time of an unanswered ACQUIRE that `verb` has replaced; 0: there is none */
    nanos unheard_since;
    uint32_t in_flight; /* number of the entry's own calls in flight */
    char *place;        /* path of the entry's place; NULL: not known */
    char *ahead;        /* path of the place ahead that is watched; NULL: none */
    int32_t sequence;
    uint64_t created;     /* czxid of the entry's place; 0: not known */
    nanos good_until;     /* end of the hold as told to the client; 0: not known */
    int64_t noted_ttl_ms; /* ttl in the data of the entry's place */
    unsigned tries;
    /* the list shows the entry as a holder; the session must be proven before the reply */
    bool is_granted;
    bool is_seen;           /* the entry's place is watched on this connection */
    bool is_elsewhere;      /* another process made the place, or may have made it */
    bool makes_parents;     /* the next creation also creates the nodes above */
    bool was_held;          /* the request became a holder as soon as it took its place */
    bool was_deleted;       /* a deletion with unknown outcome was sent */
    int32_t make_error;     /* error of creating a node above the place */
    bool is_done;           /* forgotten, and nothing is left to send */
    hf_status refusal;      /* status to reply once the place is deleted */
    char refusal_text[320]; /* that reason in words */
};

/* ---- The engine ---- */

/* A question for a server's settings, on a connection of its own (zk_words.c). */
struct zk_words {
    struct zk_admin *admin; /* op that asks; NULL: none */
    int number;             /* number of the connection */
    nanos end;              /* the server must have answered by then */
    char text[4096];        /* the newest answer */
    size_t len;
};

struct zk {
    const struct wire_engine_host *host;
    struct endpoints endpoints;
    char root[ZK_ROOT_MAX + 1]; /* "/holdfast", without a slash at its end */
    const char *joint;          /* text between the id and the number in the name of a place */
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos connect_timeout, call_timeout;
    int64_t wall_offset_ms; /* wall clock minus the boot clock that `now` comes from */
    int64_t default_ttl_ms;
    char about[160]; /* "pid host" */

    struct session *sessions;
    struct connection_numbers numbers; /* of the sessions */
    struct zk_lock *loose;             /* list of locks that may be unused */
    struct zk_entry *entries;
    struct zk_admin *admins;
    struct zk_words words;
    struct jute_writer message;
    uint32_t deleting; /* number of deletions in flight */
    bool has_done;     /* some forgotten entry can be freed */
    bool has_backlog;  /* some request waits until others are answered */
    nanos last_now;    /* last `now` passed in; needed because forget() has no time argument */
};

static inline struct zk_session *zk_session_from(struct session *base)
{
    return (struct zk_session *)(void *)base;
}

static inline struct zk_session *zk_first_session(const struct zk *zk)
{
    return zk_session_from(zk->sessions);
}

static inline struct zk_session *zk_next_session(const struct zk_session *session)
{
    return zk_session_from(session->base.next);
}

static inline struct zk_entry *zk_entry_of_member(struct session_member *member)
{
    return (struct zk_entry *)(void *)((char *)member - offsetof(struct zk_entry, member));
}

/* ---- zk_call.c ---- */

/* Begins a request: returns the next xid, and empties zk->message for the request. */
int32_t zk_call_begin(struct zk_session *session);
/* Sends zk->message. Returns NULL on failure: the session is broken, and the call was not added.
 * The pointer is valid until the next call is sent. */
struct zk_call *zk_call_send(struct zk_session *session, enum zk_call_kind kind, nanos now);
void zk_call_claim_none(struct zk_session *session, struct zk_call *call);
/* Notes that no op needs the replies to calls of the entry any more. */
void zk_calls_unclaim(const struct zk_entry *entry);
/* Ends the calls of an owner that is about to be freed. */
void zk_calls_abandon_entry(struct zk_session *session, const struct zk_entry *entry);
void zk_calls_abandon_admin(struct zk *zk, const struct zk_admin *admin);
/* Handles a frame. Returns false if it is malformed. */
bool zk_call_on_frame(struct zk_session *session, struct jute_reader *frame, nanos now);
/* Ends every call in flight, because the connection is lost. An op that waits for one gets an
 * unknown outcome if the call could have changed something, otherwise a failure. */
void zk_calls_cut(struct zk_session *session, nanos now);

/* ---- zk_session.c ---- */

/* Returns the session of that ttl, or of that attempt. NULL: no memory, or too many. */
struct zk_session *zk_session_of(struct zk *zk, int64_t ttl_ms, const struct id *attempt);
/* Returns a session, whichever it is, that can read a list. */
struct zk_session *zk_session_any(struct zk *zk);
/* Dials if the session is down and may be dialled. Returns true if it is up. */
bool zk_session_need(struct zk_session *session, nanos now);
/* Returns the longest ttl that the session's timeout allows. */
int64_t zk_session_ttl_max(const struct zk_session *session);
/* Asks for a timeout that allows the ttl. Returns true if the session already has such a timeout;
 * false: the caller must wait. */
bool zk_session_raise(struct zk_session *session, int64_t ttl_ms);
/* Sends a quorum write, unless one is in flight. */
void zk_session_beat(struct zk_session *session, nanos now);
/* Returns a time at which the leader still knew the session, as late as possible. It is certain
 * once a quorum write that is sent now is answered. */
nanos zk_session_touched(const struct zk_session *session, nanos now);
/* Notes that a request that was sent at `sent_at` was answered at `now`. */
void zk_session_touch(struct zk_session *session, nanos sent_at, nanos now);
/* Handles the reply to a quorum write. It proves that the leader knew the session at
 * call->touched_at, so the session is good for its timeout from then on. */
void zk_session_prove(struct zk_session *session, const struct zk_call *call);
void zk_session_break(struct zk_session *session, hf_status status, const char *why);
void zk_session_expired(struct zk_session *session);
/* Makes the entry a member of that session; NULL: of none. */
void zk_session_attach(struct zk_entry *entry, struct zk_session *session);
void zk_session_up(struct zk_session *session, nanos now);
void zk_session_bytes(struct zk_session *session, const char *bytes, size_t len, nanos now);
void zk_session_down(struct zk_session *session, hf_status status, const char *why, nanos now);
/* Drops connections that are broken, closes those that are idle. */
void zk_sessions_finish(struct zk *zk, nanos now);
nanos zk_sessions_tick(struct zk *zk, nanos now);
/* The client closes: ends all sessions that need not outlive it. */
void zk_sessions_end(struct zk *zk, nanos now);
void zk_sessions_free(struct zk *zk);
static inline connection_set zk_session_bit(const struct zk_session *session)
{
    return session->number >= 0 ? connection_set_of((unsigned)session->number) : 0;
}

/* ---- zk_entry.c ---- */

void zk_entry_submit(struct zk *zk, struct engine_op *op, nanos now);
void zk_entry_forget(struct zk *zk, struct engine_op *op);
/* Sends what the entry's verb needs next, unless a call for it is in flight. */
void zk_entry_advance(struct zk *zk, struct zk_entry *entry, nanos now);
/* Calls zk_entry_advance() for all entries of a session. */
void zk_session_advance(struct zk_session *session, nanos now);
void zk_entries_advance(struct zk *zk, nanos now); /* Calls zk_entry_advance() for all entries. */
void zk_entry_reply(struct zk *zk, struct zk_entry *entry, struct engine_reply reply);
void zk_entry_fail(struct zk *zk, struct zk_entry *entry, hf_status status, const char *text,
                   nanos retry_at);
void zk_entry_set_stage(struct zk_entry *entry, enum entry_stage stage);
void zk_entry_forget_place(struct zk_entry *entry);
/* Tells the client to check its hold, or to send its request again, if the entry awaits no
 * reply. */
void zk_entry_notify(struct zk *zk, struct zk_entry *entry);
/* Handles that the place of the entry is lost. */
void zk_entry_lose(struct zk *zk, struct zk_entry *entry);
/* Fails the requests that were not sent, because the session cannot be reached. */
void zk_entries_fail_unsent(struct zk_session *session);
bool zk_entry_move(struct zk_entry *entry, struct zk_session *to);
void zk_entry_send_create(struct zk *zk, struct zk_entry *entry, nanos now);
void zk_entry_send_delete(struct zk *zk, struct zk_entry *entry, nanos now);
/* Returns true if this EXTEND must write its ttl into the data of the place. */
bool zk_entry_must_note(const struct zk_entry *entry);
/* Replaces the data of the place. */
void zk_entry_send_note(struct zk *zk, struct zk_entry *entry, struct jute_bytes data, nanos now);
void zk_entry_send_watch(struct zk_entry *entry, nanos now);
void zk_entries_reap(struct zk *zk); /* Drops the entries that are done. */
void zk_entries_close(struct zk *zk);

/* ---- zk_replies.c ---- */

void zk_entry_on_reply(struct zk *zk, struct zk_call *call, struct zk_header *header,
                       struct jute_reader *body, nanos now);
/* Handles that a call of an entry was cut: the call may have been carried out. */
void zk_entry_on_cut(struct zk *zk, const struct zk_call *call, nanos now);
/* Grants the entry, because a list or an event says that it holds. */
void zk_entry_granted(struct zk *zk, struct zk_entry *entry, nanos now);
void zk_entry_continue_grant(struct zk *zk, struct zk_entry *entry, nanos now);
/* Refuses the request: deletes its place first, and replies after that. */
void zk_entry_refuse(struct zk *zk, struct zk_entry *entry, hf_status status, const char *text,
                     nanos now);

/* ---- zk_list.c ---- */

struct zk_lock *zk_lock_of(struct zk_session *session, const char *name, size_t len);
void zk_lock_list(struct zk_lock *lock, nanos now);
/* Handles the list of a lock: decides for all its waiters. */
void zk_lock_on_list(struct zk_lock *lock, struct zk_header *header, struct jute_reader *body,
                     nanos now);
/* Handles the list for an attempt that may have a place: notes the place. Returns false if there
 * is none. */
bool zk_list_find(struct zk_entry *entry, struct jute_reader *body);
void zk_list_on_event(struct zk_session *session, const struct zk_event *event, nanos now);
void zk_lock_on_cut(struct zk_lock *lock); /* Handles that the read of a list was cut. */
/* Puts a lock that may be unused into the list of zk_locks_drop_unused(). */
void zk_lock_loosen(struct zk_lock *lock);
void zk_locks_drop_unused(struct zk *zk);
void zk_locks_free(struct zk_session *session);

/* ---- zk_place.c ---- */

/* The name of a place, parsed. */
struct zk_place {
    struct queue_entry queue;
    int32_t sequence;
    char id[ZK_ID_TEXT + 1]; /* attempt id; "": a place of another program */
};
/* Reads the name of a node. Returns false if the name has no number: such a node is not a place and
 * is ignored. */
bool zk_place_read(struct zk_place *place, struct jute_bytes name);
/* Converts a number that wraps into a position counted from `from`. */
uint64_t zk_place_arrival(int32_t sequence, int32_t from);
/* Returns the path of a place, without the number that the server adds. NULL: no memory. */
char *zk_place_path(const struct zk *zk, const struct zk_entry *entry);

/* The data of a place, parsed. */
struct zk_data {
    int64_t ttl_ms, at_ms, pid;
    bool detached;
    int64_t session; /* id of the private session; 0: the session is shared */
    char password[ZK_PASSWORD_MAX];
    size_t password_len;
    char host[65], label[HF_LABEL_MAX + 1];
};
size_t zk_data_write(const struct zk *zk, const struct zk_entry *entry, char out[ZK_DATA_MAX],
                     nanos now);
/* Copies the data with another ttl. Returns the length; 0: another program wrote the data. */
size_t zk_data_with_ttl(struct jute_bytes data, int64_t ttl_ms, char out[ZK_DATA_MAX]);
/* Reads the data. Returns false if another program wrote the data. */
bool zk_data_read(struct zk_data *data, struct jute_bytes bytes);

/* Appends the name as one component of a path. Returns its length; `out` needs three bytes for
 * each byte of the name. */
size_t zk_name_encode(char *out, const char *name, size_t len);
size_t zk_name_decode(char *out, size_t size, const char *text, size_t len);
void zk_id_text(const struct id *id, char text[ZK_ID_TEXT + 1]);

/* ---- zk_admin.c, zk_diagnose.c ---- */

void zk_admin_submit(struct zk *zk, struct engine_op *op, nanos now);
void zk_admin_forget(struct zk *zk, struct engine_op *op);
void zk_admin_on_reply(struct zk *zk, const struct zk_call *call, const struct zk_header *header,
                       struct jute_reader *body, nanos now);
void zk_admin_on_cut(struct zk *zk, const struct zk_call *call);
void zk_admins_advance(struct zk_session *session, nanos now);
bool zk_admins_want(const struct zk_session *session);
void zk_admins_fail(struct zk_session *session);
void zk_admins_close(struct zk *zk);

/* ---- zk_words.c ---- */

/* Returns true if this connection is that of the question. */
bool zk_words_are_on(const struct zk *zk, unsigned connection);
connection_set zk_words_bit(const struct zk *zk);
void zk_words_up(struct zk *zk);
void zk_words_bytes(struct zk *zk, const char *bytes, size_t len);
void zk_words_down(struct zk *zk);
nanos zk_words_tick(struct zk *zk, nanos now);
