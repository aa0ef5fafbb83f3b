/* release_all.c - releases a try or a hold on every server, also on those that never answered.
 *
 * The release goes out on the same connection, behind all earlier requests. If that connection was
 * cut, the release leaves a tombstone against the earlier requests. The release is sent again until
 * each server has confirmed it. */
#include "redlock.h"

#include <assert.h>

static void release_node_op(struct redlock *l, struct node_op *node_op, nanos now)
{
    assert(node_op->freed == VOTE_OPEN);
    node_op->again = TIME_NEVER;
    if (!redlock_try_send(l, node_op, OP_RELEASE, now))
        redlock_try_send_later(l, node_op, now);
}

/* Returns true if waiters need no notification of this release: no client can have taken the try
 * for a hold, or its op and all clients that it hindered will try again soon. With notifications,
 * waiters would wake each other with failed tries. */
static bool is_lost_try(const struct quorum_try *b)
{
    return b->waits_on || (b->round == ROUND_ACQUIRE && quorum_is_refused(&b->quorum));
}

/* Returns true if a server that refused has nothing to release: no request is in flight, and
 * none may still arrive. */
static bool has_nothing(const struct quorum_try *b, unsigned server)
{
    const struct node_op *node_op = &b->node_op[server];
    bool is_try = b->round == ROUND_ACQUIRE || b->round == ROUND_RAISE;
    bool keeps_place = b->waits_on || !b->place.waits;
    bool may_arrive = node_op->open || node_op->member.op.may_be_in_flight;

    return is_try && keeps_place && b->quorum.vote[server] == VOTE_NO && !may_arrive;
}

void redlock_release_all(struct redlock *l, struct quorum_try *b, nanos now)
{
    bool is_first = b->round != ROUND_RELEASE;
    b->quiet = is_lost_try(b);
    for (unsigned i = 0; i < l->servers; i++)
        if (has_nothing(b, i))
            b->node_op[i].freed = VOTE_NO;

    redlock_try_begin_round(l, b, ROUND_RELEASE, now);
    b->held = false;
    b->valid_until = 0;
    if (b->give_up_at == TIME_NEVER)
        b->give_up_at = now + redlock_try_timing(l, b).release_for;

    for (unsigned i = 0; i < l->servers; i++) {
        b->node_op[i].failures = is_first ? 0 : b->node_op[i].failures;
        b->quorum.vote[i] = b->node_op[i].freed;
        if (b->node_op[i].freed != VOTE_OPEN)
            b->node_op[i].again = TIME_NEVER;
        else
            release_node_op(l, &b->node_op[i], now);
    }
}

void redlock_release_alone(struct redlock *l, struct quorum_try *b, nanos now)
{
    if (b->quorum_op) {
        assert(b->quorum_op->open_try == b);
        b->quorum_op->open_try = NULL;
        b->quorum_op = NULL;
    }
    if (b->round != ROUND_RELEASE)
        redlock_release_all(l, b, now);
    redlock_try_update(l, b, now);
}

void redlock_release_on_reply(struct redlock *l, struct node_op *node_op, bool this_round,
                              const struct engine_reply *reply, nanos now)
{
    bool is_freed = reply->kind == REPLY_RELEASED;
    bool is_confirmed = is_freed || reply->kind == REPLY_NOT_HELD;
    if (is_confirmed) {
        node_op->freed = is_freed ? VOTE_YES : VOTE_NO;
        /* A slow server may keep the try for long; the other servers release it now. */
        if (!node_op->open)
            redis_wire_engine.forget(l->node[node_op->server].redis, &node_op->member.op);
    } else {
        node_op->member.op.may_be_in_flight = true; /* an earlier request may still arrive */
        redlock_try_send_later(l, node_op, now);
    }

    if (this_round)
        node_op->in_try->quorum.vote[node_op->server] = is_confirmed ? node_op->freed : VOTE_FAILED;
}

/* Replies NOT_HELD if a majority did not hold the lock. Otherwise replies RELEASED if a majority
 * either released it or did not hold it, and HF_NO_QUORUM if fewer answered. */
void redlock_release_judge(struct redlock *l, struct quorum_try *b)
{
    unsigned most = quorum_majority(l->servers), freed = quorum_count(&b->quorum, VOTE_YES);
    unsigned lacked = quorum_count(&b->quorum, VOTE_NO);
    assert(b->round == ROUND_RELEASE);
    if (freed < most && lacked < most && quorum_count(&b->quorum, VOTE_OPEN))
        return;

    struct quorum_op *quorum_op = b->quorum_op;
    b->over_at = TIME_NEVER;
    if (!quorum_op)
        return;
    if (freed + lacked < most) {
        redlock_round_fail(l, b, HF_NO_QUORUM, "too few servers answered");
        return;
    }

    b->quorum_op = NULL; /* the other servers are released in the background */
    quorum_op->open_try = NULL;
    redlock_op_reply(l, quorum_op,
                     &(struct engine_reply){.kind = lacked < most ? REPLY_RELEASED : REPLY_NOT_HELD,
                                            .asked_at = b->asked_at,
                                            .retry_at = TIME_NEVER});
}

void redlock_release_tick(struct redlock *l, struct quorum_try *b, nanos now)
{
    for (unsigned i = 0; i < l->servers; i++) {
        struct node_op *node_op = &b->node_op[i];
        if (now >= b->give_up_at || node_op->freed != VOTE_OPEN)
            node_op->again = TIME_NEVER;
        else if (now >= node_op->again)
            release_node_op(l, node_op, now);
    }
}

bool redlock_release_is_over(const struct redlock *l, const struct quorum_try *b, nanos now)
{
    if (b->quorum_op || b->round != ROUND_RELEASE)
        return false;

    for (unsigned i = 0; i < l->servers; i++) {
        bool is_unconfirmed = b->node_op[i].freed == VOTE_OPEN && now < b->give_up_at;
        if (b->node_op[i].open || is_unconfirmed)
            return false;
    }
    return true;
}
