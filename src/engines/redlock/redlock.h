/* redlock.h - the engine for a quorum of independent servers: its own structs.
 *
 * Files, in the order in which they run: redlock.c the functions of engines/wire_engine.h: open,
 * submit, connection events, tick; quorum_servers.c reads the URL, owns one Redis engine for each
 * server, and decides whether a server's vote counts; quorum_op.c begins the tries of an op, and
 * decides when to try again; quorum_try.c sends a try to every server, and matches the replies;
 * quorum_rounds.c folds the votes of a round (quorum.c) into a reply to the client; silence.c
 * decides which servers a round does not wait for; try_failed.c tells the client why a try got no
 * majority, or tries again; release_all.c undoes a try, or releases a hold, on every server;
 * places.c the queue of the waiters; redlock_admin.c list, break, diagnose.
 *
 * A *quorum op* is what the engine keeps of one op of the client. A *try* has an attempt id of its
 * own that is put on every server. A try that fails is released everywhere, on the same
 * connections and in the background. It may outlive its quorum op, until every server has
 * confirmed the release. The next try has another id.
 *
 * Policies:
 *
 * - Token: a majority of grants is not yet a hold. The highest proposed token is first written to
 *   the servers that granted (ROUND_RAISE). Any two majorities share a server, so the next holder's
 *   token is higher.
 * - Validity counts from before the first request of the try was sent.
 * - The reply is BUSY if the servers that refuse are enough to rule out a majority. While no client
 *   seems to hold the lock on a majority, a caller that does not wait tries again: a release may be
 *   in flight, or others try at the same time (try_failed.c).
 * - A server that was started less than max_ttl ago is asked, but its vote does not count: it may
 *   have forgotten holds.
 * - A server that is slower than the majority is asked, but no round waits for it (silence.c).
 * - Waiters have a place in a queue on every server, with one ticket each (places.c). The queue
 *   decides which waiter asks next. It grants nothing, so exclusion does not depend on it.
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
    void *redis; /* Redis engine of this server */
    struct wire_engine_host host;
    char error_text[240]; /* the last error of the server; "": none */
    bool silent;          /* the server is asked, but no round waits for it: silence.c */
};

/* Values of engine_op.slot in ops for one server: they say which struct the op is part of. In a
 * listen op, `seen` is its index in quorum_op.listen_op. */
enum { SLOT_NODE_OP = 1, SLOT_LISTEN_OP };

enum { REQUESTS_MAX = 8, HOLDER_TEXT = 120 };

/* One try on one server: the requests in flight and the vote. Replies come in the order of the
 * requests. */
struct node_op {
    struct quorum_member_op member;
    struct quorum_try *in_try;
    unsigned server;
    uint8_t asked[REQUESTS_MAX];   /* ring with the enum op_verb of each request in flight */
    uint32_t rounds[REQUESTS_MAX]; /* number of the round that each request belongs to */
    nanos asked_at[REQUESTS_MAX];  /* time when each request was sent */
    unsigned first, open;          /* oldest request in the ring; number of requests */
    /* token that the server proposed, or the token of our hold on it */
    uint64_t token;
    nanos left;                  /* CHECK: time left of the hold on this server */
    struct quorum_answer answer; /* VOTE_NO: other facts in the server's refusal */
    nanos busy_until;            /* VOTE_NO: time when the lock may be free on this server */
    char holder[HOLDER_TEXT];    /* VOTE_NO: the holder in words; "": unknown */
    /* reply to the release: YES, NO (nothing was held), OPEN (none so far) */
    enum vote freed;
    /* time to send a failed release or a refused request again; TIME_NEVER: not planned */
    nanos again;
    unsigned failures; /* number of such failures in a row */
};

enum round { ROUND_NONE, ROUND_ACQUIRE, ROUND_RAISE, ROUND_EXTEND, ROUND_CHECK, ROUND_RELEASE };

struct quorum_try {
    /* next in the list of tries, or in the list of unused tries */
    struct quorum_try *next, *prev;
    struct heap_node alarm;      /* time of the next step that is due */
    struct quorum_op *quorum_op; /* quorum op that the try is for; NULL: none any more */
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
    /* connections with replies that no op waits for; redlock.background counts them */
    connection_set background;
    bool hurried; /* a majority has answered this round: the other servers get little more time */
    bool held;
    bool lost;     /* ROUND_RELEASE: the hold was lost before */
    bool waits_on; /* ROUND_RELEASE: releases a failed try, and the quorum op keeps its place */
    bool quiet;    /* ROUND_RELEASE: the lock was never held, so no waiter is notified */
    bool repairs;  /* the last renewal succeeded: servers that lack the key get it back */
    struct quorum quorum;
    struct node_op node_op[QUORUM_SERVERS_MAX];
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1];
};

