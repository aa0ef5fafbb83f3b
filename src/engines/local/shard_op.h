/* shard_op.h - one op on a shard: lock, find the op's entry, do the work, reply, unlock. Private
 * to table_ops.c and local_acquire.c. */
#pragma once
#include "shard.h"
#include "table_ops.h"
#include "wait_queue.h"

/* An op, and its resource and entry under the shard's mutex. */
struct shard_op {
    struct table *table;
    const struct table_caller *who;
    struct engine_op *op;
    struct entry *entry; /* the op's own entry; NULL if it has none */
    uint32_t shard;
    nanos now; /* when the mutex was locked */
    struct engine_reply *reply;
};
/* Returns the hash of the op's name. The op keeps the hash, because a handle is mostly used for the
 * same name again. */
static inline uint64_t shard_op_hash(const struct shard_op *v)
{
    struct engine_op *op = v->op;
    if (!op->name_hash)
        op->name_hash = resource_name_hash(op->name, op->name_len);
    return op->name_hash;
}

/* Returns the state of the op's cell, which must exist. */
static inline uint32_t shard_op_state(const struct shard_op *v)
{
    assert(v->entry);
    return atomic_load_explicit(&v->entry->head.state, memory_order_acquire);
}

/* Returns the entry of this op, or NULL if its cell has been reused. The shard's mutex is held. */
static inline struct entry *shard_op_own_entry(struct table *t, const struct engine_op *op)
{
    uint32_t index = slot_cell(op->slot);
    if (!index)
        return NULL;

    union cell *cell = cell_at(t, index);
    uint32_t state = cell_state(cell);
    bool is_entry = state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED;

    return is_entry && id_same(&cell->entry.attempt, &op->attempt) ? &cell->entry : NULL;
}

/* Returns the op's shard. A cell stays in its shard for ever, so the slot gives the shard without
 * hashing the name. */
static inline uint32_t shard_op_shard(const struct shard_op *v)
{
    uint32_t index = slot_cell(v->op->slot);
    uint32_t shard = index ? read_once(cell_at(v->table, index)->head.shard) : LOCAL_SHARDS;
    return shard >= LOCAL_SHARDS || v->op->detached ? shard_of_hash(shard_op_hash(v)) : shard;
}

/* Finds the entry of an op whose slot does not name its cell: the cell was reused, or another
 * process made the hold (detached). */
void shard_op_find_entry(struct shard_op *v);
/* Ends the expired holds of the entry's resource; the op's own hold may be among them. */
void shard_op_reap(struct shard_op *v);
void shard_op_damaged(struct shard_op *v); /* Replies that the table is damaged. */
/* Adds to the reply a holder of the resource, if there is one. */
void shard_op_name_holder(struct shard_op *v, const struct resource *r);
/* Replies with a failure; error_set() has the text. */
void shard_op_fail(struct shard_op *v, hf_status status);

/* Locks the op's shard, finds its entry and ends expired holds; or replies why the shard cannot be
 * locked. If it returns true, the mutex is held: the op does its work, replies, and calls
 * shard_op_leave(). Inline, so that each op and its locking compile to one function. */
__attribute__((always_inline)) static inline bool shard_op_enter(struct shard_op *v)
{
    v->shard = shard_op_shard(v);
    hf_status status = shard_enter(v->table, v->shard, v->op->until, &v->now);

    if (__builtin_expect(status != HF_OK, false)) {
        shard_op_fail(v, status);
        return false;
    }

    v->entry = shard_op_own_entry(v->table, v->op);
    bool may_exist = slot_cell(v->op->slot) || v->op->detached;
    if (!v->entry && may_exist)
        shard_op_find_entry(v);

    bool is_alive = v->entry && shard_op_state(v) != CELL_ENDED;
    if (is_alive && v->now >= cell_at(v->table, v->entry->resource)->resource.next_end)
        shard_op_reap(v);

    return true;
}

/* Unlocks, and returns true because the op has its reply. */
static inline bool shard_op_leave(struct shard_op *v)
{
    assert(v->shard < LOCAL_SHARDS);
    shard_unlock(v->table, v->shard);
    if (__builtin_expect(atomic_load_explicit(&v->table->damaged, memory_order_relaxed), false))
        shard_op_damaged(v);
    return true;
}

/* Frees the op's cell, if it has one. */
static inline void shard_op_drop(struct shard_op *v)
{
    if (v->entry)
        entry_drop_cell(v->table, slot_cell(v->op->slot), (union cell *)v->entry, v->now);
    v->entry = NULL;
    v->op->slot = slot_make(0, slot_cookie(v->op->slot));
}

static inline void shard_op_answer(struct shard_op *v, enum reply_kind kind)
{
    *v->reply = (struct engine_reply){.kind = kind, .asked_at = v->now, .retry_at = TIME_NEVER};
}

/* Longest validity in a reply: in a damaged table an end may be any number. */
#define GOOD_MAX NANOS_OF_MS((int64_t)48 * 3600 * 1000)

/* Replies GRANTED or EXTENDED. All processes here share one clock, so the validity is exact. */
static inline void shard_op_hold(struct shard_op *v, enum reply_kind kind)
{
    assert(v->entry);
    shard_op_answer(v, kind);
    nanos good = time_until(v->now, v->entry->end);
    v->reply->good = good < GOOD_MAX ? good : GOOD_MAX;
    v->reply->token = v->entry->token;
}
