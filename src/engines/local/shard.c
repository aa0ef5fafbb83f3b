/* shard.c - a shard's mutex, and what is done when its owner died inside. */
#include "shard.h"

#include "base/why.h"
#include "holders.h"
#include "members.h"
#include "sys/clock.h"
#include "sys/process.h"

/* ---- Repair: the cells are the truth, everything else is made from them ---- */

/* Each cell of a shard; a chunk belongs to the shard that its first cell names. */
#define EACH_CELL_OF_SHARD(t, i, shard_index)                                                                          \
    for (uint32_t i##_first = 0; i##_first < hf_table_cells(t); i##_first += LOCAL_PER_CHUNK)                          \
        if ((t)->cells[i##_first].head.shard == (shard_index))                                                         \
            for (uint32_t i = i##_first; i < i##_first + LOCAL_PER_CHUNK; i++)

static void empty_lists(struct hf_shard *s)
{
    s->free = s->idle = (struct hf_cells){0};
    s->detached = 0;
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++)
        s->bucket[b] = 0;
}

static void collect_resource(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &t->cells[index].resource;
    r->holders = r->waiters = r->past = (struct hf_cells){0};
    r->used = 0;
    r->idle = false;
    r->next_end = HF_NEVER;
    hf_resource_chain(t, index);
}

static bool is_piece_of(struct hf_table *t, uint32_t index)
{
    uint32_t owner = t->cells[index].piece.resource;
    if (owner == 0 || owner >= hf_table_cells(t) || hf_cell_state(&t->cells[owner]) != CELL_RESOURCE)
        return false;
    uint32_t first = t->cells[owner].resource.more;
    return first == index || (first != 0 && hf_cell_at(t, first)->piece.more == index);
}

/* The resource that an entry belongs to, or 0 when it was never finished. */
static uint32_t resource_of(struct hf_table *t, const struct hf_entry *e)
{
    uint32_t ri = e->resource;
    bool whole = ri != 0 && ri < hf_table_cells(t) && hf_cell_state(&t->cells[ri]) == CELL_RESOURCE &&
                 t->cells[ri].head.shard == e->head.shard;
    return whole ? ri : 0;
}

static void collect_entry(struct hf_table *t, uint32_t shard, uint32_t index)
{
    struct hf_entry *e = &t->cells[index].entry;
    uint32_t state = hf_cell_state(&t->cells[index]), ri = resource_of(t, e);
    if (state == CELL_ENDED && e->client) { /* and perhaps nobody has told it */
        hf_member_rescan(t, index);
        hf_member_recheck(t, e->client);
        return;
    }
    if (!ri || state == CELL_ENDED) {
        hf_cell_give(t, shard, index);
        return;
    }
    struct hf_resource *r = &t->cells[ri].resource;
    if (state == CELL_PAST) {
        hf_cells_push(t, &r->past, index);
        return;
    }
    if (!e->client)
        t->shards[shard].detached++;
    if (e->ticket >= r->ticket)
        r->ticket = e->ticket + 1;
    if (state == CELL_WAITING) {
        hf_cells_push(t, &r->waiters, index);
        return;
    }
    if (e->named && hf_resource_carrier(t, r, &e->owner))
        e->units = 0; /* they were being passed on, and are there and here */
    hf_cells_push(t, &r->holders, index);
    r->used += e->units;
    if (e->token > r->token)
        r->token = e->token;
    if (e->end < r->next_end)
        r->next_end = e->end;
}

static void collect(struct hf_table *t, uint32_t shard, uint32_t index)
{
    switch (hf_cell_state(&t->cells[index])) {
    case CELL_RESERVED:
    case CELL_RESOURCE:
        break;
    case CELL_NAME:
        if (!is_piece_of(t, index))
            hf_cell_give(t, shard, index);
        break;
    case CELL_WAITING:
    case CELL_HELD:
    case CELL_PAST:
    case CELL_ENDED:
        collect_entry(t, shard, index);
        break;
    case CELL_CLIENT:
    case CELL_DEAD:
        if (shard == LOCAL_REGISTRY)
            hf_cells_append(t, &t->shards[shard].idle, index);
        break;
    default:
        hf_cell_give(t, shard, index);
    }
}

/* The attempt that has the units of a hold speaks for it; whoever died may have been about to tell the others. */
static void align_holder(struct hf_table *t, const struct hf_resource *r, struct hf_entry *e)
{
    uint32_t index = e->named ? hf_resource_carrier(t, r, &e->owner) : 0;
    const struct hf_entry *carrier = index ? &hf_cell_at(t, index)->entry : e;
    e->token = carrier->token;
    if (r->kind == HF_READ)
        e->kind = carrier->units == r->capacity ? HF_WRITE : HF_READ;
}

/* Whoever died may have granted without telling: tell everybody, once too often does no harm. */
static void revive_resource(struct hf_table *t, uint32_t index, hf_nanos now)
{
    struct hf_resource *r = &t->cells[index].resource;
    hf_cells_sort_by_ticket(t, &r->waiters);
    hf_cells_sort_by_ticket(t, &r->past);
    HF_EACH_CELL(t, i, &r->holders) align_holder(t, r, &hf_cell_at(t, i)->entry);
    HF_EACH_CELL(t, i, &r->holders) hf_member_rescan(t, i);
    HF_EACH_CELL(t, i, &r->waiters) hf_member_rescan(t, i);
    HF_EACH_CELL(t, i, &r->holders)
    if (hf_cell_at(t, i)->entry.named)
        hf_resource_gather(t, r, i, now);
    hf_resource_admit(t, r, now);
    hf_resource_settle(t, index);
}

void hf_shard_repair(struct hf_table *t, uint32_t shard)
{
    hf_nanos now = hf_clock_boot();
    empty_lists(&t->shards[shard]);
    EACH_CELL_OF_SHARD(t, i, shard)
    if (hf_cell_state(&t->cells[i]) == CELL_RESOURCE)
        collect_resource(t, i);
    EACH_CELL_OF_SHARD(t, i, shard) collect(t, shard, i);
    EACH_CELL_OF_SHARD(t, i, shard)
    if (hf_cell_state(&t->cells[i]) == CELL_RESOURCE)
        revive_resource(t, i, now);
    if (shard == LOCAL_REGISTRY)
        hf_members_ring_changed(t);
    t->shards[shard].repairs++;
}

/* ---- The mutex ---- */

enum { PATIENT_TRIES = 20 };
#define PATIENT_SLICE HF_MS(600) /* who asks for more than that has been patient itself */

static hf_status blame_owner(struct hf_table *t, uint32_t shard)
{
    int64_t thread = hf_robust_owner(&t->shards[shard].mutex), pid = hf_process_of_thread(thread);
    char state = hf_process_state(thread);
    const char *how = state == 'T' || state == 't' ? "is stopped" : "stays";
    return hf_why(HF_UNAVAILABLE, "%s: process %lld %s inside part %u of the table", t->path, (long long)pid, how,
                  shard);
}

static hf_status settle_lock(struct hf_table *t, uint32_t shard, enum hf_robust_result locked)
{
    switch (locked) {
    case HF_ROBUST_LOCKED:
        return HF_OK;
    case HF_ROBUST_OWNER_DIED:
        hf_shard_repair(t, shard);
        hf_robust_mend(&t->shards[shard].mutex);
        return HF_OK;
    case HF_ROBUST_TIMEOUT:
        return blame_owner(t, shard);
    default:
        return hf_why(HF_DAMAGED, "%s: part %u of the table is damaged", t->path, shard);
    }
}

/* Only somebody who is stopped inside is worth giving up for. Who merely has not had the CPU yet, on a machine with
 * more to do than it can, gets the same time again, and again. */
static enum hf_robust_result lock_patiently(struct hf_table *t, uint32_t shard, int64_t until)
{
    pthread_mutex_t *mutex = &t->shards[shard].mutex;
    int64_t slice = until - hf_clock_boot();
    enum hf_robust_result locked = hf_robust_lock(mutex, until);
    for (int tries = 1; locked == HF_ROBUST_TIMEOUT && tries < PATIENT_TRIES && slice < PATIENT_SLICE; tries++) {
        char state = hf_process_state(hf_robust_owner(mutex));
        if (state == 'T' || state == 't')
            break;
        locked = hf_robust_lock(mutex, hf_clock_boot() + slice);
    }
    return locked;
}

hf_status hf_shard_lock(struct hf_table *t, uint32_t shard, int64_t until)
{
    return settle_lock(t, shard, lock_patiently(t, shard, until));
}

hf_status hf_shard_enter_late(struct hf_table *t, uint32_t shard, int64_t until, enum hf_robust_result tried,
                              hf_nanos *now)
{
    if (tried == HF_ROBUST_TIMEOUT)
        tried = lock_patiently(t, shard, until);
    hf_status status = settle_lock(t, shard, tried);
    *now = hf_clock_boot();
    return status;
}
