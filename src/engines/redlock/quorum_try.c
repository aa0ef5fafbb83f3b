/* quorum_try.c - one try to hold a lock: an attempt id of its own, and the requests to every
 * server.
 *
 * Rounds:
 *
 *   ACQUIRE puts the id on every server. RAISE writes the highest proposed token to the servers
 *   that granted. Any two majorities share a server, so the next holder's proposals include a
 *   higher token. Only then is the lock granted, and its validity counts from before the first
 *   request. EXTEND, CHECK renew and check. After a renewal by a majority, servers that lack the
 *   key get it back (quorum_rounds.c). RELEASE goes to every server, also to those that never
 *   answered, and again until each has confirmed it (release_all.c). */
#include "redlock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAUSE NANOS_OF_MS(5)
#define SLOW_PAUSE NANOS_OF_MS(5)

struct timing redlock_try_timing(const struct redlock *l, const struct quorum_try *b)
{
    struct timing t;
    timing_fill(&t, b->ttl_ms, &l->limits, &l->overrides);
    return t;
}

/* ---- Making and freeing ---- */

static struct quorum_try *take_unused(struct redlock *l)
{
    struct quorum_try *b = l->unused_tries;
    if (b) {
        l->unused_tries = b->next;
        return b;
    }

    if (heap_reserve(&l->try_alarms, l->try_count + 1) != HF_OK || !(b = malloc(sizeof *b)))
        return NULL;
    l->try_count++;
    return b;
}

static void set_node_op(struct quorum_try *b, unsigned server, const struct engine_op *op)
{
    struct node_op *s = &b->node_op[server];
    *s = (struct node_op){.member.op = *op, .in_try = b, .server = server, .again = TIME_NEVER};

    struct engine_op *own = &s->member.op;
    own->name = b->name;
    own->label = b->label;
    own->queue = own->may_be_in_flight = false;
    own->slot = SLOT_NODE_OP;
    own->connections = 0;
    own->engine_state = NULL;
}

struct quorum_try *redlock_try_make(struct redlock *l, struct quorum_op *quorum_op)
{
    const struct engine_op *op = quorum_op->op;
    assert(!quorum_op->open_try);
    assert(op->name_len <= HF_NAME_MAX && op->label_len <= HF_LABEL_MAX);
    struct quorum_try *b = take_unused(l);
    if (!b)
        return NULL;

    memset(b, 0, offsetof(struct quorum_try, node_op));
    memcpy(b->name, op->name, op->name_len);
    memcpy(b->label, op->label, op->label_len);
    b->name[op->name_len] = b->label[op->label_len] = 0;
    b->ttl_ms = op->ttl_ms;
    b->expected = op->token;
    b->place = quorum_op->place;
    b->over_at = b->give_up_at = TIME_NEVER;
    b->quorum_op = quorum_op;
    quorum_op->open_try = b;

    b->next = l->tries;
    if (l->tries)
        l->tries->prev = b;
    l->tries = b;
    for (unsigned i = 0; i < l->servers; i++)
        set_node_op(b, i, op);
    return b;
}

/* Counts the tries for each connection that has replies in the background. */
static void count_connections(struct redlock *l, struct quorum_try *b, connection_set connections)
{
    for (connection_set changed = connections ^ b->background; changed; changed &= changed - 1) {
        unsigned connection = (unsigned)__builtin_ctzll(changed);
        bool is_added = connections >> connection & 1;
        assert(is_added || l->background[connection]);

        l->background[connection] += is_added ? 1 : UINT32_MAX;
        if (l->background[connection])
            l->background_connections |= connection_set_of(connection);
        else
            l->background_connections &= ~connection_set_of(connection);
    }
    b->background = connections;
}

void redlock_try_free(struct redlock *l, struct quorum_try *b)
{
    count_connections(l, b, 0);
    heap_remove(&l->try_alarms, &b->alarm);
    for (unsigned i = 0; i < l->servers; i++) {
        assert(l->answers_due >= b->node_op[i].open);
        redis_wire_engine.forget(l->node[i].redis, &b->node_op[i].member.op);
        redlock_servers_drop_replies(l, &b->node_op[i].member.op);
        l->answers_due -= b->node_op[i].open;
    }

    *(b->prev ? &b->prev->next : &l->tries) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    if (b->quorum_op)
        b->quorum_op->open_try = NULL;
    b->next = l->unused_tries;
    l->unused_tries = b;
}

