/* silence.c - decides which servers a round does not wait for.
 *
 * When a majority has answered a round that is still open, the other servers get as much more time
 * as the majority took. A server that does not answer by then is *silent*. A silent server is asked
 * like all others, and its vote counts if it comes in time. But a round is decided without a silent
 * server as soon as a majority has answered. A server stops being silent when it answers about as
 * fast as the majority.
 *
 * The try of a waiter also ends if too few servers answer for much longer than a majority usually
 * takes: other clients may reach more servers, and the votes of this try are in their way. */
#include "redlock.h"

#include <assert.h>
#include <stdio.h>

#define LEAST_PAUSE NANOS_OF_MS(5) /* a server that gets no CPU for a moment is not slow */
#define LEAST_ROUND NANOS_OF_MS(40)
enum { PACE_SHARE = 8, PACES = 8 }; /* weight of a new sample is one eighth */

static nanos pause_of(nanos took)
{
    return took > LEAST_PAUSE ? took : LEAST_PAUSE;
}

nanos redlock_silence_limit(const struct redlock *l, const struct quorum_try *b, nanos now,
                            nanos over_at)
{
    nanos limit = now + (PACES * l->pace > LEAST_ROUND ? PACES * l->pace : LEAST_ROUND);
    bool may_try_later = b->quorum_op && b->quorum_op->op->waits && l->pace > 0;

    return may_try_later && limit < over_at ? limit : over_at;
}

static bool is_answer(const struct engine_reply *reply)
{
    return reply->kind != REPLY_UNKNOWN && reply->kind != REPLY_FAILED && reply->status == HF_OK;
}

void redlock_silence_on_reply(struct redlock *l, unsigned server, const struct engine_reply *reply,
                              nanos asked_at, nanos now)
{
    assert(server < l->servers);
    if (is_answer(reply) && now - asked_at <= pause_of(2 * l->pace))
        l->node[server].silent = false;
}

static bool has_majority_answered(const struct quorum_try *b)
{
    assert(b->quorum.servers > 0); /* a round has begun */
    unsigned answered = quorum_count(&b->quorum, VOTE_YES) + quorum_count(&b->quorum, VOTE_NO);

    return answered >= quorum_majority(b->quorum.servers);
}

/* Gives up on a server. Without a majority that answers, every server is needed, so none becomes
 * silent. */
static void give_up_on(struct redlock *l, struct quorum_try *b, unsigned server)
{
    struct node *m = &l->node[server];
    assert(b->quorum.vote[server] == VOTE_OPEN);

    m->silent |= has_majority_answered(b);
    b->quorum.vote[server] = VOTE_FAILED;
    snprintf(m->error_text, sizeof m->error_text, "%s: no answer in time",
             redis_quorum_member_where(m->redis));
}

void redlock_silence_end_round(struct redlock *l, struct quorum_try *b)
{
    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == VOTE_OPEN)
            give_up_on(l, b, i);
}

/* Returns false for renewals and checks: no caller waits for them, so they get their full time. */
static bool may_be_hurried(const struct quorum_try *b)
{
    bool is_urgent =
        b->round == ROUND_ACQUIRE || b->round == ROUND_RAISE || b->round == ROUND_RELEASE;

    return is_urgent && b->over_at != TIME_NEVER && has_majority_answered(b);
}

void redlock_silence_skip(struct redlock *l, struct quorum_try *b, nanos now)
{
    if (!may_be_hurried(b))
        return;

    if (!b->hurried) {
        nanos took = now - b->asked_at;
        b->hurried = true;
        l->pace += (took - l->pace) / PACE_SHARE;
        if (now + pause_of(took) < b->over_at)
            b->over_at = now + pause_of(took);
    }

    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == VOTE_OPEN && l->node[i].silent)
            give_up_on(l, b, i);
}
