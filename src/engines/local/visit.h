/* visit.h - inside lease.c and asking.c: a verb visits the shard of its name. */
#pragma once
#include "holders.h"
#include "lease.h"
#include "shard.h"

/* What a verb finds once it is inside. */
struct hf_visit {
    struct hf_table *table;
    const struct hf_asker *who;
    struct hf_ask *ask;
    struct hf_entry *entry; /* the ask's own; NULL: there is none (any more) */
    uint32_t shard;
    hf_nanos now; /* when the mutex was got */
    struct hf_news *news;
};
/* The hash of the ask's name. The ask keeps it: it may be about the same name as the last time. */
static inline uint64_t hf_visit_hash(const struct hf_visit *v)
{
    struct hf_ask *ask = v->ask;
    if (!ask->name_hash)
        ask->name_hash = hf_name_hash(ask->name, ask->name_len);
    return ask->name_hash;
}

/* The state of the ask's cell; it has one. */
static inline uint32_t hf_visit_state(const struct hf_visit *v)
{
    return atomic_load_explicit(&v->entry->head.state, memory_order_acquire);
}

/* The ask's own cell, if it still is. Its shard's mutex is held. */
static inline struct hf_entry *hf_own_entry(struct hf_table *t, const struct hf_ask *ask)
{
    uint32_t index = hf_slot_cell(ask->slot);
    if (!index)
        return NULL;
    union hf_cell *cell = hf_cell_at(t, index);
    uint32_t state = hf_cell_state(cell);
    bool is_entry = state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED;
    return is_entry && hf_id_same(&cell->entry.attempt, &ask->attempt) ? &cell->entry : NULL;
}

/* A cell stays in its shard for ever, so the slot says it without the name. */
static inline uint32_t hf_visit_shard(const struct hf_visit *v)
{
    uint32_t index = hf_slot_cell(v->ask->slot);
    uint32_t shard = index ? hf_cell_at(v->table, index)->head.shard : LOCAL_SHARDS;
    return shard >= LOCAL_SHARDS || v->ask->detached ? hf_shard_of(hf_visit_hash(v)) : shard;
}

/* The ask has no cell that is its own: it may have had one, or be about a hold that somebody else made. */
void hf_visit_find_entry(struct hf_visit *v);
/* Ends the holds of the entry's resource whose time is over; that may be its own. */
void hf_visit_reap(struct hf_visit *v);
void hf_visit_damaged(struct hf_visit *v);                /* answers so */
void hf_visit_fail(struct hf_visit *v, hf_status status); /* the text is hf_why's */

/* Enters the shard of an ask and finds its entry, its resource's ended holds reaped; or answers why it cannot. True:
 * the mutex is held, the verb does its work and answers, and hf_visit_leave() follows. All inline, so that a verb and
 * its visit become one function. */
__attribute__((always_inline)) static inline bool hf_visit_enter(struct hf_visit *v)
{
    v->shard = hf_visit_shard(v);
    hf_status status = hf_shard_enter(v->table, v->shard, v->ask->until, &v->now);
    if (__builtin_expect(status != HF_OK, false)) {
        hf_visit_fail(v, status);
        return false;
    }
    v->entry = hf_own_entry(v->table, v->ask);
    if (!v->entry && (hf_slot_cell(v->ask->slot) || v->ask->detached))
        hf_visit_find_entry(v);
    if (v->entry && hf_visit_state(v) != CELL_ENDED &&
        v->now >= hf_cell_at(v->table, v->entry->resource)->resource.next_end)
        hf_visit_reap(v);
    return true;
}

/* True: there is an answer. */
static inline bool hf_visit_leave(struct hf_visit *v)
{
    hf_shard_unlock(v->table, v->shard);
    if (__builtin_expect(atomic_load_explicit(&v->table->damaged, memory_order_relaxed), false))
        hf_visit_damaged(v);
    return true;
}

/* Frees the ask's cell, if it has one. */
static inline void hf_visit_drop(struct hf_visit *v)
{
    if (v->entry)
        hf_entry_drop_cell(v->table, hf_slot_cell(v->ask->slot), (union hf_cell *)v->entry, v->now);
    v->entry = NULL;
    v->ask->slot = hf_slot(0, hf_slot_cookie(v->ask->slot));
}

static inline void hf_visit_answer(struct hf_visit *v, enum hf_cue cue)
{
    *v->news = (struct hf_news){.cue = cue, .asked_at = v->now, .retry_at = HF_NEVER};
}

/* GRANTED or EXTENDED. The hold's end is on the same clock for everybody here, so what is good is exact. */
static inline void hf_visit_hold(struct hf_visit *v, enum hf_cue cue)
{
    hf_visit_answer(v, cue);
    v->news->good = hf_until(v->now, v->entry->end);
    v->news->token = v->entry->token;
}
