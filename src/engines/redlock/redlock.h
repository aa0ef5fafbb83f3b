/* redlock.h - the engine for a quorum of independent servers: its own structs.
 *
 * Entry points, in the order in which they run:
 *
 *   redlock.c         the door (engines/wire_engine.h): open, submit, connection events, tick
 *   quorum_servers.c  reads the URL, owns one Redis engine per server, collects their replies,
 *                     and decides whether the vote of a server counts
 *   quorum_op.c       one op of the client: begins tries, and decides when to try again
 *   quorum_try.c      one try: sends a request to every server, and matches the replies
 *   quorum_rounds.c   folds the votes of one round (quorum.c) into a reply to the client
 *   silence.c         decides which servers a round does not wait for
 *   try_failed.c      a try that got no majority: tells the client why, or tries again
 *   release_all.c     undoes a try, or releases a hold, on every server
 *   places.c          the queue of the waiters
 *   redlock_admin.c   list, break, diagnose
 *
 * A *quorum op* is what the engine keeps of one op of the client. A *try* has an attempt id of its
 * own that is put on every server. A try that fails is released everywhere, on the same
 * connections and in the background. It may outlive its quorum op, until every server has
 * confirmed the release. The next try has another id.
 *
 * Policies:
 *
 * - Token: a majority of grants is not yet a hold. The highest token that any server proposed is
 *   first written to those that granted (ROUND_RAISE). Any two majorities share a server, so the
 *   next holder's token is higher.
 * - Validity counts from before the first request of the try was sent.
 * - BUSY is replied if the servers that refuse are enough to rule out a majority. While nobody is
 *   seen to hold the lock on a majority, a caller that does not wait tries again: a release may
 *   be in flight, or others try at the same time (try_failed.c).
 * - A server that was started less than max_ttl ago is asked, but its vote does not count: it may
 *   have forgotten holds.
 * - A server that is slower than the majority is asked, but no round waits for it (silence.c).
 * - Waiters have a place in a queue on every server, with one ticket each (places.c). The queue
 *   says who asks next. It grants nothing, so exclusion does not rest on it.
 *
 * docs/redlock.md has the argument why this is safe. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "core/timing.h"
#include "engines/redis/quorum_member.h"
#include "engines/wire_engine.h"
#include "quorum.h"

struct redlock;
struct quorum_op;

enum redlock_setting_id {
#define SETTING SETTING_INDEX
#include "redlock_settings.def"
#undef SETTING
};

/* One server. */
struct node {
    struct redlock *lock;
    unsigned index;
    void *redis; /* the Redis engine for it */
    struct wire_engine_host host;
    char error_text[240]; /* the last error there; "": none */
    bool silent;          /* asked, but no round waits for it: silence.c */
};

/* Values of engine_op.slot that say which struct an op of a server is part of. The `seen` of a
 * listen op is its index in quorum_op.listen_op. */
enum { SLOT_NODE_OP = 1, SLOT_LISTEN_OP };

enum { REQUESTS_MAX = 8, HOLDER_TEXT = 120 };

/* The requests of one try to one server. Replies come in the order of the requests. */
struct node_op {
    struct quorum_member_op member;
    struct quorum_try *in_try;
    unsigned server;
    uint8_t asked[REQUESTS_MAX];   /* ring with the enum op_verb of each request in flight */
    uint32_t rounds[REQUESTS_MAX]; /* number of its round */
    nanos asked_at[REQUESTS_MAX];  /* time when it was sent */
    unsigned first, open;          /* oldest request in the ring; number of requests */
    uint64_t token;                /* token that the server proposed, or that our hold has there */
    nanos left;                    /* CHECK: time that the hold has left there */
    struct quorum_answer answer;   /* VOTE_NO: what the server said beside its refusal */
    nanos busy_until;              /* VOTE_NO: time when the lock may be free there */
    char holder[HOLDER_TEXT];      /* VOTE_NO: the holder in words; "": unknown */
    /* reply to the release: YES, NO (nothing was held), OPEN (none so far) */
    enum vote freed;
    /* time to send a failed release or a refused request again; TIME_NEVER: not planned */
    nanos again;
    unsigned failures; /* number of such failures in a row */
};

