/* quorum_rounds.c - the votes of one round, folded into a reply to the client.
 *
 * A round ends when a majority said yes, when a majority of yes has become impossible, or when its
 * time is over. So a server that hangs delays nobody. */
#include "redlock.h"

#include <assert.h>
#include <stdio.h>

static struct engine_reply reply_of(const struct quorum_try *b, enum reply_kind kind)
{
    return (struct engine_reply){.kind = kind, .asked_at = b->asked_at, .retry_at = TIME_NEVER};
}

/* ---- A try that is won ---- */

static nanos end_of_try(const struct redlock *l, const struct quorum_try *b)
{
    assert(b->ttl_ms > 0);
    return b->first_asked + NANOS_OF_MS(b->ttl_ms) -
           timing_drift(&l->limits, NANOS_OF_MS(b->ttl_ms));
}

static void grant(struct redlock *l, struct quorum_try *b, nanos now)
{
    assert(b->token && !b->held);
    struct engine_reply reply = reply_of(b, REPLY_GRANTED);
    if (end_of_try(l, b) <= now) {
        redlock_try_expire(l, b, now);
        return;
    }

    b->valid_until = end_of_try(l, b);
    b->round = ROUND_NONE;
    b->over_at = TIME_NEVER;
    b->held = true;
    reply.asked_at = b->first_asked;
    reply.good = NANOS_OF_MS(b->ttl_ms);
    reply.token = b->token;
    if (b->quorum_op)
        redlock_op_reply(l, b->quorum_op, &reply);
}

/* Sets the token to the highest that a yes proposed. Returns how many servers proposed it. */
static unsigned choose_token(const struct redlock *l, struct quorum_try *b)
{
    unsigned agreed = 0;
    assert(quorum_verdict(&b->quorum) == QUORUM_WON);

    b->token = 0;
    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == VOTE_YES && b->node_op[i].token > b->token)
            b->token = b->node_op[i].token;
    for (unsigned i = 0; i < l->servers; i++)
        agreed += b->quorum.vote[i] == VOTE_YES && b->node_op[i].token == b->token;
    return agreed;
}

static void raise_tokens(struct redlock *l, struct quorum_try *b, nanos now)
{
    struct quorum asked = b->quorum;
    if (end_of_try(l, b) <= now) {
        redlock_try_expire(l, b, now);
        return;
    }
    if (choose_token(l, b) >= quorum_majority(l->servers)) {
        grant(l, b, now);
        return;
    }

    redlock_try_begin_round(l, b, ROUND_RAISE, now);
    for (unsigned i = 0; i < l->servers; i++) {
        if (asked.vote[i] == VOTE_YES || asked.vote[i] == VOTE_UNCOUNTED)
            redlock_try_send(l, &b->node_op[i], OP_EXTEND, now);
        /* an open vote may still become yes; the server's token is raised then */
        else if (asked.vote[i] != VOTE_OPEN)
            b->quorum.vote[i] = asked.vote[i];
    }
}

/* Returns true if a grant must wait a little for slow servers, so that every majority knows of
 * it. A second entry of a named owner must find the same token, and a detached hold, which nobody
 * repairs, must not end with the first server that dies. */
static bool awaits_slow(struct quorum_try *b, nanos now)
{
    const struct engine_op *op = &b->node_op[0].member.op;
    assert(b->round == ROUND_RAISE);
    bool must_be_everywhere = op->named || op->detached;
    if (!must_be_everywhere || !quorum_count(&b->quorum, VOTE_OPEN))
        return false;

    redlock_try_hurry(b, now);
    return true;
}

/* ---- A hold ---- */

/* Returns the token of a hold that another client made: the expected token if any server has it, or
 * the token that a majority has; 0: neither. Some servers may have proposed a token that was never
 * granted, but every majority has a server that knows the true token. */
static uint64_t agreed_token(const struct redlock *l, const struct quorum_try *b)
{
    for (unsigned i = 0; i < l->servers; i++) {
        uint64_t token = b->node_op[i].token;
        unsigned same = 0;
        for (unsigned j = 0; j < l->servers; j++)
            same += b->quorum.vote[j] == VOTE_YES && b->node_op[j].token == token;

        if (same >= quorum_majority(l->servers) || (same && token == b->expected))
            return token;
    }
    return 0;
}

