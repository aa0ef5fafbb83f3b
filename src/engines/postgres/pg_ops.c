/* pg_ops.c - the struct of an op, and the statement by which an op is sent. */
#include "postgres.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ---- */

struct pg_op *pg_op_find_or_make(struct postgres *p, struct engine_op *op)
{
    assert(!op->engine_state || ((struct pg_op *)op->engine_state)->op == op);
    struct pg_op *a = op->engine_state;
    if (a)
        return a;

    a = calloc(1, sizeof *a);
    if (!a)
        return NULL;

    a->op = op;
    a->next = p->ops;
    if (p->ops)
        p->ops->prev = a;
    p->ops = a;
    op->engine_state = a;
    return a;
}

static void leave_active(struct postgres *p, struct pg_op *a)
{
    assert(a->active);
    *(a->prev_active ? &a->prev_active->next_active : &p->active) = a->next_active;
    if (a->next_active)
        a->next_active->prev_active = a->prev_active;
    a->next_active = a->prev_active = NULL;
    a->active = false;
}

static void enter_active(struct postgres *p, struct pg_op *a)
{
    assert(!a->active);
    a->next_active = p->active;
    if (p->active)
        p->active->prev_active = a;
    p->active = a;
    a->active = true;
}

void pg_op_settle(struct postgres *p, struct pg_op *a)
{
    assert(a->op);
    bool is_active = a->unsent || a->queued || a->in_flight;
    bool listens = a->queued && !p->polls;

    a->op->connections = a->unsent || a->in_flight || listens;
    if (is_active != a->active)
        (is_active ? enter_active : leave_active)(p, a);
}

void pg_op_forget(struct postgres *p, struct engine_op *op)
{
    struct pg_op *a = op->engine_state;
    if (!a)
        return;

    assert(a->op == op);
    if (p->interop)
        pg_interop_forget(p, a);
    if (a->in_flight)
        pg_connection_forget(p, a);
    pg_op_set_queued(p, a, false);
    if (a->active)
        leave_active(p, a);
    *(a->prev ? &a->prev->next : &p->ops) = a->next;
    if (a->next)
        a->next->prev = a->prev;

    op->engine_state = NULL;
    op->connections = 0;
    free(a->list_after);
    free(a);
}

/* ---- Replying ---- */

void pg_op_reply(struct postgres *p, struct pg_op *a, const struct engine_reply *reply)
{
    pg_op_settle(p, a);
    p->host->on_reply(p->host->ctx, a->op, reply);
}

void pg_op_fail(struct postgres *p, struct pg_op *a, nanos asked_at, hf_status status,
                const char *text)
{
    assert(status != HF_OK && text);
    pg_op_reply(p, a,
                &(struct engine_reply){.kind = REPLY_FAILED,
                                       .asked_at = asked_at,
                                       .retry_at = TIME_NEVER,
                                       .status = status,
                                       .text = text});
}

void pg_op_fail_with_connection(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct pg_connection *connection = &p->connection;
    pg_op_reply(
        p, a,
        &(struct engine_reply){
            .kind = REPLY_FAILED,
            .asked_at = now,
            .retry_at = connection->state == PG_DOWN ? connection->redial.dial_at : TIME_NEVER,
            .status = connection->last_status == HF_OK ? HF_UNAVAILABLE : connection->last_status,
            .text = connection->why});
}

void pg_op_set_queued(struct postgres *p, struct pg_op *a, bool queued)
{
    assert(!a->queued || p->queued);
    if (queued && !a->queued)
        p->queued++;
    else if (!queued && a->queued)
        p->queued--;

    a->queued = queued;
    if (!queued)
        a->queued_reply.set = false;
}

/* ---- Arguments ---- */

static int64_t ms_of(nanos length)
{
    return length / NANOS_OF_MS(1);
}

const struct timing *pg_op_timing(struct postgres *p, const struct pg_op *a)
{
    assert(a->first_ttl_ms >= 0);
    const struct timing *t = &p->timing;
    if (p->timing_ttl_ms == a->first_ttl_ms)
        return t;

    timing_fill(&p->timing, a->first_ttl_ms, &p->limits, &p->overrides);
    p->timing_ttl_ms = a->first_ttl_ms;
    snprintf(p->pace, sizeof p->pace,
             "{%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d}",
             ms_of(t->refresh_first), ms_of(t->refresh), ms_of(t->handoff_grace), ms_of(t->margin),
             ms_of(t->stagger), PG_WAITERS_MAX);
    return t;
}