/* ---- Requests ---- */

/* Returns the place to send. A repair takes no turn, so it sends no place. A release gives the
 * place up, unless the wait goes on. */
static const struct queue_place *place_for(const struct quorum_try *b, enum op_verb verb)
{
    bool begins = verb == OP_ACQUIRE && !b->held;
    bool leaves = verb == OP_RELEASE && b->place.waits && !b->waits_on;

    return begins || leaves ? &b->place : NULL;
}

static void set_op(struct node_op *node_op, const struct quorum_try *b, enum op_verb verb)
{
    struct quorum_member_op *member = &node_op->member;
    bool names_token = verb == OP_EXTEND || (verb == OP_ACQUIRE && b->held);

    member->op.verb = verb;
    member->op.ttl_ms = b->ttl_ms;
    member->op.lost = b->lost;
    member->op.token = names_token ? b->token : 0;
    member->quiet = b->quiet;
    member->place = place_for(b, verb);
}

bool redlock_try_send(struct redlock *l, struct node_op *node_op, enum op_verb verb, nanos now)
{
    struct quorum_try *b = node_op->in_try;
    assert(node_op->open <= REQUESTS_MAX);

    /* an unsent request is replaced by this one */
    bool replaces = node_op->open && redis_quorum_member_is_unsent(&node_op->member.op);
    if (!replaces && (node_op->open == REQUESTS_MAX || !redlock_servers_expect(l))) {
        b->quorum.vote[node_op->server] = VOTE_FAILED;
        return false;
    }

    node_op->open += !replaces;
    unsigned at = (node_op->first + node_op->open - 1) % REQUESTS_MAX;
    node_op->asked[at] = (uint8_t)verb;
    node_op->rounds[at] = b->number;
    node_op->asked_at[at] = now;
    set_op(node_op, b, verb);
    redis_wire_engine.submit(l->node[node_op->server].redis, &node_op->member.op, now);
    return true;
}

/* Plans to send the request again. The pause doubles: a cut connection is usually back soon; a
 * server that is down is not. */
void redlock_try_send_later(struct redlock *l, struct node_op *node_op, nanos now)
{
    nanos longest = redlock_try_timing(l, node_op->in_try).op_timeout, pause = FIRST_PAUSE;

    for (unsigned i = 0; i < node_op->failures && pause < longest; i++)
        pause *= 2;
    node_op->failures++;
    node_op->again = now + (pause < longest ? pause : longest);
}

/* Returns when the round must end. The client gives up on a request after two op_timeouts, and all
 * rounds of a try end earlier. But if this process was stopped meanwhile, ROUND_RAISE still gets
 * half an op_timeout. */
static nanos end_of_round(const struct redlock *l, const struct quorum_try *b, enum round round,
                          nanos now)
{
    nanos op_timeout = redlock_try_timing(l, b).op_timeout;
    nanos begin = b->quorum_op ? b->quorum_op->asked_at : now;
    if (round == ROUND_ACQUIRE)
        return redlock_silence_limit(l, b, now, begin + op_timeout / 2 * 3);
    if (round != ROUND_RAISE)
        return now + op_timeout / 2 * 3;

    nanos of_tries = begin + op_timeout / 8 * 15, least = now + op_timeout / 2;
    return redlock_silence_limit(l, b, now, of_tries > least ? of_tries : least);
}

void redlock_try_begin_round(struct redlock *l, struct quorum_try *b, enum round round, nanos now)
{
    assert(round != ROUND_NONE);
    b->round = round;
    b->number++;
    b->asked_at = now;
    b->over_at = end_of_round(l, b, round, now);
    b->repairs = b->hurried = false;
    quorum_open(&b->quorum, l->servers);
}

void redlock_try_hurry(struct quorum_try *b, nanos now)
{
    nanos took = now - b->first_asked, pause = took > SLOW_PAUSE ? took : SLOW_PAUSE;

    if (now + pause < b->over_at)
        b->over_at = now + pause;
}

