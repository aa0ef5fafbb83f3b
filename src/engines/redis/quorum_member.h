/* quorum_member.h - one server of a quorum, as engines/redlock uses it: redis_wire_engine with
 * these differences.
 *
 * A member never makes a waiter the holder. A release notifies those who listen, and the waiters of
 * all members ask again in an order that the quorum agreed on (scripts/places.lua). */
#pragma once
#include "redis_member.h"

enum { QUORUM_MEMBER_CONNECTIONS = REDIS_CONNECTIONS };

/* The place of a wait in the queue of a quorum: the same on each of its servers. */
struct queue_place {
    struct id id;
    uint64_t ticket; /* the lowest comes first; 0: not agreed on yet */
    uint32_t alive_ms, grace_ms;
    bool waits; /* false: it has no place, and comes behind all waiters that have one */
};

/* Whose turn it is when a lock of a quorum is free. */
enum quorum_turn { QUORUM_TURN_UNKNOWN, QUORUM_TURN_OWN, QUORUM_TURN_ANOTHERS };

/* What a member adds to a reply. */
struct quorum_answer {
    uint64_t holder_token; /* BUSY: of the hold ahead; 0: unknown */
    uint64_t ticket;       /* BUSY: of the place there; 0: the wait has none */
    uint32_t place;        /* BUSY: in the queue there; 1 is next; 0: unknown */
    bool is_free;          /* BUSY: nobody holds the lock there, but other waiters come first */
    enum quorum_turn turn; /* NOTIFY */
};

/* Every op of a claim that a member gets is one of these. */
struct quorum_member_op {
    struct engine_op op;
    /* ACQUIRE: the place of the wait; NULL: repairs a hold. RELEASE: the place that is given up
     * with it; NULL: none. Listening: whose turn is reported. Valid as long as the op. */
    const struct queue_place *place;
    bool quiet;                  /* RELEASE: the lock was never held, so nobody is notified */
    struct quorum_answer answer; /* valid while a BUSY or NOTIFY reply is handed over */
};

static inline struct quorum_member_op *quorum_member_op_of(struct engine_op *op)
{
    return (struct quorum_member_op *)(void *)op;
}

/* Makes an engine a member. Call it before the first submit. */
void redis_quorum_member_join(void *redis);
/* NOTIFY from now on whenever op->op.name is released, until the op is forgotten. No other reply
 * comes. Without memory there are no notifications, as if all of them were lost. */
void redis_quorum_member_listen(void *redis, struct quorum_member_op *op, nanos now);
/* When the server was started, on our clock, as it said when the connection was made; TIME_NEVER:
 * it did not say. */
nanos redis_quorum_member_up_since(const void *redis);
/* Whether the server ever greeted this client. If it never did, it holds nothing that the client
 * made. */
bool redis_quorum_member_has_greeted(const void *redis);
/* Whether a request there has been unanswered for much longer than replies took before. A server
 * that always was slow is not hung. */
bool redis_quorum_member_is_hung(const void *redis, nanos now);
const char *redis_quorum_member_where(const void *redis); /* host:port */
/* HF_INVALID if no server can have a lock of that name, because of its key. */
hf_status redis_quorum_member_check_name(const void *redis, const char *name, size_t len);
/* Id of the server's process; "": it did not say. */
const char *redis_quorum_member_run_id(const void *redis);
/* Does the last submit of this op still wait for the connection? Then the next submit replaces it,
 * and one reply comes for both. */
bool redis_quorum_member_is_unsent(const struct engine_op *op);