void pg_id_text(const struct id *id, char text[PG_ID_TEXT + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof id->b; i++) {
        text[2 * i] = digits[id->b[i] >> 4];
        text[2 * i + 1] = digits[id->b[i] & 15];
    }
    text[PG_ID_TEXT] = 0;
}

void pg_full_name(const struct postgres *p, const struct engine_op *op, char name[PG_NAME_MAX + 1])
{
    assert(op->name && op->name_len <= HF_NAME_MAX);
    snprintf(name, PG_NAME_MAX + 1, "%s%.*s", p->prefix, (int)op->name_len, op->name);
}

struct pg_seen *pg_seen_of(struct postgres *p, const struct engine_op *op)
{
    uint64_t hash = 14695981039346656037u;
    for (uint32_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (uint8_t)op->name[i]) * 1099511628211u;
    return &p->seen[(hash ^ hash >> 32) % PG_SEEN];
}

static bool has_owner(const struct engine_op *op)
{
    return op->named && !id_same(&op->owner, &op->attempt);
}

static bool is_plain(const struct engine_op *op)
{
    return op->kind == HF_EXCLUSIVE && !has_owner(op);
}

static const char *kind_text(hf_kind kind)
{
    static const char *const kinds[] = {
        [HF_EXCLUSIVE] = "e", [HF_SEMAPHORE] = "s", [HF_READ] = "r", [HF_WRITE] = "w"};
    assert((unsigned)kind < sizeof kinds / sizeof *kinds);
    return kinds[kind];
}

static const char *truth(bool is_true)
{
    return is_true ? "t" : "f";
}

/* The numbers of a statement as text, in one buffer. */
struct numbers {
    char text[12][24];
    int count;
};

static const char *number(struct numbers *numbers, int64_t value)
{
    assert(numbers->count < 12);
    char *text = numbers->text[numbers->count++];
    snprintf(text, sizeof numbers->text[0], "%" PRId64, value);
    return text;
}

/* ---- Statements ---- */

static bool send_verb(struct postgres *p, struct pg_op *a, const char *name, const char *sql,
                      int count, const char *const *values, nanos now)
{
    enum op_verb verb = a->sent_op.verb;
    struct pg_request request = {.kind = PG_REQ_VERB,
                                 .verb = (uint8_t)verb,
                                 .op = a,
                                 .patience = pg_op_timing(p, a)->op_timeout,
                                 .ttl_ms = a->sent_op.ttl_ms};
    a->acquiring += verb == OP_ACQUIRE;
    if (pg_connection_send(p, request, name, sql, count, values, now))
        return true;

    a->acquiring -= verb == OP_ACQUIRE;
    return false;
}

/* Writes "flags pid host label". */
static void put_meta(const struct postgres *p, const struct engine_op *op, char meta[PG_META_MAX])
{
    snprintf(meta, PG_META_MAX, "%c%s%.*s", op->detached ? 'd' : 'b', p->about, (int)op->label_len,
             op->label_len ? op->label : "");
}

static bool send_acquire(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    const struct pg_seen *seen = pg_seen_of(p, op);
    struct numbers n = {.count = 0};
    char name[PG_NAME_MAX + 1], id[PG_ID_TEXT + 1], owner[PG_ID_TEXT + 1], meta[PG_META_MAX];
    bool guesses = is_plain(op) && !a->sent && !op->named;
    int guess = seen->contended && op->queue ? 2 : 1;

    if (op->queue)
        pg_connection_listen(p, now);
    if (p->connection.state != PG_UP)
        return false;

    bool notified = op->queue && p->connection.listens;
    pg_op_timing(p, a);
    pg_full_name(p, op, name);
    pg_id_text(&op->attempt, id);
    pg_id_text(&op->owner, owner);
    put_meta(p, op, meta);

    const char *values[] = {
        name,
        number(&n, seen->era),
        number(&n, guesses ? guess : 0),
        id,
        number(&n, op->ttl_ms),
        meta,
        kind_text(op->kind),
        has_owner(op) ? owner : NULL,
        number(&n, op->units),
        number(&n, op->capacity),
        truth(op->queue),
        truth(a->sent || op->named),
        number(&n, a->ticket),
        truth(op->named),
        truth(op->barging),
        number(&n, notified ? p->connection.session_key : 0),
        notified ? p->channel : NULL,
        number(&n, p->history),
        number(&n, p->history_age_ms),
        p->pace,
        NULL,
        NULL,
        NULL, /* without interop= */
    };
    int count = sizeof values / sizeof *values - 3;
    char keys[2][24];
    count += pg_interop_values(p, a, values + count, keys);
    return send_verb(p, a, "hf_acquire", p->acquire, count, values, now);
}

