/* try_failed.c - a try that got no majority: finds out why, and what to reply to the client.
 *
 * The reply is BUSY only if the servers that refuse rule out a majority by themselves. If a
 * majority is ruled out only together with servers that do not answer, it is unknown whether the
 * lock is held: the few refusals may come from a hold whose release has not arrived there yet. And
 * if no client holds the lock on a majority, other clients may be trying at the same time; without
 * another try all of them would be refused.
 *
 * A waiter asks again anyway. An op that does not wait tries again until its reply is due, and asks
 * servers that refuse again while others have yet to answer. Only then is the outcome replied. */
#include "redlock.h"

#include <assert.h>
#include <stdio.h>

enum { WORDS = 900 };

/* ---- In words ---- */

/* Appends the servers that failed, with their errors. */
static void add_failures(const struct redlock *l, const struct quorum_try *b, char words[WORDS],
                         int len)
{
    assert(len >= 0);
    for (unsigned i = 0; i < l->servers && len < WORDS - 4; i++) {
        const struct node *m = &l->node[i];
        enum vote vote = b->quorum.vote[i];
        if (vote == VOTE_FAILED || vote == VOTE_UNCOUNTED)
            len += snprintf(words + len, WORDS - (size_t)len, "; %.150s",
                            m->error_text[0] ? m->error_text : redis_quorum_member_where(m->redis));
    }
}

void redlock_round_fail(struct redlock *l, struct quorum_try *b, hf_status status, const char *what)
{
    char words[WORDS];

    add_failures(l, b, words, snprintf(words, WORDS, "%s", what));
    if (b->quorum_op)
        redlock_op_fail(l, b->quorum_op, b->asked_at, status, words);
}

static bool is_held_on(const struct quorum_try *b, unsigned server)
{
    assert(server < b->quorum.servers);
    return b->quorum.vote[server] == VOTE_NO && !b->node_op[server].answer.is_free;
}

/* Finds the holder that has the lock on most servers, as one of them describes it, and the number
 * of these servers. NULL: no server says that the lock is held. */
static const struct node_op *find_holder(const struct redlock *l, const struct quorum_try *b,
                                         unsigned *servers)
{
    const struct node_op *holder = NULL;
    *servers = 0;

    for (unsigned i = 0; i < l->servers; i++) {
        uint64_t token = b->node_op[i].answer.holder_token;
        unsigned same = 0;
        for (unsigned j = 0; j < l->servers; j++)
            same += is_held_on(b, j) && b->node_op[j].answer.holder_token == token;

        if (is_held_on(b, i) && same > *servers) {
            holder = &b->node_op[i];
            *servers = same;
        }
    }
    return holder;
}

static int add_holder(const struct redlock *l, const struct quorum_try *b, char words[WORDS],
                      int len)
{
    unsigned servers, refused = quorum_count(&b->quorum, VOTE_NO);
    const struct node_op *holder = find_holder(l, b, &servers);
    if (!holder)
        return len;

    len += snprintf(words + len, WORDS - (size_t)len, "%sheld by %s on %u of %u servers",
                    len ? "; " : "", holder->holder[0] ? holder->holder : "another program",
                    servers, l->servers);
    if (refused > servers)
        len += snprintf(words + len, WORDS - (size_t)len, ", by others on %u", refused - servers);
    return len;
}

static void say_who_holds(const struct redlock *l, const struct quorum_try *b, char words[WORDS])
{
    add_failures(l, b, words, add_holder(l, b, words, 0));
}

static void say_who_is_away(const struct redlock *l, const struct quorum_try *b, char words[WORDS])
{
    unsigned away =
        quorum_count(&b->quorum, VOTE_FAILED) + quorum_count(&b->quorum, VOTE_UNCOUNTED);
    /* some servers have not answered; their votes were not needed */
    bool open = quorum_count(&b->quorum, VOTE_OPEN) > 0;

    int len = snprintf(words, WORDS, "%s%u of %u servers can be counted on, and %u are needed",
                       open ? "at most " : "", l->servers - away, l->servers,
                       quorum_majority(l->servers));
    add_failures(l, b, words, len);
}

static void say_who_agreed(const struct redlock *l, const struct quorum_try *b, char words[WORDS])
{
    int len = snprintf(words, WORDS, "%u of %u servers agreed, and %u are needed",
                       quorum_count(&b->quorum, VOTE_YES), l->servers, quorum_majority(l->servers));
    add_failures(l, b, words, add_holder(l, b, words, len));
}

/* ---- Asking again ---- */

static bool waits(const struct quorum_try *b)
{
    return !b->quorum_op || b->quorum_op->op->waits;
}

void redlock_try_poll_later(struct redlock *l, struct node_op *node_op, nanos now)
{
    if (!waits(node_op->in_try))
        redlock_try_send_later(l, node_op, now);
}

/* Repeats requests with the same id: the try continues, and its validity still counts from its
 * beginning. */
void redlock_try_tick(struct redlock *l, struct quorum_try *b, nanos now)
{
    for (unsigned i = 0; i < l->servers; i++) {
        struct node_op *node_op = &b->node_op[i];
        if (now < node_op->again)
            continue;
        node_op->again = TIME_NEVER;
        if (b->round == ROUND_ACQUIRE)
            redlock_try_send(l, node_op, OP_ACQUIRE, now);
    }
}

/* ---- The end ---- */