struct quorum_op {
    /* next in the list of quorum ops, or in the list of unused ones */
    struct quorum_op *next, *prev;
    struct quorum_op *notified; /* next in redlock.notified */
    struct heap_node alarm;     /* time of the next step that is due */
    struct engine_op *op;
    struct quorum_try *open_try; /* present try of the op; NULL: none */
    bool tried;                  /* a try has failed: the next one needs another id */
    bool asked_before;           /* the op's place has an id */
    bool listens;
    bool is_notified; /* the op is in redlock.notified */
    struct quorum_member_op listen_op[QUORUM_SERVERS_MAX];
    struct queue_place place;
    unsigned ahead; /* number of waiters ahead: the median of the servers */
    bool stands;    /* servers may still have the op's place */
    uint32_t turns; /* servers that say that it is this op's turn, as bits */
    /* notifications not handled yet, a bit for each value of enum quorum_turn */
    uint32_t pending_turns;
    /* notify_at is the op's own turn, not a check whether another waiter came */
    bool is_notify_soon;
    unsigned vain;   /* failed tries in a row while nobody held the lock */
    nanos notify_at; /* time to notify the client; TIME_NEVER: not planned */
    nanos asked_at;  /* time when the client asked */
    nanos try_at;    /* time of the next try of an op that does not wait; TIME_NEVER: none */
    struct redlock_admin *admin; /* state of an admin op, redlock_admin.c */
};

/* A reply of a server, kept until it can be handled. One struct is reserved for each reply that is
 * due, so that no reply is lost for lack of memory. */
struct pending_reply {
    struct pending_reply *next;
    struct engine_op *op; /* op that the reply is for; NULL: the op was forgotten meanwhile */
    struct engine_reply reply;
    struct quorum_answer answer;
    char text[240];
};

/* Only exclusive locks: of a semaphore with two permits, three holders could each have a majority
 * (docs/redlock.md). */
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
    /* for each connection, number of tries whose replies no op waits for */
    uint32_t background[CONNECTION_GROUPS];
    connection_set background_connections; /* connections whose count in `background` is not 0 */
};

/* ---- quorum_servers.c ---- */

hf_status redlock_servers_open(struct redlock *l, const struct url *url,
                               const struct settings *settings);
/* Reserves room for one reply. Call it before each request to a server; if it returns false there
 * is no memory, and the request must not be sent. */
bool redlock_servers_expect(struct redlock *l);
/* Handles the replies of the servers, and also replies that arrive meanwhile. */
void redlock_servers_settle(struct redlock *l, nanos now);
/* Drops the replies for an op that is about to be freed. */
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
/* Handles quorum_op->pending_turns: servers have reported whose turn it is. */
void redlock_place_on_turn(struct redlock *l, struct quorum_op *quorum_op, nanos now);
/* Asks again soon, because no client holds the lock. */
void redlock_place_try_again(struct redlock *l, struct quorum_op *quorum_op, nanos now);

/* ---- quorum_try.c ---- */

/* Returns NULL without memory. */
struct quorum_try *redlock_try_make(struct redlock *l, struct quorum_op *quorum_op);
void redlock_try_free(struct redlock *l, struct quorum_try *b);
/* Sets the connections and the alarm of a try. Call it after every change of the try. tick() frees
 * the try when all is done. */
void redlock_try_update(struct redlock *l, struct quorum_try *b, nanos now);
struct timing redlock_try_timing(const struct redlock *l, const struct quorum_try *b);
void redlock_try_begin_round(struct redlock *l, struct quorum_try *b, enum round round, nanos now);
/* Gives slow servers as much more time as the try has taken so far. */
void redlock_try_hurry(struct quorum_try *b, nanos now);
/* Sends the next request to a server. Returns false if too many are in flight there, or without
 * memory. */
bool redlock_try_send(struct redlock *l, struct node_op *node_op, enum op_verb verb, nanos now);
void redlock_try_send_all(struct redlock *l, struct quorum_try *b, enum round round,
                          enum op_verb verb, nanos now);
/* Plans to repeat a request that failed on this server. The pause doubles each time. */
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
/* Gives up on all servers that have not answered, because the time of the round is over. */
void redlock_silence_end_round(struct redlock *l, struct quorum_try *b);

/* ---- quorum_rounds.c ---- */

void redlock_round_judge(struct redlock *l, struct quorum_try *b, nanos now);
void redlock_round_on_reply(struct redlock *l, struct node_op *node_op, enum op_verb verb,
                            bool this_round, const struct engine_reply *reply, nanos now);

/* ---- try_failed.c ---- */

/* Replies FAILED with the text, followed by the servers that failed. */
void redlock_round_fail(struct redlock *l, struct quorum_try *b, hf_status status,
                        const char *what);
/* Plans to ask this server again, because it refused an op that does not wait, and other servers
 * have not answered yet. */
void redlock_try_poll_later(struct redlock *l, struct node_op *node_op, nanos now);
void redlock_try_tick(struct redlock *l, struct quorum_try *b, nanos now);
void redlock_try_fail(struct redlock *l, struct quorum_try *b, nanos now);
/* Handles a majority of grants that came too late. */
void redlock_try_expire(struct redlock *l, struct quorum_try *b, nanos now);

/* ---- release_all.c ---- */

void redlock_release_all(struct redlock *l, struct quorum_try *b, nanos now);
/* Handles the verdict of a try that no op waits for. */
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
