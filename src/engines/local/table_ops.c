/* table_ops.c - the ops on a table, except the acquire (local_acquire.c): leave, extend, check,
 * convert, release. */
#include "table_ops.h"

#include "base/error.h"
#include "clients.h"
#include "shard.h"
#include "shard_op.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "wait_queue.h"

#include <stdio.h>
#include <string.h>

/* ---- Replies and entries ---- */

void shard_op_fail(struct shard_op *v, hf_status status)
{
    shard_op_answer(v, REPLY_FAILED);
    v->reply->status = status;
    v->reply->text = error_text();
}

/* Copies the holder, because the table may change at any time. The copy is valid until this thread
 * makes the next one. */
void shard_op_name_holder(struct shard_op *v, const struct resource *r)
{
    static _Thread_local struct reply_holder holder;
    uint32_t first = 0;
    FOR_EACH_CELL (v->table, i, &r->holders) {
        first = i;
        if (read_once(cell_at(v->table, i)->entry.units))
            break;
    }
    if (!first)
        return;

    struct entry e;
    memcpy(&e, cell_at(v->table, first), sizeof e);
    size_t len = e.label_len <= HF_LABEL_MAX ? e.label_len : HF_LABEL_MAX;
    holder = (struct reply_holder){.token = e.token,
                                   .kind = e.kind <= HF_WRITE ? (hf_kind)e.kind : HF_EXCLUSIVE,
                                   .units = e.units,
                                   .pid = e.pid,
                                   .detached = e.client == 0};
    memcpy(holder.label, e.label, len);
    snprintf(holder.host, sizeof holder.host, "%s", process_host_name());
    v->reply->holder = &holder;
}

/* Finds a detached hold by its name and attempt id, for an op without a cell. */
static uint32_t find_attempt(struct table *t, const struct engine_op *op, uint64_t hash)
{
    assert(op->name_len <= HF_NAME_MAX);
    uint32_t ri = resource_find(t, hash, op->name, op->name_len);
    if (!ri)
        return 0;

    FOR_EACH_CELL (t, i, &cell_at(t, ri)->resource.holders)
        if (id_same(&cell_at(t, i)->entry.attempt, &op->attempt))
            return i;

    return 0;
}

void shard_op_find_entry(struct shard_op *v)
{
    struct engine_op *op = v->op;
    uint32_t found = op->detached ? find_attempt(v->table, op, shard_op_hash(v)) : 0;
    op->slot = slot_make(found, slot_cookie(op->slot));
    v->entry = found ? shard_op_own_entry(v->table, op) : NULL;
}

void shard_op_reap(struct shard_op *v)
{
    assert(v->entry);
    struct table *t = v->table;
    uint32_t ri = v->entry->resource;
    struct resource *r = &cell_at(t, ri)->resource;

    resource_reap(t, r, v->now);
    resource_admit(t, r, v->now);
    resource_settle(t, ri);
    v->entry = shard_op_own_entry(t, v->op);
}

void shard_op_damaged(struct shard_op *v)
{
    error_set(HF_DAMAGED, "%s: damaged: it contains impossible values", v->table->path);
    shard_op_fail(v, HF_DAMAGED);
}

static inline bool is_held(const struct shard_op *v)
{
    return v->entry && shard_op_state(v) == CELL_HELD;
}

/* Detaches the hold: it belongs to no client from here on. */
static void cut_loose(struct shard_op *v)
{
    assert(v->shard < LOCAL_SHARDS);
    if (is_held(v) && v->entry->client) {
        v->entry->client = 0;
        v->table->shards[v->shard].detached++;
    }
}

/* ---- The ops ---- */

static void leave(struct shard_op *v)
{
    if (is_held(v)) { /* the op was granted before it left */
        shard_op_hold(v, REPLY_GRANTED);
        return;
    }

    const struct resource *r = v->entry ? &cell_at(v->table, v->entry->resource)->resource : NULL;
    nanos ends = r ? r->next_end : TIME_NEVER;
    shard_op_answer(v, REPLY_RELEASED);
    v->reply->retry_at = ends;
    if (r)
        shard_op_name_holder(v, r);
    shard_op_drop(v);
}

void table_leave(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct shard_op v = {.table = t, .op = op, .now = now, .reply = reply};
    if (!shard_op_enter(&v))
        return;
    leave(&v);
    shard_op_leave(&v);
}

/* Replies for an op that has lost its hold and its cell. */
static void answer_gone(struct shard_op *v)
{
    shard_op_drop(v);
    shard_op_answer(v, REPLY_NOT_HELD);
}

static void check(struct shard_op *v)
{
    assert(v->op->verb != OP_ACQUIRE);
    if (!is_held(v)) {
        answer_gone(v);
        return;
    }

    if (v->op->detached &&
        /* detaches the hold if that failed at the grant */
        !atomic_load(&v->entry->ready_link))
        cut_loose(v);

    shard_op_hold(v, REPLY_EXTENDED);
}

static void extend(struct shard_op *v)
{
    nanos end = v->now + NANOS_OF_MS(v->op->ttl_ms);
    if (is_held(v) && end > v->entry->end) /* an EXTEND never shortens */
        v->entry->end = end;
}

void table_extend(struct table *t, struct engine_op *op, nanos now, bool check_only,
                  struct engine_reply *reply)
{
    struct shard_op v = {.table = t, .op = op, .now = now, .reply = reply};
    if (!shard_op_enter(&v))
        return;

    if (!check_only)
        extend(&v);
    check(&v);
    shard_op_leave(&v);
}