/* Returns when the lock may be free on this server; TIME_NEVER: unknown. */
static nanos free_there_at(const struct quorum_try *b, unsigned server)
{
    assert(server < b->quorum.servers);
    if (b->quorum.vote[server] == VOTE_YES)
        return 0;
    return b->quorum.vote[server] == VOTE_NO ? b->node_op[server].busy_until : TIME_NEVER;
}

/* Returns when the lock may be free on a majority. */
static nanos free_at(const struct redlock *l, const struct quorum_try *b)
{
    nanos until[QUORUM_SERVERS_MAX];
    for (unsigned i = 0; i < l->servers; i++)
        until[i] = free_there_at(b, i);

    for (unsigned i = 0; i < l->servers; i++) {
        unsigned earlier = 0, as_early = 0;
        for (unsigned j = 0; j < l->servers; j++) {
            earlier += until[j] < until[i];
            as_early += until[j] <= until[i];
        }

        if (earlier < quorum_majority(l->servers) && as_early >= quorum_majority(l->servers))
            return until[i];
    }
    return TIME_NEVER;
}

/* Releases the try everywhere, then replies. An op that reaches too few servers gives up its place,
 * too: the place would keep out clients that may reach more. The op keeps its ticket, which later
 * gives it the same place again. */
static void end_try(struct redlock *l, struct quorum_try *b, const struct engine_reply *reply,
                    nanos now)
{
    struct quorum_op *quorum_op = b->quorum_op;
    assert(reply->kind == REPLY_BUSY || reply->kind == REPLY_FAILED);

    b->waits_on = reply->kind != REPLY_FAILED;
    if (quorum_op)
        quorum_op->stands = b->waits_on;
    redlock_release_alone(l, b, now);
    if (!quorum_op)
        return;

    quorum_op->tried = true;
    redlock_op_listen(l, quorum_op, now);
    redlock_op_reply(l, quorum_op, reply);
}

static struct engine_reply failure_of(const struct quorum_try *b, hf_status status,
                                      const char *words)
{
    assert(status != HF_OK);
    return (struct engine_reply){.kind = REPLY_FAILED,
                                 .asked_at = b->asked_at,
                                 .retry_at = TIME_NEVER,
                                 .status = status,
                                 .text = words};
}

/* Replies to an op that lost. An op that does not wait gets BUSY only if the servers that refuse
 * rule out a majority. */
static void reply_loss(struct redlock *l, struct quorum_try *b, nanos now)
{
    char words[WORDS] = "";
    struct engine_reply reply = failure_of(b, HF_NO_QUORUM, words);

    if (quorum_is_silent(&b->quorum)) {
        say_who_is_away(l, b, words);
    } else if (waits(b) || quorum_is_refused(&b->quorum)) {
        say_who_holds(l, b, words);
        reply.kind = REPLY_BUSY;
        reply.retry_at = free_at(l, b);
    } else {
        say_who_agreed(l, b, words);
    }
    end_try(l, b, &reply, now);
}

/* Returns true if an op that does not wait must still wait for the remaining votes: they may show
 * that the lock is held, or that servers are down. The op waits only briefly if it may try
 * again. */
static bool awaits_rest(struct redlock *l, struct quorum_try *b, nanos now)
{
    bool is_clear = quorum_is_refused(&b->quorum) || quorum_is_silent(&b->quorum);
    bool is_over = now >= b->over_at || !quorum_count(&b->quorum, VOTE_OPEN);
    if (waits(b) || is_clear || is_over)
        return false;

    if (redlock_op_may_try(l, b->quorum_op, 2 * now - b->first_asked))
        redlock_try_hurry(b, now);
    return true;
}

static void try_again(struct redlock *l, struct quorum_try *b, nanos now)
{
    struct quorum_op *quorum_op = b->quorum_op;
    assert(quorum_op && !quorum_op->op->waits);

    b->waits_on = true;
    redlock_release_alone(l, b, now);
    quorum_op->tried = true;
    redlock_op_try_soon(l, quorum_op, now);
}

/* If no other client has a majority either, no release will notify the waiter: it must ask again by
 * itself. */
void redlock_try_fail(struct redlock *l, struct quorum_try *b, nanos now)
{
    struct quorum_op *quorum_op = b->quorum_op;
    unsigned most;
    assert(b->round == ROUND_ACQUIRE || b->round == ROUND_RAISE);
    if (awaits_rest(l, b, now))
        return;

    find_holder(l, b, &most);
    bool nobody_holds = most < quorum_majority(l->servers) && !quorum_is_silent(&b->quorum);
    if (quorum_op)
        quorum_op->vain = nobody_holds ? quorum_op->vain + 1 : 0;
    redlock_place_learn(l, b);
    if (quorum_op && nobody_holds && redlock_op_may_try(l, quorum_op, now)) {
        try_again(l, b, now);
        return;
    }

    reply_loss(l, b, now);
    if (quorum_op && nobody_holds)
        redlock_place_try_again(l, quorum_op, now);
}

/* A majority has granted, but after the end of the try: this process or a server was stopped
 * meanwhile. */
void redlock_try_expire(struct redlock *l, struct quorum_try *b, nanos now)
{
    char text[160];
    snprintf(text, sizeof text,
             "a majority granted it, but after %lld ms, when its ttl of %lld ms was over",
             (long long)((now - b->first_asked) / NANOS_OF_MS(1)), (long long)b->ttl_ms);
    struct engine_reply reply = failure_of(b, HF_TIMEOUT, text);
    end_try(l, b, &reply, now);
}
