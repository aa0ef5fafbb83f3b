/* joint_acquire.c - acquires several locks in one call of the server.
 *
 * A client that takes several names submits the op of a name when it holds all names before it, and
 * each op says which one comes next. So the engine can send one call for all of them
 * (scripts/acquire_several.lua), which ends at the first lock that is not free. All ops but the
 * first are then *ahead*: they were sent, and the client has not submitted them yet. Each has a
 * request of its own in the pipeline, so a lost connection or reply is noted for each.
 *
 * A grant or a place in the queue is kept until the client submits the op. After any other outcome
 * the op is sent again when it is submitted. If the client does not want the lock any more it
 * submits LEAVE, which is sent only if the server may have the op. */
#include "redis.h"

#include <assert.h>

enum { JOINED_MOST = 32 }; /* most locks in one call: while it runs other clients wait */

static void link_ops(struct redis_op *a, struct redis_op *next)
{
    if (!a->is_joined)
        a->joins = NULL;
    a->joined = next;
    next->joins = a;
    next->joined = NULL;
    a->is_joined = next->is_joined = true;
}

void redis_joint_part(struct redis_op *a)
{
    if (!a->is_joined)
        return;
    if (a->joins) {
        a->joins->joined = NULL;
        a->joins->is_joined = a->joins->joins;
    }
    if (a->joined) {
        a->joined->joins = NULL;
        a->joined->is_joined = a->joined->joined;
    }
    a->is_joined = false;
}

/* Returns true if ops may be joined. Grants that replicas must acknowledge, and servers of a
 * quorum, need other requests. The locks of a cluster lie in different slots. */
static bool may_join(const struct redis *r)
{
    return !r->durable && !r->is_quorum_member && !r->cluster.is_on;
}

/* Returns the state of an op that can be sent ahead of its submit; NULL: it cannot. */
static struct redis_op *prepare(struct redis *r, struct engine_op *op)
{
    const struct cached_keys *cached;
    if (redis_key_cache_find(r, op->name, op->name_len, &cached) != HF_OK)
        return NULL;

    bool was_known = op->engine_state;
    struct redis_op *a = redis_op_find_or_make(r, op);
    if (!a && !was_known && op->engine_state) /* the first part was allocated, so the op is known */
        op_table_drop(&r->known_ops, op->engine_state);
    bool is_new = a && !a->sent && !a->unsent && !a->is_joined;
    if (!is_new)
        return NULL;

    a->sent_op = *op;
    a->sent_op.verb = OP_ACQUIRE;
    a->first_ttl_ms = op->ttl_ms;
    a->is_ahead = op->is_ahead = true;
    return a;
}

/* The reply may be lost. Then the locks behind the first stay held, although the client does not
 * know it and waits for the first. With the same ttl none of them outlives the first, so two
 * callers of the same names do not wait for each other. */
static void join(struct redis *r, struct redis_op *first)
{
    struct redis_op *last = first;
    struct engine_op *op = first->sent_op.next;
    for (unsigned count = 1; op && count < JOINED_MOST; op = op->next, count++) {
        bool outlives = op->ttl_ms != first->sent_op.ttl_ms;
        struct redis_op *a = outlives ? NULL : prepare(r, op);
        if (!a)
            return;
        link_ops(last, a);
        last = a;
    }
}

bool redis_joint_submit(struct redis *r, struct redis_op *a)
{
    bool acquires = a->sent_op.verb == OP_ACQUIRE;
    /* A reply of another server counts for nothing: that of the present one replaces it. */
    bool is_answered = a->is_ahead && a->has_reply && acquires && a->kept_by == r->server_number;
    redis_joint_part(a);
    a->is_ahead = a->has_reply = a->op->is_ahead = false;
    if (is_answered) {
        redis_op_reply(r, a, &a->held_back);
        return true;
    }
    if (acquires && a->sent_op.next && may_join(r))
        join(r, a);
    return false;
}

static unsigned count_behind(const struct redis_op *a)
{
    unsigned count = 0;
    for (const struct redis_op *b = a->joined; b; b = b->joined)
        count++;
    return count;
}

static void write_call(struct redis *r, struct redis_op *a)
{
    unsigned count = 1 + count_behind(a);
    redis_script_begin_several(r, SCRIPT_ACQUIRE_SEVERAL, count * redis_keys_of_lock(r), count * 5);
    for (const struct redis_op *b = a; b; b = b->joined) {
        const struct cached_keys *cached;
        if (redis_key_cache_find(r, b->sent_op.name, b->sent_op.name_len, &cached) == HF_OK)
            redis_script_keys(r, cached);
        else
            r->command.failed = true;
    }
    redis_script_verb(r, SCRIPT_ACQUIRE_SEVERAL);
    for (const struct redis_op *b = a; b; b = b->joined) {
        resp_command_word(&r->command, b->id, REDIS_ID_TEXT);
        redis_op_add_terms(r, b);
    }
}

static struct request request_of(struct redis *r, struct redis_op *a)
{
    return (struct request){.kind = REQ_VERB,
                            .verb = OP_ACQUIRE,
                            .op = a,
                            .patience = redis_op_timing(r, a)->op_timeout,
                            .ttl_ms = a->sent_op.ttl_ms};
}

/* Separates the op from the next one, and returns the next one; NULL: there is none. */
static struct redis_op *take_next(struct redis_op *a)
{
    struct redis_op *next = a->is_joined ? a->joined : NULL;
    redis_joint_part(a);
    return next;
}

/* Notes for `a` and the ops behind it that the server may have them, although the call could not be
 * sent as a whole. */
static void note_unsent(struct redis_op *a)
{
    for (; a; a = take_next(a))
        a->sent = a->cut = true;
}

void redis_joint_send(struct redis *r, struct redis_op *a, struct redis_connection *connection,
                      nanos now)
{
    assert(a->joined && a->sent_op.verb == OP_ACQUIRE);
    write_call(r, a);
    struct request request = request_of(r, a);
    request.joined = (uint8_t)count_behind(a);
    struct redis_op *b = take_next(a);
    redis_op_set_floor(r, a);
    a->sent = true;
    a->unsent = false;
    a->acquiring++;
    if (!redis_connection_send(r, connection, request, now)) {
        note_unsent(b);
        a->acquiring--;
        redis_op_fail_with(r, a, connection, now);
        return;
    }
    redis_op_set_connections(r, a);
    for (; b; b = take_next(b)) {
        redis_op_set_floor(r, b);
        b->sent = true;
        b->acquiring++;
        if (!redis_connection_join(r, connection, request_of(r, b), now)) {
            b->acquiring--;
            note_unsent(b);
            return;
        }
        redis_op_set_connections(r, b);
    }
}

void redis_joint_keep(struct redis *r, struct redis_op *a, const struct engine_reply *reply)
{
    a->has_reply = reply->kind == REPLY_GRANTED || reply->kind == REPLY_QUEUED;
    if (!a->has_reply)
        return;
    a->kept_by = r->server_number;
    a->held_back = *reply;
    a->held_back.text = NULL;
    a->held_back.holder = NULL;
}

void redis_joint_unasked(struct redis *r, struct redis_op *a, bool is_unknown)
{
    assert(a->sent && a->acquiring);
    a->acquiring--;
    a->cut |= is_unknown;
    if (a->is_ahead && !is_unknown)
        a->sent = false;
    redis_op_set_connections(r, a);
}
