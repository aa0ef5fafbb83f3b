/* quorum_member.h - one server of a quorum, as engines/redlock uses it: redis_wire_engine with
 * these differences.
 *
 * A member never makes a waiter the holder. A release notifies the clients that listen, and the
 * waiters of all members ask again in the order on which the quorum agreed (scripts/places.lua). */
#pragma once
#include "redis_member.h"

enum { QUORUM_MEMBER_CONNECTIONS = REDIS_CONNECTIONS };

/* The place of a wait in the queue of a quorum: the same on each of its servers. */
struct queue_place {
    struct id id;
    uint64_t ticket; /* the lowest comes first; 0: not agreed on yet */
    uint32_t alive_ms, grace_ms;
    bool waits; /* the op has a place; false: it comes behind all waiters that have one */
};

/* The waiter whose turn it is when a lock of a quorum is free. */
enum quorum_turn { QUORUM_TURN_UNKNOWN, QUORUM_TURN_OWN, QUORUM_TURN_ANOTHERS };

/* What a member adds to a reply. */
struct quorum_answer {
    uint64_t holder_token; /* BUSY: token of the hold ahead; 0: unknown */
    uint64_t ticket;       /* BUSY: ticket of the op's place on this server; 0: it has no place */
    /* BUSY: position of the op in the queue of this server; 1 is next; 0: unknown */
    uint32_t place;
    bool is_free;          /* BUSY: nobody holds the lock there, but other waiters come first */
    enum quorum_turn turn; /* NOTIFY: whose turn it is */
};

/* An op of a claim as a member gets it. */
struct quorum_member_op {
    struct engine_op op;
    /* ACQUIRE: the waiter's place in the queue; NULL if the request only restores a key that this
     * server lost. RELEASE: the place to give up, or NULL. After redis_quorum_member_listen(): the
     * place whose turn is reported. Must stay valid as long as the op. */
    const struct queue_place *place;
    bool quiet; /* RELEASE: the lock was never held, so no waiter is notified */
    /* valid during the call that passes on a BUSY or NOTIFY reply */
    struct quorum_answer answer;
};

static inline struct quorum_member_op *quorum_member_op_of(struct engine_op *op)
{
    return (struct quorum_member_op *)(void *)op;
}

/* Makes an engine a member. Call it before the first submit. */
void redis_quorum_member_join(void *redis);
/* Replies NOTIFY whenever op->op.name is released, until the op is forgotten, and nothing else.
 * Without memory there are no notifications. */
void redis_quorum_member_listen(void *redis, struct quorum_member_op *op, nanos now);
/* Returns when the server was started, on our clock, as it said in the greeting; TIME_NEVER:
 * unknown. */
nanos redis_quorum_member_up_since(const void *redis);
/* Returns true if the server ever greeted this client. If not, it holds nothing that the client
 * made. */
bool redis_quorum_member_has_greeted(const void *redis);
/* Returns true if a request has been unanswered for much longer than earlier replies took. A
 * server that was always slow is not hung. */
bool redis_quorum_member_is_hung(const void *redis, nanos now);
const char *redis_quorum_member_where(const void *redis); /* Returns "host:port". */
/* Returns HF_INVALID if the key of that name cannot be a lock's on any server. */
hf_status redis_quorum_member_check_name(const void *redis, const char *name, size_t len);
/* Returns the id of the server's process; "": unknown. */
const char *redis_quorum_member_run_id(const void *redis);
/* Returns true if the last submit of this op still waits for the connection. Then the next
 * submit replaces it, and both get one reply. */
bool redis_quorum_member_is_unsent(const struct engine_op *op);