/* An unconfirmed handoff is not durable yet. So in a durable schema a waiter that leaves releases
 * whatever was granted to it. */
bool pg_op_gives_back(const struct postgres *p, const struct pg_op *a)
{
    return a->sent_op.verb == OP_LEAVE && (!p->memory || p->interop);
}

static const char *release_verb(const struct postgres *p, const struct pg_op *a)
{
    const struct engine_op *op = &a->sent_op;
    if (op->verb == OP_LEAVE && !pg_op_gives_back(p, a))
        return "l";
    return op->verb == OP_RELEASE && op->lost ? "x" : "r";
}

/* Sends a release. kind: PG_REQ_VERB; PG_REQ_UNCLAIMED if no op waits for the reply. */
static bool send_release_as(struct postgres *p, struct pg_op *a, enum pg_request_kind kind,
                            nanos now)
{
    const struct engine_op *op = &a->sent_op;
    const struct pg_seen *seen = pg_seen_of(p, op);
    struct numbers n = {.count = 0};
    char name[PG_NAME_MAX + 1], id[PG_ID_TEXT + 1];
    bool may_be_in_flight = op->may_be_in_flight || a->cut || a->acquiring;
    bool guesses = is_plain(op) && op->verb == OP_RELEASE && !may_be_in_flight && !op->lost;
    int64_t tombstone = may_be_in_flight ? ms_of(pg_op_timing(p, a)->release_for) : 0;

    pg_full_name(p, op, name);
    pg_id_text(&op->attempt, id);
    const char *values[] = {
        name,
        number(&n, seen->era),
        number(&n, guesses ? 1 + seen->contended : 0),
        id,
        number(&n, (int64_t)op->token),
        number(&n, a->ticket),
        truth(op->named),
        release_verb(p, a),
        number(&n, tombstone),
        NULL,
        NULL,
        NULL, /* without interop= */
    };
    int count = sizeof values / sizeof *values - 3;
    char keys[2][24];
    count += pg_interop_values(p, a, values + count, keys);
    a->key_given = a->key_ups;
    a->key_ups = 0;
    if (kind == PG_REQ_VERB)
        return send_verb(p, a, "hf_release", p->release, count, values, now);

    struct pg_request request = {.kind = kind, .patience = p->connect_timeout};
    return pg_connection_send(p, request, "hf_release", p->release, count, values, now);
}

static bool send_release(struct postgres *p, struct pg_op *a, nanos now)
{
    return send_release_as(p, a, PG_REQ_VERB, now);
}

/* If this request does not arrive, the lease ends with its ttl. */
void pg_op_give_back(struct postgres *p, struct pg_op *a, nanos now)
{
    enum op_verb verb = a->sent_op.verb;
    if (p->connection.state != PG_UP)
        return;
    a->sent_op.verb = OP_RELEASE;
    send_release_as(p, a, PG_REQ_UNCLAIMED, now);
    a->sent_op.verb = verb;
}

static bool send_extend(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    struct numbers n = {.count = 0};
    char name[PG_NAME_MAX + 1], id[PG_ID_TEXT + 1];

    pg_full_name(p, op, name);
    pg_id_text(&op->attempt, id);
    const char *values[] = {name, number(&n, pg_seen_of(p, op)->era), id,
                            number(&n, (int64_t)op->token),
                            number(&n, op->verb == OP_EXTEND ? op->ttl_ms : 0)};
    return send_verb(p, a, "hf_extend", p->extend, sizeof values / sizeof *values, values, now);
}