/* Restores the key on a server that has lost it, but only while the lease is valid. The vote of
 * that server does not count for the renewal. */
static void repair(struct redlock *l, struct node_op *node_op, nanos now)
{
    if (node_op->in_try->repairs && now < node_op->in_try->valid_until)
        redlock_try_send(l, node_op, OP_ACQUIRE, now);
}

static nanos left_of(const struct redlock *l, const struct quorum_try *b)
{
    nanos left[QUORUM_SERVERS_MAX] = {0};

    for (unsigned i = 0; i < l->servers; i++)
        left[i] = b->quorum.vote[i] == VOTE_YES ? b->node_op[i].left : 0;
    return quorum_left(left, l->servers);
}

static void keep_hold(struct redlock *l, struct quorum_try *b, enum round round, nanos now)
{
    struct engine_reply reply = reply_of(b, REPLY_EXTENDED);
    assert(round == ROUND_EXTEND || round == ROUND_CHECK);
    if (!b->token)
        b->token = agreed_token(l, b);
    reply.good = round == ROUND_EXTEND ? NANOS_OF_MS(b->ttl_ms) : left_of(l, b);
    reply.token = b->token;

    nanos until = b->asked_at + reply.good - timing_drift(&l->limits, reply.good);
    b->held = true;
    b->valid_until = until > b->valid_until ? until : b->valid_until;
    b->repairs = round == ROUND_EXTEND;
    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == VOTE_NO)
            repair(l, &b->node_op[i], now);
    if (b->quorum_op)
        redlock_op_reply(l, b->quorum_op, &reply);
}

static void lose_hold(struct redlock *l, struct quorum_try *b, nanos now)
{
    struct quorum_op *quorum_op = b->quorum_op;
    struct engine_reply reply = reply_of(b, REPLY_NOT_HELD);

    b->lost = true;
    redlock_release_alone(l, b, now);
    if (quorum_op)
        redlock_op_reply(l, quorum_op, &reply);
}

/* Handles the verdict of a renewal or check. A lost round stays open as long as the remaining votes
 * can show why: too few servers answered, or too few hold the lock. */
static void settle_hold(struct redlock *l, struct quorum_try *b, bool won, nanos now)
{
    enum round round = b->round;
    assert(round == ROUND_EXTEND || round == ROUND_CHECK);
    unsigned gone = quorum_count(&b->quorum, VOTE_NO), open = quorum_count(&b->quorum, VOTE_OPEN);
    bool is_gone = quorum_is_refused(&b->quorum);
    bool may_become_gone = l->servers - gone - open < quorum_majority(l->servers);
    if (!won && !is_gone && may_become_gone)
        return;

    b->round = ROUND_NONE;
    b->over_at = TIME_NEVER;
    b->repairs = false;
    if (won)
        keep_hold(l, b, round, now);
    else if (is_gone)
        lose_hold(l, b, now);
    else
        redlock_round_fail(l, b, HF_NO_QUORUM, "too few servers answered");
}

/* ---- Verdicts ---- */

void redlock_round_judge(struct redlock *l, struct quorum_try *b, nanos now)
{
    redlock_silence_skip(l, b, now);
    enum quorum_verdict verdict = quorum_verdict(&b->quorum);
    bool is_open = verdict == QUORUM_OPEN && b->round != ROUND_RELEASE;
    if (b->over_at == TIME_NEVER || is_open)
        return;

    bool won = verdict == QUORUM_WON;
    switch (b->round) {
    case ROUND_ACQUIRE:
        (won ? raise_tokens : redlock_try_fail)(l, b, now);
        break;
    case ROUND_RAISE:
        if (!won || !awaits_slow(b, now))
            (won ? grant : redlock_try_fail)(l, b, now);
        break;
    case ROUND_EXTEND:
    case ROUND_CHECK:
        settle_hold(l, b, won, now);
        break;
    case ROUND_RELEASE:
        redlock_release_judge(l, b);
        break;
    case ROUND_NONE:
        break;
    }
}

