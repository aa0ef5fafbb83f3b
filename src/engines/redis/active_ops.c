/* active_ops.c - what the engine keeps of an op: a small struct resting_op from the first submit
 * until forget(), and a struct redis_op while something is in flight for it or it waits.
 *
 * A client may hold very many locks, and only a few of them are active at a time. */
#include "redis.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { UNUSED_MOST = 64 }; /* redis_ops that are kept for reuse */

static struct resting_op *resting_of(struct engine_op *op)
{
    return op->engine_state;
}

struct resting_op *redis_resting_op_of(struct redis *r, const char text[REDIS_ID_TEXT])
{
    struct id id;
    return redis_id_read(text, &id) ? (struct resting_op *)op_table_find(&r->known_ops, &id) : NULL;
}

struct resting_op *redis_resting_op_next(const struct resting_op *one)
{
    return (struct resting_op *)op_table_next(&one->known);
}

bool redis_op_same_name(const struct redis_op *a, const struct redis_op *other)
{
    assert(a->sent_op.name && other->sent_op.name);
    return a->sent_op.name_len == other->sent_op.name_len &&
           memcmp(a->sent_op.name, other->sent_op.name, a->sent_op.name_len) == 0;
}

struct redis_op *redis_op_find_or_make(struct redis *r, struct engine_op *op)
{
    if (!op->engine_state && !op_table_add(&r->known_ops, op, sizeof(struct resting_op)))
        return NULL;

    resting_of(op)->home = (uint8_t)r->cluster.place.index;

    struct redis_op *a = redis_active_op(op);
    if (a)
        return a;

    struct resting_op *resting = resting_of(op);
    assert(resting->known.op == op);
    a = r->unused;

    if (a) {
        r->unused = a->next;
        r->unused_count--;
    } else if (!(a = malloc(sizeof *a))) {
        return NULL;
    }

    memset(a, 0, offsetof(struct redis_op, id));
    a->op = op;
    a->resting = resting;
    a->next = r->ops;
    a->sent = resting->sent;
    a->cut = resting->cut;
    a->confirmed_by = resting->confirmed_by;
    a->first_ttl_ms = resting->first_ttl_ms;
    a->acknowledged = resting->acknowledged;
    redis_id_text(&op->attempt, a->id);
    if (r->ops)
        r->ops->prev = a;
    r->ops = resting->known.active = a;
    return a;
}

static void leave_list(struct redis *r, struct redis_op *a)
{
    assert(!a->admin && !a->care);
    *(a->prev ? &a->prev->next : &r->ops) = a->next;
    if (a->next)
        a->next->prev = a->prev;

    free(a->lack_text);
    if (r->unused_count == UNUSED_MOST) {
        free(a);
        return;
    }

    a->next = r->unused;
    r->unused = a;
    r->unused_count++;
}

static bool is_idle(const struct redis_op *a)
{
    bool waits = a->unsent || a->queued || a->listens;
    return !waits && !redis_op_is_in_flight(a) && !a->admin && !a->care;
}

void redis_ops_rest(struct redis *r)
{
    while (r->replied) {
        struct redis_op *a = r->replied;
        r->replied = a->next_replied;
        a->replied = false;
        if (!is_idle(a))
            continue;

        a->resting->sent = a->sent;
        a->resting->cut = a->cut;
        a->resting->confirmed_by = a->confirmed_by;
        a->resting->first_ttl_ms = (uint32_t)a->first_ttl_ms;
        a->resting->acknowledged = a->acknowledged;
        a->resting->known.active = NULL;
        leave_list(r, a);
    }
}

static void forget_active(struct redis *r, struct redis_op *a)
{
    assert(a->op && a->resting->known.active == a);
    redis_notify_set_listener(r, a, false, r->last_now);
    redis_op_set_queued(r, a, false);
    redis_joint_part(a);

    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (a->in_flight[i])
            redis_connection_forget(&r->connection[i], a);

    redis_admin_free(a);

    if (a->replied) { /* the functions above may have added the op to this list */
        struct redis_op **at = &r->replied;
        while (*at != a)
            at = &(*at)->next_replied;
        *at = a->next_replied;
    }

    leave_list(r, a);
}

void redis_op_forget(struct redis *r, struct engine_op *op)
{
    struct redis_op *a = redis_active_op(op);
    if (!op->engine_state)
        return;

    if (a)
        forget_active(r, a);
    op->connections = 0;
    op_table_drop(&r->known_ops, op->engine_state);
}

void redis_ops_free(struct redis *r)
{
    assert(!r->replied);
    for (struct redis_op *a = r->ops; a; a = a->next)
        redis_admin_free(a);
    while (r->ops)
        leave_list(r, r->ops);

    for (struct redis_op *a = r->unused, *next; a; a = next) {
        next = a->next;
        free(a);
    }

    op_table_free(&r->known_ops);
}
