/* quorum_op.c - one op of the client on a quorum: its tries, and the pauses between them.
 *
 * A waiter listens on every server and has a place in their queues (places.c): the servers say when
 * to ask again. An op that does not wait tries again at random times while nobody holds the lock,
 * with ever longer pauses, until its reply is due. */
#include "redlock.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Clients that find the lock free try again at random times within this span, so that their votes
 * do not split again. Each time that votes split, the span doubles. */
#define TRY_SPREAD NANOS_OF_MS(12)
enum { SPREAD_DOUBLINGS = 6 };

/* ---- Replies ---- */

/* Sets the op's connections. Once a round is decided, the op does not wait for slow servers. */
void redlock_op_set_connections(struct redlock *l, struct quorum_op *quorum_op)
{
    const struct quorum_try *b = quorum_op->open_try;
    connection_set connections = redlock_admin_connections(quorum_op);
    bool awaits = b && b->over_at != TIME_NEVER;

    for (unsigned i = 0; i < l->servers; i++) {
        connection_set here = awaits ? b->node_op[i].member.op.connections : 0;
        here |= quorum_op->listens ? quorum_op->listen_op[i].op.connections : 0;
        connections |= here << i * QUORUM_MEMBER_CONNECTIONS;
    }
    quorum_op->op->connections = connections;
}

void redlock_op_reply(struct redlock *l, struct quorum_op *quorum_op,
                      const struct engine_reply *reply)
{
    assert(reply->kind < REPLY_KINDS);
    redlock_op_set_connections(l, quorum_op);
    l->host->on_reply(l->host->ctx, quorum_op->op, reply);
}

void redlock_op_fail(struct redlock *l, struct quorum_op *quorum_op, nanos now, hf_status status,
                     const char *text)
{
    assert(status != HF_OK);
    redlock_op_reply(l, quorum_op,
                     &(struct engine_reply){.kind = REPLY_FAILED,
                                            .asked_at = now,
                                            .retry_at = TIME_NEVER,
                                            .status = status,
                                            .text = text});
}

static void reply_released(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    redlock_op_reply(
        l, quorum_op,
        &(struct engine_reply){.kind = REPLY_RELEASED, .asked_at = now, .retry_at = TIME_NEVER});
}

/* ---- Notifications ---- */

void redlock_op_listen(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    if (quorum_op->listens || !quorum_op->op->waits)
        return;

    quorum_op->listens = true;
    for (unsigned i = 0; i < l->servers; i++) {
        quorum_op->listen_op[i] =
            (struct quorum_member_op){.op = {.name = quorum_op->op->name,
                                             .name_len = quorum_op->op->name_len,
                                             .slot = SLOT_LISTEN_OP,
                                             .seen = i},
                                      .place = &quorum_op->place};
        redis_quorum_member_listen(l->node[i].redis, &quorum_op->listen_op[i], now);
    }
}

static void stop_listening(struct redlock *l, struct quorum_op *quorum_op)
{
    for (unsigned i = 0; quorum_op->listens && i < l->servers; i++)
        redis_wire_engine.forget(l->node[i].redis, &quorum_op->listen_op[i].op);
    quorum_op->listens = false;

    struct quorum_op **at = &l->notified;
    while (quorum_op->is_notified && *at != quorum_op)
        at = &(*at)->notified;
    if (quorum_op->is_notified)
        *at = quorum_op->notified;
    quorum_op->is_notified = false;
}

/* ---- When an op that does not wait tries again ---- */

static nanos draw_pause(struct redlock *l, const struct quorum_op *quorum_op)
{
    unsigned doublings = quorum_op->vain < SPREAD_DOUBLINGS ? quorum_op->vain : SPREAD_DOUBLINGS;
    nanos spread = TRY_SPREAD << doublings;

    return spread / 1024 * (l->host->random(l->host->ctx) % 1024);
}

/* Returns the latest time at which the last try may begin: one op_timeout after the client asked.
 * The client waits for two, so one op_timeout is left for that try. */
static nanos last_try_at(const struct redlock *l, const struct quorum_op *quorum_op)
{
    struct timing t;
    timing_fill(&t, quorum_op->op->ttl_ms, &l->limits, &l->overrides);
    return quorum_op->asked_at + t.op_timeout;
}

bool redlock_op_may_try(const struct redlock *l, const struct quorum_op *quorum_op, nanos at)
{
    return !quorum_op->op->waits && at < last_try_at(l, quorum_op);
}

void redlock_op_try_soon(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    assert(!quorum_op->op->waits);
    nanos at = now + draw_pause(l, quorum_op), last = last_try_at(l, quorum_op);

    quorum_op->try_at = at < last ? at : last;
    redlock_op_set_alarm(l, quorum_op);
}