/* ---- Votes ---- */

static void note_refusal(struct node_op *node_op, const struct engine_reply *reply)
{
    const char *holder = reply->kind == REPLY_BUSY && reply->text ? reply->text : "";

    node_op->busy_until = node_op->answer.is_free ? TIME_NEVER : reply->retry_at;
    snprintf(node_op->holder, sizeof node_op->holder, "%s", holder);
}

/* A late yes, after the token was agreed on: sends the token to this server, too. */
static void on_granted(struct redlock *l, struct node_op *node_op, bool this_round, uint64_t token,
                       nanos now)
{
    struct quorum_try *b = node_op->in_try;
    assert(token > 0);
    node_op->token = token;
    if (b->round == ROUND_RAISE || (b->held && token != b->token)) {
        redlock_try_send(l, node_op, OP_EXTEND, now);
        return;
    }

    if (this_round && !b->held) {
        bool counts = redlock_server_counts(l, node_op->server, &b->quorum, b->asked_at);
        b->quorum.vote[node_op->server] = counts ? VOTE_YES : VOTE_UNCOUNTED;
    }
}

static void on_acquired(struct redlock *l, struct node_op *node_op, bool this_round,
                        const struct engine_reply *reply, nanos now)
{
    struct quorum_try *b = node_op->in_try;
    enum vote *vote = &b->quorum.vote[node_op->server];
    if (reply->kind == REPLY_GRANTED) {
        on_granted(l, node_op, this_round, reply->token, now);
        return;
    }

    bool is_other_kind = reply->kind == REPLY_FAILED && reply->status == HF_MISMATCH;
    bool is_busy = reply->kind == REPLY_BUSY || reply->kind == REPLY_NOT_HELD || is_other_kind;
    note_refusal(node_op, reply);
    if ((this_round && !b->held) || (b->round == ROUND_RAISE && *vote == VOTE_OPEN))
        *vote = is_busy ? VOTE_NO : VOTE_FAILED;
    if (*vote == VOTE_NO && b->round == ROUND_ACQUIRE)
        redlock_try_poll_later(l, node_op, now);
}

/* Judges a server that granted a moment ago and lacks the key now: it restarted, was flushed, or
 * the key was deleted. That does not count as a refusal, because no other client holds the lock
 * there. */
static enum vote lose_grant(struct redlock *l, const struct node_op *node_op)
{
    struct node *m = &l->node[node_op->server];

    snprintf(m->error_text, sizeof m->error_text,
             "%.100s: agreed, and had lost the key a moment later",
             redis_quorum_member_where(m->redis));
    return VOTE_FAILED;
}

static enum vote vote_of_extend(struct redlock *l, const struct node_op *node_op,
                                const struct engine_reply *reply)
{
    const struct quorum_try *b = node_op->in_try;

    if (reply->kind == REPLY_EXTENDED) {
        bool counts = redlock_server_counts(l, node_op->server, &b->quorum, b->asked_at);
        return counts ? VOTE_YES : VOTE_UNCOUNTED;
    }
    if (reply->kind != REPLY_NOT_HELD)
        return VOTE_FAILED;
    return b->round == ROUND_RAISE ? lose_grant(l, node_op) : VOTE_NO;
}

static void on_extended(struct redlock *l, struct node_op *node_op, bool this_round,
                        const struct engine_reply *reply, nanos now)
{
    if (reply->kind == REPLY_EXTENDED) {
        node_op->token = reply->token;
        node_op->left = reply->good;
    }
    if (!this_round)
        return;

    node_op->in_try->quorum.vote[node_op->server] = vote_of_extend(l, node_op, reply);
    if (reply->kind == REPLY_NOT_HELD)
        repair(l, node_op, now);
}

void redlock_round_on_reply(struct redlock *l, struct node_op *node_op, enum op_verb verb,
                            bool this_round, const struct engine_reply *reply, nanos now)
{
    assert(verb == OP_ACQUIRE || verb == OP_EXTEND || verb == OP_CHECK);
    (verb == OP_ACQUIRE ? on_acquired : on_extended)(l, node_op, this_round, reply, now);
}
