/* local_acquire.c - the acquire: its result is held, queued, busy or refused. */
#include "base/error.h"
#include "clients.h"
#include "core/timing.h"
#include "shard_op.h"
#include "wait_queue.h"

#include <string.h>

/* Read and write share a resource; other kinds exclude each other. */
static inline uint8_t resource_kind(hf_kind kind)
{
    assert(kind <= HF_WRITE);
    return (uint8_t)(kind == HF_WRITE ? HF_READ : kind);
}

/* Compares kind and capacity with those in use, which are fixed while a name has holders or
 * waiters. */
static hf_status agree_with_others(const struct resource *r, const struct engine_op *op)
{
    static const char *const kinds[] = {"exclusive", "a semaphore", "read-write"};
    uint8_t kind = resource_kind(op->kind);

    uint32_t used_as = read_once(r->kind);
    if (used_as != kind)
        return error_set(HF_MISMATCH, "is in use as %s, not as %s",
                         used_as <= HF_READ ? kinds[used_as] : "something else", kinds[kind]);
    /* After a resize, requests with the old capacity are still accepted. */
    if (r->capacity != op->capacity && r->declared != op->capacity)
        return error_set(HF_MISMATCH, "is in use with capacity %u, not %u", r->capacity,
                         op->capacity);

    if (op->units > r->capacity && r->kind == HF_SEMAPHORE)
        return error_set(HF_TOO_BIG, "%u units are more than its capacity, which was changed to %u",
                         op->units, r->capacity);

    return HF_OK;
}

static inline hf_status agree(struct resource *r, const struct engine_op *op)
{
    if (r->holders.count || r->waiters.count)
        return agree_with_others(r, op);
    r->kind = resource_kind(op->kind);
    r->capacity = r->declared = op->capacity;
    return HF_OK;
}

/* Returns true if enough units are free and no waiter is ahead, or if the op may pass waiters
 * (barging). */
static inline bool fits(const struct resource *r, const struct engine_op *op)
{
    bool pass = !r->waiters.count || op->barging;
    return pass && (uint64_t)r->used + op->units <= r->capacity;
}

static inline void fill_entry(struct entry *e, struct cell_ref home, const struct shard_op *v)
{
    const struct engine_op *op = v->op;
    assert(home.index && op->label_len <= HF_LABEL_MAX);
    e->resource = home.index;
    e->client = v->who->client;
    e->units = op->units;
    /* Plain stores: the entry is not visible before it is committed. */
    atomic_store_explicit(&e->cookie, slot_cookie(op->slot), memory_order_relaxed);
    atomic_store_explicit(&e->ready_link, 0, memory_order_relaxed);
    e->kind = (uint8_t)op->kind;
    e->named = op->named;
    e->why = HF_OK;
    e->label_len = (uint8_t)op->label_len;
    e->owner = op->owner;
    e->attempt = op->attempt;
    e->ticket = 0;
    e->token = 0;
    e->end = 0;
    e->ttl = NANOS_OF_MS(op->ttl_ms);
    e->since = v->now;
    e->check_at = TIME_NEVER;
    e->pid = v->who->pid;
    if (op->label_len)
        memcpy(e->label, op->label, op->label_len);
}

static void answer_queued(struct shard_op *v)
{
    assert(v->entry);
    struct table *t = v->table;
    struct entry *e = v->entry;
    struct resource *r = &cell_at(t, e->resource)->resource;
    uint64_t ahead = e->ticket -
                     /* upper bound of the place, because waiters ahead may have left */
                     cell_at(t, r->waiters.head)->entry.ticket;

    ahead = ahead < r->waiters.count ? ahead : r->waiters.count - 1;
    /* one check is enough, unless the waiter ahead is stopped and does not release */
    e->check_at = time_after(r->next_end, (nanos)ahead * TIMING_STAGGER);
    v->op->seen = atomic_load(&e->head.word);
    shard_op_answer(v, REPLY_QUEUED);
    v->reply->retry_at = e->check_at;
    v->reply->place = (uint32_t)ahead + 1;
}

/* ---- An op that was queued before ---- */

/* Ends the holds of dead clients. This may grant the op, or refuse it. */
static void check_ahead(struct shard_op *v)
{
    assert(v->entry);
    struct resource *r = &cell_at(v->table, v->entry->resource)->resource;
    resource_reap_dead(v->table, r, v->now);
    resource_admit(v->table, r, v->now);
}

/* Replies with the present state of an op that is already in the table. Returns false if its hold
 * has ended unnoticed: then the op starts over. */
static bool acquire_again(struct shard_op *v)
{
    assert(v->entry);
    struct entry *e = v->entry;
    if (shard_op_state(v) == CELL_WAITING)
        check_ahead(v);
    hf_status why = (hf_status)e->why;

    switch (shard_op_state(v)) {
    /* the grant is repeated; its end may be extended, but is never shortened */
    case CELL_HELD:
        if (time_after(v->now, e->ttl) > e->end)
            e->end = time_after(v->now, e->ttl);
        shard_op_hold(v, REPLY_GRANTED);
        return true;

    case CELL_WAITING:
        answer_queued(v);
        return true;
    default:
        shard_op_drop(v);
        if (why != HF_TOO_BIG)
            return false;
        error_set(why, "%u units are more than its capacity, which was changed", v->op->units);
        shard_op_fail(v, why);
        return true;
    }
}