static bool send_convert(struct postgres *p, struct pg_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    struct numbers n = {.count = 0};
    char name[PG_NAME_MAX + 1], id[PG_ID_TEXT + 1];
    pg_full_name(p, op, name);
    pg_id_text(&op->attempt, id);
    const char *values[] = {name, id, number(&n, (int64_t)op->token),
                            truth(op->verb == OP_UPGRADE)};
    return send_verb(p, a, "hf_convert", p->convert, sizeof values / sizeof *values, values, now);
}

static void send_op(struct postgres *p, struct pg_op *a, nanos now)
{
    bool (*send)(struct postgres *, struct pg_op *, nanos) = NULL;
    switch (a->sent_op.verb) {
    case OP_ACQUIRE:
        send = send_acquire;
        break;
    case OP_EXTEND:
    case OP_CHECK:
        send = send_extend;
        break;
    case OP_UPGRADE:
    case OP_DOWNGRADE:
        send = send_convert;
        break;
    default:
        send = send_release;
    }

    a->unsent = false;
    bool sent = send(p, a, now);
    /* set even if the send failed: a part of the request may have reached the server */
    a->sent = true;

    if (sent)
        pg_op_settle(p, a);
    else
        pg_op_fail_with_connection(p, a, now);
}

static void send_or_begin(struct postgres *p, struct pg_op *a, nanos now)
{
    assert(a->unsent && p->connection.state == PG_UP);
    if (a->sent_op.verb != OP_ADMIN) {
        send_op(p, a, now);
        return;
    }

    bool diagnoses = admin_op_of(a->op)->verb == ADMIN_DIAGNOSE;
    a->unsent = false;
    (diagnoses ? pg_diagnose_begin : pg_admin_begin)(p, a, now);
}

/* Ends an op that was never sent. */
static void end_unsent(struct postgres *p, struct pg_op *a, nanos now)
{
    assert(!a->sent && !a->in_flight);
    const struct pg_connection *connection = &p->connection;
    char text[sizeof connection->why];

    if (connection->state == PG_DOWN || connection->redial.failures)
        snprintf(text, sizeof text, "%s", connection->why);
    else
        snprintf(text, sizeof text, "%.100s: no connection within %" PRId64 " ms", p->where,
                 ms_of(now - connection->since));

    a->unsent = false;
    pg_op_reply(p, a,
                &(struct engine_reply){.kind = REPLY_RELEASED,
                                       .asked_at = now,
                                       .retry_at = TIME_NEVER,
                                       .status = HF_UNAVAILABLE,
                                       .text = text});
}

void pg_op_submit(struct postgres *p, struct pg_op *a, nanos now)
{
    assert(a->sent_op.verb != OP_NONE);
    enum op_verb verb = a->sent_op.verb;
    bool ends = verb == OP_LEAVE || verb == OP_RELEASE;
    if (!a->first_ttl_ms)
        a->first_ttl_ms = a->sent_op.ttl_ms;

    if (verb == OP_ADMIN && admin_op_of(a->op)->verb == ADMIN_INSTALL)
        pg_connection_may_install(p, now);
    if (p->interop && pg_interop_refuses(p, a, now))
        return;
    bool server_knows_nothing = !a->sent && !a->sent_op.may_be_in_flight;
    if (ends && server_knows_nothing && verb == OP_LEAVE) {
        end_unsent(p, a, now);
        return;
    }

    if (!pg_connection_need(p, now)) {
        a->unsent = false;
        pg_op_fail_with_connection(p, a, now);
        return;
    }

    a->unsent = true;
    if (p->connection.state == PG_UP)
        send_or_begin(p, a, now);
    else
        pg_op_settle(p, a);
}

void pg_op_send_unsent(struct postgres *p, nanos now)
{
    struct pg_op *last = p->active;
    while (last && last->next_active)
        last = last->next_active;

    /* Oldest first: in the order in which they were submitted. */
    for (struct pg_op *a = last, *before; a && p->connection.state == PG_UP; a = before) {
        before = a->prev_active;
        if (a->unsent)
            send_or_begin(p, a, now);
    }
}