enum round { ROUND_NONE, ROUND_ACQUIRE, ROUND_RAISE, ROUND_EXTEND, ROUND_CHECK, ROUND_RELEASE };

struct quorum_try {
    /* list of tries; in an unused try the next unused one */
    struct quorum_try *next, *prev;
    struct heap_node alarm;      /* time when something is due for it */
    struct quorum_op *quorum_op; /* op that it is for; NULL: none any more */
    enum round round;
    uint32_t number; /* number of the round */
    /* begin and end of the round; over_at is TIME_NEVER once it is decided */
    nanos asked_at, over_at;
    /* time when the try began, from which its validity counts; 0: another client made it */
    nanos first_asked;
    nanos give_up_at;  /* ROUND_RELEASE: time to stop sending releases again */
    nanos valid_until; /* time until which lost keys are restored; 0: never */
    /* token of a majority; 0: not agreed on yet, or another client made the hold */
    uint64_t token;
    uint64_t expected; /* hold of another client: token in the imported text */
    int64_t ttl_ms;
    struct queue_place place; /* place of the quorum op when the try began */
    /* connections with replies that no op waits for; counted in redlock.background */
    connection_set background;
    bool hurried; /* a majority has answered this round: the others get little more time */
    bool held;
    bool lost;     /* ROUND_RELEASE: the hold was lost before */
    bool waits_on; /* ROUND_RELEASE: of a failed try, while the quorum op keeps its place */
    bool quiet;    /* ROUND_RELEASE: the lock was never held, so no waiter is notified */
    bool repairs;  /* the last renewal succeeded: servers that lack the key get it back */
    struct quorum quorum;
    struct node_op node_op[QUORUM_SERVERS_MAX];
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1];
};

struct quorum_op {
    /* list of quorum ops; in an unused one the next unused one */
    struct quorum_op *next, *prev;
    struct quorum_op *notified; /* next in redlock.notified */
    struct heap_node alarm;     /* time when something is due for it */
    struct engine_op *op;
    struct quorum_try *open_try; /* its present try; NULL: none */
    bool tried;                  /* a try has failed: the next one needs another id */
    bool asked_before;           /* its place has an id */
    bool listens;
    bool is_notified; /* it is in redlock.notified */
    struct quorum_member_op listen_op[QUORUM_SERVERS_MAX];
    struct queue_place place;
    unsigned ahead; /* number of waiters ahead of it: the median of the servers */
    bool stands;    /* servers may still have its place */
    uint32_t turns; /* servers that say that it is its turn, as bits */
    /* notifications not handled yet, a bit for each value of enum quorum_turn */
    uint32_t pending_turns;
    bool is_notify_soon; /* notify_at is its own turn, not a check whether another waiter came */
    unsigned vain;       /* failed tries in a row while nobody held the lock */
    nanos notify_at;     /* time to notify the client; TIME_NEVER: not planned */
    nanos asked_at;      /* time when the client asked */
    nanos try_at;        /* time of the next try of an op that does not wait; TIME_NEVER: none */
    struct redlock_admin *admin; /* state of an admin op, redlock_admin.c */
};

/* A reply of a server, kept until it can be handled. One is reserved for each reply that is due, so
 * that no reply is lost for want of memory. */
struct pending_reply {
    struct pending_reply *next;
    struct engine_op *op; /* op that it is for; NULL: it was forgotten meanwhile */
    struct engine_reply reply;
    struct quorum_answer answer;
    char text[240];
};

/* Three holders of two permits may have a majority each: see docs/redlock.md. */
#define REDLOCK_COUNTS "a quorum of counters is not a counter"

#define REDLOCK_LIMITS                                                                             \
    {                                                                                              \
        .ttl_min_ms = 100, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,      \
        .kinds = 1u << HF_EXCLUSIVE, .kinds_why = REDLOCK_COUNTS,                                  \
        .offers = ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_REENTRANT | ENGINE_CAN_BREAK   \
    }

extern const struct wire_engine_type redlock_wire_engine;