/* A release ends the attempt for every client that repeated the request: they share the grant. */
static void end_repeats(struct table *t, const struct entry *e, nanos now)
{
    struct resource *r = &cell_at(t, e->resource)->resource;
    FOR_EACH_CELL (t, i, &r->holders) {
        struct entry *other = &cell_at(t, i)->entry;
        uint32_t client = other->client;
        if (other == e || !id_same(&other->attempt, &e->attempt))
            continue;
        entry_end(t, r, i, HF_OK, now);
        if (client)
            table_client_recheck(t, client);
    }
}

static void release(struct shard_op *v)
{
    bool held = is_held(v);
    if (held && v->entry->named)
        end_repeats(v->table, v->entry, v->now);
    shard_op_drop(v);
    shard_op_answer(v, held ? REPLY_RELEASED : REPLY_NOT_HELD);
}

bool table_release(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct shard_op v = {.table = t, .op = op, .now = now, .reply = reply};
    if (!shard_op_enter(&v))
        return true;
    release(&v);
    return shard_op_leave(&v);
}

/* ---- Upgrade and downgrade ---- */

/* Returns the entry with the units of the hold; NULL if another owner also holds the name. */
static struct entry *sole_carrier(struct table *t, const struct resource *r, struct entry *e)
{
    struct entry *carrier = e;
    FOR_EACH_CELL (t, i, &r->holders) {
        struct entry *other = &cell_at(t, i)->entry;
        if (!id_same(&other->owner, &e->owner))
            return NULL;
        if (other->units)
            carrier = other;
    }

    return carrier;
}

/* Upgrades a hold. The writer needs a new token, because readers that left may have used a higher
 * one. The units of the entry decide who writes, so the token is stored before them; a repair
 * derives the rest. */
static enum reply_kind upgrade(struct table *t, struct resource *r, struct entry *e)
{
    if (e->kind == HF_WRITE)
        return REPLY_EXTENDED;

    struct entry *carrier = sole_carrier(t, r, e);
    if (!carrier)
        return REPLY_BUSY;

    carrier->token = ++r->token;
    atomic_signal_fence(memory_order_seq_cst);
    carrier->units = r->used = r->capacity;
    atomic_signal_fence(memory_order_seq_cst);
    FOR_EACH_CELL (t, i, &r->holders) {
        cell_at(t, i)->entry.token = carrier->token;
        cell_at(t, i)->entry.kind = HF_WRITE;
    }

    return REPLY_EXTENDED;
}

static enum reply_kind downgrade(struct table *t, struct resource *r, struct entry *e, nanos now)
{
    struct entry *carrier = e->kind == HF_WRITE ? sole_carrier(t, r, e) : NULL;
    if (!carrier)
        return REPLY_EXTENDED; /* the hold already is a reader */

    carrier->units = r->used = 1;
    atomic_signal_fence(memory_order_seq_cst);
    FOR_EACH_CELL (t, i, &r->holders)
        cell_at(t, i)->entry.kind = HF_READ;
    resource_admit(t, r, now);

    return REPLY_EXTENDED;
}

static void convert(struct shard_op *v)
{
    assert(v->op->verb == OP_UPGRADE || v->op->verb == OP_DOWNGRADE);
    if (!is_held(v)) {
        answer_gone(v);
        return;
    }

    struct resource *r = &cell_at(v->table, v->entry->resource)->resource;
    enum reply_kind kind = v->op->verb == OP_UPGRADE ? upgrade(v->table, r, v->entry)
                                                     : downgrade(v->table, r, v->entry, v->now);

    table_changed(v->table, v->now);
    if (kind == REPLY_EXTENDED)
        shard_op_hold(v, kind);
    else
        shard_op_answer(v, kind);
}

void table_convert(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct shard_op v = {.table = t, .op = op, .now = now, .reply = reply};
    if (!shard_op_enter(&v))
        return;
    convert(&v);
    shard_op_leave(&v);
}

/* ---- Without an op ---- */

bool table_take_reply(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct entry *e = shard_op_own_entry(t, op);
    /* Load the word before the state: a notification after this load must not count as seen. */
    uint32_t word = e ? atomic_load(&e->head.word) : 0;

    if (!e || word == op->seen)
        return false;

    struct shard_op v = {.table = t, .op = op, .entry = e, .now = now, .reply = reply};
    if (shard_op_state(&v) == CELL_HELD && now < e->end)
        shard_op_hold(&v, REPLY_GRANTED);
    else
        shard_op_answer(&v, REPLY_NOTIFY);

    op->seen = word;
    return true;
}

bool table_discard(struct table *t, uint32_t index, uint32_t client)
{
    assert(client);
    uint32_t shard = read_once(cell_at(t, index)->head.shard);
    nanos now = clock_boot();
    if (shard >= LOCAL_SHARDS)
        return true;
    if (shard_lock(t, shard, now + NANOS_OF_MS(5)) != HF_OK)
        return false; /* the cell will be freed with its client */

    union cell *cell = cell_at(t, index);
    bool is_forgotten = cell->entry.client == client && !cell->entry.cookie;
    if (cell_state(cell) == CELL_ENDED && is_forgotten)
        entry_drop(t, index, now);
    shard_unlock(t, shard);
    return true;
}

bool table_detach(struct table *t, struct engine_op *op, bool drained)
{
    struct engine_reply reply;
    nanos now = clock_boot();
    struct shard_op v = {.table = t, .op = op, .now = now, .reply = &reply};

    /* Use a limit of its own: the op's deadline may be past, and the background thread must not
     * wait long. */
    op->until = now + NANOS_OF_MS(5);
    if (!shard_op_enter(&v))
        return true; /* a later check or extend detaches it */

    bool ready_link = !drained && v.entry && atomic_load(&v.entry->ready_link);
    if (!ready_link)
        cut_loose(&v);
    shard_op_leave(&v);

    return !ready_link;
}