void redlock_op_set_alarm(struct redlock *l, struct quorum_op *quorum_op)
{
    nanos due = redlock_admin_due(quorum_op);
    due = quorum_op->notify_at < due ? quorum_op->notify_at : due;
    due = quorum_op->try_at < due ? quorum_op->try_at : due;

    if (due == TIME_NEVER)
        heap_remove(&l->quorum_op_alarms, &quorum_op->alarm);
    else
        heap_put(&l->quorum_op_alarms, &quorum_op->alarm, due);
}

/* ---- Making and forgetting ---- */

struct quorum_op *redlock_op_make(struct redlock *l, struct engine_op *op)
{
    assert(!op->engine_state);
    struct quorum_op *quorum_op = l->unused_quorum_ops;
    if (!quorum_op && heap_reserve(&l->quorum_op_alarms, l->quorum_op_count + 1) != HF_OK)
        return NULL;

    if (quorum_op)
        l->unused_quorum_ops = quorum_op->next;
    else if ((quorum_op = malloc(sizeof *quorum_op)))
        l->quorum_op_count++;
    else
        return NULL;

    *quorum_op = (struct quorum_op){
        .op = op, .notify_at = TIME_NEVER, .try_at = TIME_NEVER, .next = l->quorum_ops};
    if (l->quorum_ops)
        l->quorum_ops->prev = quorum_op;
    l->quorum_ops = quorum_op;
    op->engine_state = quorum_op;
    return quorum_op;
}

/* Returns the try that gives up the place of a wait; makes one if needed. NULL: no place to give
 * up, or no memory. Without memory the servers drop the place like that of a dead process. */
static struct quorum_try *try_to_leave(struct redlock *l, struct quorum_op *quorum_op)
{
    if (!quorum_op->open_try && quorum_op->stands)
        redlock_try_make(l, quorum_op);
    if (quorum_op->open_try)
        quorum_op->open_try->waits_on = false;
    quorum_op->stands = false;
    return quorum_op->open_try;
}

/* The client forgets the op. A hold without a release stays, because another process may import its
 * text; everything else is released. */
static void part(struct redlock *l, struct quorum_op *quorum_op)
{
    bool is_place_alone = !quorum_op->open_try && quorum_op->stands;
    struct quorum_try *b = try_to_leave(l, quorum_op);
    if (!b)
        return;
    if (is_place_alone) {
        redlock_release_alone(l, b, l->last_now);
        return;
    }

    /* another client made this hold, and here it was only checked: do not end it */
    bool is_elsewhere = b->first_asked == 0;
    if ((b->held || is_elsewhere) && b->round != ROUND_RELEASE) {
        redlock_try_free(l, b);
    } else {
        b->quorum_op = NULL;
        redlock_try_update(l, b, 0); /* the next tick releases it */
    }
}

void redlock_op_forget(struct redlock *l, struct quorum_op *quorum_op)
{
    assert(quorum_op->op->engine_state == quorum_op);
    quorum_op->op->engine_state = NULL;
    quorum_op->op->connections = 0;

    stop_listening(l, quorum_op);
    part(l, quorum_op);
    redlock_admin_free(l, quorum_op);
    heap_remove(&l->quorum_op_alarms, &quorum_op->alarm);

    *(quorum_op->prev ? &quorum_op->prev->next : &l->quorum_ops) = quorum_op->next;
    if (quorum_op->next)
        quorum_op->next->prev = quorum_op->prev;
    quorum_op->next = l->unused_quorum_ops;
    l->unused_quorum_ops = quorum_op;
}

/* ---- Verbs ---- */

static void draw_id(struct redlock *l, struct id *id)
{
    for (size_t i = 0; i < sizeof id->b; i += 4) {
        uint32_t random = l->host->random(l->host->ctx);
        memcpy(id->b + i, &random, 4);
    }
}

/* Draws an attempt id. Each try has its own: a late message of the last try must not become part
 * of this one. */
static void draw_new_attempt(struct redlock *l, struct engine_op *op)
{
    bool same = memcmp(&op->owner, &op->attempt, sizeof op->owner) == 0;

    draw_id(l, &op->attempt);
    if (same)
        op->owner = op->attempt;
}

