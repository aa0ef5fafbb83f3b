/* redis_polls.c - wake=poll: tells the waiters of this client when to ask the server again
 * (kit/poll_schedule.h). When a local holder releases the lock, the first waiter polls at once. */
#include "redis.h"

#include <assert.h>

static struct redis_op *op_of(struct poll_waiter *waiter)
{
    char *at = (char *)waiter;
    return waiter ? (struct redis_op *)(void *)(at - offsetof(struct redis_op, poll_waiter)) : NULL;
}

/* Returns true if a request of this waiter will be executed after the release: requests on one
 * connection are executed in their order. */
static bool is_about_to_poll(const struct redis *r, const struct redis_op *a)
{
    return a->notified || a->unsent || (redis_op_is_in_flight(a) && !r->durable);
}

/* Notifies once: more notifications would push the reply out of the mailbox before it is read. */
static void notify(struct redis *r, struct redis_op *a)
{
    if (is_about_to_poll(r, a))
        return;

    a->notified = true;
    redis_op_reply(r, a, &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
}

/* Called when a waiter has become the first: it polls often from now on. If it can share the lock,
 * or its owner holds the lock, it may have been granted together with the waiter that was ahead.
 * Then it polls at once, because the grace of a handoff is short. */
static void send_scout(struct redis *r, struct redis_op *first, nanos now)
{
    if (!first || is_about_to_poll(r, first))
        return; /* the reply says when to poll next */

    bool may_be_granted_with_others = first->sent_op.kind != HF_EXCLUSIVE || first->sent_op.named;
    if (may_be_granted_with_others) {
        notify(r, first);
        return;
    }

    nanos poll_at = now + redis_op_timing(r, first)->refresh_first;
    if (poll_at < first->queued_reply.due) {
        first->queued_reply.due = poll_at;
        redis_op_reply(r, first,
                       &(struct engine_reply){.kind = REPLY_QUEUED,
                                              .asked_at = first->queued_reply.asked_at,
                                              .retry_at = poll_at});
    }
}

void redis_poll_leave(struct redis *r, struct redis_op *a, nanos now)
{
    if (a->poll_waiter.group) /* true only with wake=poll, while the op waits */
        send_scout(r, op_of(poll_schedule_leave(&a->poll_waiter)), now);
}

nanos redis_poll_next(struct redis *r, struct redis_op *a, int64_t arrival,
                      const struct engine_reply *queued, nanos now)
{
    assert(queued->kind == REPLY_QUEUED);
    struct poll_queued place = {
        .arrival = arrival,
        .asked_at = queued->asked_at,
        /* much shorter than the grace of a handoff */
        .often = redis_op_timing(r, a)->refresh_first,
        .longest = queued->retry_at - queued->asked_at,
        .is_new = !a->queued_reply.set,
        .may_pass = a->sent_op.named, /* ops of a named owner are granted together */
    };

    struct poll_waiter *scout;
    nanos at = poll_schedule_next(&r->polls, &a->poll_waiter, &a->sent_op, &place, r->host, &scout);
    send_scout(r, op_of(scout), now);
    return at;
}

void redis_poll_own_release(struct redis *r, const struct redis_op *released)
{
    if (!redis_polls_only(r) || !r->queued)
        return;

    struct redis_op *first = op_of(poll_schedule_first(&r->polls, &released->sent_op));
    if (first)
        notify(r, first);
}