void redlock_try_send_all(struct redlock *l, struct quorum_try *b, enum round round,
                          enum op_verb verb, nanos now)
{
    redlock_try_begin_round(l, b, round, now);
    for (unsigned i = 0; i < l->servers; i++)
        redlock_try_send(l, &b->node_op[i], verb, now);
}

/* ---- Replies ---- */

static void note_error(struct redlock *l, const struct node_op *node_op,
                       const struct engine_reply *reply)
{
    struct node *m = &l->node[node_op->server];
    bool is_error = reply->kind == REPLY_UNKNOWN || reply->kind == REPLY_FAILED;

    if (is_error && reply->text)
        snprintf(m->error_text, sizeof m->error_text, "%s", reply->text);
}

void redlock_try_on_reply(struct redlock *l, struct node_op *node_op,
                          const struct engine_reply *reply, const struct quorum_answer *answer,
                          nanos now)
{
    struct quorum_try *b = node_op->in_try;
    assert(node_op->open > 0 && l->answers_due > 0);
    enum op_verb verb = node_op->asked[node_op->first];
    bool this_round = node_op->rounds[node_op->first] == b->number;

    redlock_silence_on_reply(l, node_op->server, reply, node_op->asked_at[node_op->first], now);
    node_op->first = (node_op->first + 1) % REQUESTS_MAX;
    node_op->open--;
    l->answers_due--;
    node_op->member.op.may_be_in_flight |= reply->kind == REPLY_UNKNOWN || reply->outcome_unknown;
    note_error(l, node_op, reply);
    if (verb == OP_ACQUIRE && reply->kind != REPLY_GRANTED)
        node_op->answer = *answer;

    if (verb == OP_RELEASE)
        redlock_release_on_reply(l, node_op, this_round, reply, now);
    else
        redlock_round_on_reply(l, node_op, verb, this_round, reply, now);
    redlock_round_judge(l, b, now);
    redlock_try_update(l, b, now);
}

/* ---- Time ---- */

static void end_round(struct redlock *l, struct quorum_try *b, nanos now)
{
    redlock_silence_end_round(l, b);
    redlock_round_judge(l, b, now);
}

static nanos due_at(const struct redlock *l, const struct quorum_try *b, nanos now)
{
    nanos due = b->over_at;
    bool must_be_released = !b->quorum_op && b->round != ROUND_RELEASE;
    if (must_be_released || redlock_release_is_over(l, b, now))
        return now;

    for (unsigned i = 0; i < l->servers; i++)
        due = b->node_op[i].again < due ? b->node_op[i].again : due;
    bool gives_up_first = !b->quorum_op && now < b->give_up_at && b->give_up_at < due;
    return gives_up_first ? b->give_up_at : due;
}

void redlock_try_update(struct redlock *l, struct quorum_try *b, nanos now)
{
    connection_set connections = 0;
    bool is_awaited = b->quorum_op && b->over_at != TIME_NEVER;
    for (unsigned i = 0; i < l->servers && !is_awaited; i++) {
        const struct node_op *node_op = &b->node_op[i];
        connection_set here = node_op->member.op.connections | (node_op->again != TIME_NEVER);
        connections |= here << i * QUORUM_MEMBER_CONNECTIONS;
    }
    count_connections(l, b, connections);

    nanos due = due_at(l, b, now);
    if (due == TIME_NEVER)
        heap_remove(&l->try_alarms, &b->alarm);
    else
        heap_put(&l->try_alarms, &b->alarm, due);
    if (b->quorum_op)
        redlock_op_set_connections(l, b->quorum_op);
}

void redlock_tries_tick(struct redlock *l, nanos now)
{
    for (struct heap_node *node; (node = heap_first(&l->try_alarms)) && now >= node->key;) {
        struct quorum_try *b =
            (struct quorum_try *)(void *)((char *)node - offsetof(struct quorum_try, alarm));
        if (!b->quorum_op && b->round != ROUND_RELEASE)
            redlock_release_all(l, b, now);
        if (now >= b->over_at)
            end_round(l, b, now);

        (b->round == ROUND_RELEASE ? redlock_release_tick : redlock_try_tick)(l, b, now);
        if (redlock_release_is_over(l, b, now))
            redlock_try_free(l, b);
        else
            redlock_try_update(l, b, now);
    }
}