static void begin_try(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    if (quorum_op->open_try) {
        quorum_op->open_try->waits_on = true;
        redlock_release_alone(l, quorum_op->open_try, now);
        quorum_op->tried = true;
    }
    if (!quorum_op->asked_before) {
        draw_id(l, &quorum_op->place.id);
        quorum_op->asked_before = true;
    }
    redlock_place_begin_try(l, quorum_op);
    if (quorum_op->tried)
        draw_new_attempt(l, quorum_op->op);

    struct quorum_try *b = redlock_try_make(l, quorum_op);
    if (!b) {
        redlock_op_fail(l, quorum_op, now, HF_NO_MEMORY, "no memory for a request");
        return;
    }
    b->first_asked = now;
    redlock_try_send_all(l, b, ROUND_ACQUIRE, OP_ACQUIRE, now);
    redlock_round_judge(l, b, now);
    if (quorum_op->open_try)
        redlock_try_update(l, quorum_op->open_try, now);
}

static void leave(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    struct quorum_try *b = try_to_leave(l, quorum_op);

    if (b)
        redlock_release_alone(l, b, now);
    reply_released(l, quorum_op, now);
}

static void release(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    struct quorum_try *b = quorum_op->open_try;
    if (!b) {
        reply_released(l, quorum_op, now);
        return;
    }

    assert(b->quorum_op == quorum_op);
    b->lost = quorum_op->op->lost;
    quorum_op->stands = false;
    redlock_release_all(l, b, now);
    redlock_round_judge(l, b, now);
}

/* Renews or checks a hold. A hold that another client made first gets a try, as if it were our
 * own. */
static void renew_or_check(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    enum op_verb verb = quorum_op->op->verb;
    struct quorum_try *b = quorum_op->open_try;
    if (!b) {
        l->has_adopted = true;
        b = redlock_try_make(l, quorum_op);
    }
    if (!b) {
        redlock_op_fail(l, quorum_op, now, HF_NO_MEMORY, "no memory for a request");
        return;
    }

    assert(b->quorum_op == quorum_op);
    if (verb == OP_EXTEND)
        b->ttl_ms = quorum_op->op->ttl_ms;
    redlock_try_send_all(l, b, verb == OP_CHECK ? ROUND_CHECK : ROUND_EXTEND, verb, now);
    redlock_round_judge(l, b, now);
}

static bool is_too_long(const struct redlock *l, const struct engine_op *op)
{
    bool sets_ttl = op->verb == OP_ACQUIRE || op->verb == OP_EXTEND;
    return sets_ttl && NANOS_OF_MS(op->ttl_ms) > l->max_ttl;
}

void redlock_op_submit(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    const struct engine_op *op = quorum_op->op;
    if (is_too_long(l, op)) {
        error_set(
            HF_INVALID,
            "ttl: %lld ms is longer than max_ttl, which is %lld ms and the same for all clients",
            (long long)op->ttl_ms, (long long)(l->max_ttl / NANOS_OF_MS(1)));
        redlock_op_fail(l, quorum_op, now, HF_INVALID, error_text());
        return;
    }
    bool is_asking = op->verb == OP_ACQUIRE;
    if (is_asking &&
        redis_quorum_member_check_name(l->node[0].redis, op->name, op->name_len) != HF_OK) {
        redlock_op_fail(l, quorum_op, now, HF_INVALID, error_text());
        return;
    }

    quorum_op->notify_at = quorum_op->try_at = TIME_NEVER;
    quorum_op->is_notify_soon = false;
    quorum_op->asked_at = now;
    switch (op->verb) {
    case OP_ACQUIRE:
        begin_try(l, quorum_op, now);
        break;
    case OP_LEAVE:
        leave(l, quorum_op, now);
        break;
    case OP_RELEASE:
        release(l, quorum_op, now);
        break;
    case OP_EXTEND:
    case OP_CHECK:
        renew_or_check(l, quorum_op, now);
        break;
    default:
        assert(op->verb == OP_ADMIN);
        redlock_admin_submit(l, quorum_op, now);
    }

    if (quorum_op->open_try)
        redlock_try_update(l, quorum_op->open_try, now);
    redlock_op_set_alarm(l, quorum_op);
}

/* ---- Alarms ---- */

static void do_what_is_due(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    if (now >= quorum_op->notify_at) {
        quorum_op->notify_at = TIME_NEVER;
        quorum_op->is_notify_soon = false;
        redlock_op_reply(l, quorum_op,
                         &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
    }
    if (now >= quorum_op->try_at) {
        quorum_op->try_at = TIME_NEVER;
        begin_try(l, quorum_op, now);
    }
    redlock_admin_tick(l, quorum_op, now);
    redlock_op_set_alarm(l, quorum_op);
}

void redlock_ops_tick(struct redlock *l, nanos now)
{
    for (struct heap_node *node; (node = heap_first(&l->quorum_op_alarms)) && now >= node->key;) {
        struct quorum_op *quorum_op =
            (struct quorum_op *)(void *)((char *)node - offsetof(struct quorum_op, alarm));
        do_what_is_due(l, quorum_op, now);
    }
}