struct redlock {
    const struct wire_engine_host *host;
    unsigned servers;
    struct node node[QUORUM_SERVERS_MAX];
    struct engine_limits limits;
    struct timing_overrides overrides;
    nanos max_ttl;
    nanos last_now;   /* last `now` passed in; needed because forget() has no time argument */
    nanos pace;       /* average time that a majority takes to answer */
    bool has_adopted; /* a lease of another client was checked or renewed here */
    struct quorum_op *quorum_ops, *unused_quorum_ops;
    struct quorum_try *tries, *unused_tries;
    uint32_t quorum_op_count, try_count; /* number of allocated structs, used and unused */
    struct heap quorum_op_alarms, try_alarms;
    struct quorum_op *notified; /* list of quorum ops with pending_turns */
    struct pending_reply *pending_replies, *pending_replies_last, *unused;
    unsigned answers_due, room_for_answers;
    uint32_t background[CONNECTION_GROUPS]; /* number of tries that count for each connection */
    connection_set background_connections;  /* connections whose number in `background` is not 0 */
};

/* ---- quorum_servers.c ---- */

hf_status redlock_servers_open(struct redlock *l, const struct url *url,
                               const struct settings *settings);
/* Reserves room for one reply. Call it before each request to a server; if it returns false there
 * is no memory, and the request must not be sent. */
bool redlock_servers_expect(struct redlock *l);
/* Handles the replies of the servers, also those that arrive meanwhile. */
void redlock_servers_settle(struct redlock *l, nanos now);
/* The op is going away: drops the replies for it. */
void redlock_servers_drop_replies(struct redlock *l, const struct engine_op *op);
/* Returns true if the vote of this server counts beside those already cast (NULL: none). If not,
 * its error_text says why. */
bool redlock_server_counts(struct redlock *l, unsigned server, const struct quorum *votes,
                           nanos asked_at);

/* ---- quorum_op.c ---- */

/* Returns NULL without memory. */
struct quorum_op *redlock_op_make(struct redlock *l, struct engine_op *op);
void redlock_op_submit(struct redlock *l, struct quorum_op *quorum_op, nanos now);
void redlock_op_forget(struct redlock *l, struct quorum_op *quorum_op);
void redlock_op_reply(struct redlock *l, struct quorum_op *quorum_op,
                      const struct engine_reply *reply);
void redlock_op_fail(struct redlock *l, struct quorum_op *quorum_op, nanos now, hf_status status,
                     const char *text);
void redlock_op_set_connections(struct redlock *l, struct quorum_op *quorum_op);
void redlock_op_set_alarm(struct redlock *l, struct quorum_op *quorum_op);
/* Subscribes a waiter to releases on every server. */
void redlock_op_listen(struct redlock *l, struct quorum_op *quorum_op, nanos now);
/* Returns true if an op that does not wait may try again at that time. */
bool redlock_op_may_try(const struct redlock *l, const struct quorum_op *quorum_op, nanos at);
void redlock_op_try_soon(struct redlock *l, struct quorum_op *quorum_op, nanos now);
void redlock_ops_tick(struct redlock *l, nanos now);

/* ---- places.c ---- */

void redlock_place_begin_try(struct redlock *l, struct quorum_op *quorum_op);
/* Takes ticket and place from the refusals to a failed try. */
void redlock_place_learn(struct redlock *l, const struct quorum_try *b);
/* Servers have reported whose turn it is: handles quorum_op->pending_turns. */
void redlock_place_on_turn(struct redlock *l, struct quorum_op *quorum_op, nanos now);
/* No client holds the lock: asks again soon. */
void redlock_place_try_again(struct redlock *l, struct quorum_op *quorum_op, nanos now);

/* ---- quorum_try.c ---- */

/* Returns NULL without memory. */
struct quorum_try *redlock_try_make(struct redlock *l, struct quorum_op *quorum_op);
void redlock_try_free(struct redlock *l, struct quorum_try *b);
/* Call it after every change of a try: sets its connections and its alarm. tick() frees it when all
 * is done. */