/* ---- A new op ---- */

/* An op of an owner that already holds joins that hold: the same attempt gets the same grant,
 * another attempt raises the depth. Returns REPLY_KINDS if the owner does not hold. */
static enum reply_kind reenter(const struct shard_op *v, struct cell_ref home, struct cell_ref own)
{
    assert(v->op->named);
    struct table *t = v->table;
    struct resource *r = &home.cell->resource;
    uint32_t sibling = resource_owned(t, r, &v->op->owner);

    if (!sibling)
        return REPLY_KINDS;
    if (v->op->kind == HF_WRITE && cell_at(t, sibling)->entry.kind == HF_READ) {
        error_set(HF_MISMATCH, "this owner holds it for reading; use hf_upgrade to write");
        return REPLY_FAILED;
    }

    fill_entry(&own.cell->entry, home, v);
    resource_join(t, r, own.index, sibling, v->now, true);
    return REPLY_GRANTED;
}

/* Removes holders and waiters that have died, before a reply BUSY. */
static bool check_fit(const struct shard_op *v, struct resource *r)
{
    resource_reap_dead(v->table, r, v->now);
    resource_admit(v->table, r, v->now);
    return fits(r, v->op);
}

/* Grants the op, queues it, or replies busy. */
static inline enum reply_kind decide(const struct shard_op *v, struct cell_ref home,
                                     struct cell_ref own)
{
    struct table *t = v->table;
    struct resource *r = &home.cell->resource;
    bool now = fits(r, v->op) || check_fit(v, r);

    if (!now && !v->op->queue)
        return REPLY_BUSY;

    fill_entry(&own.cell->entry, home, v);
    if (!now) {
        entry_enqueue(t, r, own.index, v->now);
        return REPLY_QUEUED;
    }

    entry_hold(t, r, own, ++r->token, v->now);
    if (v->op->named) { /* waiters of the same owner share the hold */
        resource_gather(t, r, own.index, v->now);
        resource_admit(t, r, v->now);
    }

    return REPLY_GRANTED;
}

static inline enum reply_kind agree_and_decide(const struct shard_op *v, struct cell_ref home,
                                               struct cell_ref own, hf_status *status)
{
    assert(home.index && own.index);
    struct resource *r = &home.cell->resource;
    if (v->now >= r->next_end) {
        resource_reap_ended(v->table, r, v->now);
        resource_admit(v->table, r, v->now);
    }

    r->history = v->who->history;
    r->history_age = v->who->history_age;
    *status = agree(r, v->op);
    if (*status != HF_OK)
        return REPLY_FAILED;

    *status = HF_MISMATCH; /* status to reply if reenter() refuses */
    enum reply_kind kind = v->op->named ? reenter(v, home, own) : REPLY_KINDS;
    return kind == REPLY_KINDS ? decide(v, home, own) : kind;
}

/* Frees everything that was taken for an op that is neither granted nor queued. */
static void refuse(struct shard_op *v, struct cell_ref home, struct cell_ref own,
                   enum reply_kind kind, hf_status status)
{
    assert(kind == REPLY_FAILED || kind == REPLY_BUSY);
    if (own.index)
        cell_give_back_cell(v->table, v->shard, own.index, own.cell);

    if (kind == REPLY_FAILED) {
        shard_op_fail(v, status);
    } else {
        shard_op_answer(v, kind);
        v->reply->retry_at = home.cell->resource.next_end;
        shard_op_name_holder(v, &home.cell->resource);
    }

    if (home.index)
        resource_settle_cell(v->table, home.index, home.cell);
}

/* Take the entry's cell first: taking a cell may drop idle resources. */
static inline void acquire_first(struct shard_op *v)
{
    assert(!v->entry);
    struct engine_op *op = v->op;
    struct cell_ref home = {.index = 0}, own = cell_take(v->table, v->shard, op->until);
    if (own.index)
        home = resource_need(v->table, shard_op_hash(v), op->name, op->name_len, op->until);
    hf_status status = home.index ? HF_OK : error_status();
    enum reply_kind kind = home.index ? agree_and_decide(v, home, own, &status) : REPLY_FAILED;

    if (kind != REPLY_GRANTED && kind != REPLY_QUEUED) {
        refuse(v, home, own, kind, status);
        return;
    }

    op->slot = slot_make(own.index, slot_cookie(op->slot));
    v->entry = &own.cell->entry;
    if (kind == REPLY_GRANTED)
        shard_op_hold(v, kind);
    else
        answer_queued(v);
}

static inline void op(struct shard_op *v)
{
    if (v->entry && acquire_again(v))
        return;
    if (__builtin_expect(cell_state(cell_at(v->table, v->who->client)) == CELL_CLIENT, true)) {
        acquire_first(v);
        return;
    }

    error_set(HF_CLOSED, "%s: this client was declared dead", v->table->path);
    shard_op_fail(v, HF_CLOSED);
}

bool table_acquire(struct table *t, const struct table_caller *who, struct engine_op *asked,
                   nanos now, struct engine_reply *reply)
{
    assert(who->client);
    struct shard_op v = {.table = t, .who = who, .op = asked, .now = now, .reply = reply};
    if (!shard_op_enter(&v))
        return true;

    op(&v);
    return shard_op_leave(&v);
}