void redlock_try_update(struct redlock *l, struct quorum_try *b, nanos now);
struct timing redlock_try_timing(const struct redlock *l, const struct quorum_try *b);
void redlock_try_begin_round(struct redlock *l, struct quorum_try *b, enum round round, nanos now);
/* Limits the time for slow servers to as long again as the try took so far. */
void redlock_try_hurry(struct quorum_try *b, nanos now);
/* Sends the next request to a server. Returns false if too many are in flight there, or without
 * memory. */
bool redlock_try_send(struct redlock *l, struct node_op *node_op, enum op_verb verb, nanos now);
void redlock_try_send_all(struct redlock *l, struct quorum_try *b, enum round round,
                          enum op_verb verb, nanos now);
/* Plans to repeat a request that failed there. The pause doubles each time. */
void redlock_try_send_later(struct redlock *l, struct node_op *node_op, nanos now);
void redlock_try_on_reply(struct redlock *l, struct node_op *node_op,
                          const struct engine_reply *reply, const struct quorum_answer *answer,
                          nanos now);
void redlock_tries_tick(struct redlock *l, nanos now);

/* ---- silence.c ---- */

void redlock_silence_on_reply(struct redlock *l, unsigned server, const struct engine_reply *reply,
                              nanos asked_at, nanos now);
/* Returns the latest end of a try. */
nanos redlock_silence_limit(const struct redlock *l, const struct quorum_try *b, nanos now,
                            nanos over_at);
/* Gives up on silent servers, before a round is judged. */
void redlock_silence_skip(struct redlock *l, struct quorum_try *b, nanos now);
/* The time of the round is over: gives up on all servers that have not answered. */
void redlock_silence_end_round(struct redlock *l, struct quorum_try *b);

/* ---- quorum_rounds.c ---- */

void redlock_round_judge(struct redlock *l, struct quorum_try *b, nanos now);
void redlock_round_on_reply(struct redlock *l, struct node_op *node_op, enum op_verb verb,
                            bool this_round, const struct engine_reply *reply, nanos now);

/* ---- try_failed.c ---- */

/* Replies FAILED with that text, followed by the servers that failed. */
void redlock_round_fail(struct redlock *l, struct quorum_try *b, hf_status status,
                        const char *what);
/* A server refuses, others have not answered yet, and the op does not wait: asks that server
 * again. */
void redlock_try_poll_later(struct redlock *l, struct node_op *node_op, nanos now);
void redlock_try_tick(struct redlock *l, struct quorum_try *b, nanos now);
void redlock_try_fail(struct redlock *l, struct quorum_try *b, nanos now);
/* A majority has granted, but too late. */
void redlock_try_expire(struct redlock *l, struct quorum_try *b, nanos now);

/* ---- release_all.c ---- */

void redlock_release_all(struct redlock *l, struct quorum_try *b, nanos now);
/* The same for a try that no op waits for. */
void redlock_release_alone(struct redlock *l, struct quorum_try *b, nanos now);
void redlock_release_on_reply(struct redlock *l, struct node_op *node_op, bool this_round,
                              const struct engine_reply *reply, nanos now);
void redlock_release_judge(struct redlock *l, struct quorum_try *b);
void redlock_release_tick(struct redlock *l, struct quorum_try *b, nanos now);
bool redlock_release_is_over(const struct redlock *l, const struct quorum_try *b, nanos now);

/* ---- redlock_admin.c ---- */

void redlock_admin_submit(struct redlock *l, struct quorum_op *quorum_op, nanos now);
bool redlock_admin_owns(const struct quorum_op *quorum_op, const struct engine_op *op);
void redlock_admin_on_reply(struct redlock *l, struct quorum_op *quorum_op,
                            const struct engine_op *op, const struct engine_reply *reply,
                            nanos now);
nanos redlock_admin_due(const struct quorum_op *quorum_op);
void redlock_admin_tick(struct redlock *l, struct quorum_op *quorum_op, nanos now);
void redlock_admin_row(struct quorum_op *quorum_op, const struct engine_op *op,
                       const struct hf_row *row);
void redlock_admin_free(struct redlock *l, struct quorum_op *quorum_op);
connection_set redlock_admin_connections(const struct quorum_op *quorum_op);
