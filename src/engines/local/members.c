/* members.c - the clients of a table: who lives, who watches whom, and the burial of the dead. */
#include "members.h"

#include "base/why.h"
#include "holders.h"
#include "shard.h"
#include "sys/clock.h"

#include <string.h>

static struct hf_member *member_at(struct hf_table *t, uint32_t index)
{
    return &hf_cell_at(t, index)->member;
}

static struct hf_cells *ring_of(struct hf_table *t)
{
    return &t->shards[LOCAL_REGISTRY].idle;
}

/* A background thread has leases to renew: it does not wait for somebody who is stopped inside a mutex. */
static hf_nanos soon(void)
{
    return hf_clock_boot() + HF_MS(5);
}

/* ---- Telling ---- */

void hf_member_ring_bell(struct hf_member *m)
{
    atomic_fetch_add(&m->bell, 1);
    hf_futex_wake(&m->bell, 1);
}

void hf_member_ready(struct hf_table *t, uint32_t member, uint32_t entry)
{
    struct hf_member *m = member_at(t, member);
    struct hf_entry *e = &hf_cell_at(t, entry)->entry;
    uint8_t linked = UNLINKED;
    if (atomic_compare_exchange_strong(&e->linked, &linked, LINKED)) {
        uint32_t head = atomic_load(&m->ready);
        do
            atomic_store(&e->ready_next, head);
        while (!atomic_compare_exchange_weak(&m->ready, &head, entry));
    } else if (linked == LINK_IN_DOUBT) {
        atomic_store(&m->rescan, 1);
    }
    hf_member_ring_bell(m);
}

void hf_member_rescan(struct hf_table *t, uint32_t entry)
{
    struct hf_entry *e = &hf_cell_at(t, entry)->entry;
    atomic_fetch_add(&e->head.word, 1);
    hf_futex_wake(&e->head.word, 1);
    if (!e->client)
        return;
    uint8_t linked = LINKED;
    atomic_compare_exchange_strong(&e->linked, &linked, LINK_IN_DOUBT);
    struct hf_member *m = member_at(t, e->client);
    atomic_store(&m->rescan, 1);
    hf_member_ring_bell(m);
}

void hf_member_recheck(struct hf_table *t, uint32_t member)
{
    struct hf_member *m = member_at(t, member);
    atomic_store(&m->recheck, 1);
    hf_member_ring_bell(m);
}

/* ---- Coming and going ---- */

void hf_members_ring_changed(struct hf_table *t)
{
    atomic_fetch_add(&t->state->ring, 1);
    HF_EACH_CELL(t, i, ring_of(t)) hf_member_ring_bell(member_at(t, i));
}

/* The one in front of `index` has got a new neighbour. */
static void tell_predecessor(struct hf_table *t, uint32_t index)
{
    uint32_t before = member_at(t, index)->head.prev;
    if (!before)
        before = ring_of(t)->tail;
    atomic_fetch_add(&t->state->ring, 1);
    if (before && before != index)
        hf_member_ring_bell(member_at(t, before));
}

hf_status hf_member_join(struct hf_table *t, int64_t pid, int64_t until, uint32_t *member)
{
    hf_status status = hf_shard_lock(t, LOCAL_REGISTRY, until);
    if (status != HF_OK)
        return status;
    uint32_t index = hf_cell_take(t, LOCAL_REGISTRY, until).index;
    if (!index) {
        hf_shard_unlock(t, LOCAL_REGISTRY);
        return hf_why_status();
    }
    struct hf_member *m = member_at(t, index);
    int error = hf_robust_init(&m->life);
    if (!error && hf_robust_try(&m->life) != HF_ROBUST_LOCKED)
        error = -1;
    atomic_store(&m->ready, 0);
    atomic_store(&m->rescan, 0);
    atomic_store(&m->recheck, 0);
    m->pid = pid;
    if (error || !hf_robust_mine(&m->life)) {
        hf_cell_give(t, LOCAL_REGISTRY, index);
        hf_shard_unlock(t, LOCAL_REGISTRY);
        return hf_why(HF_UNSUPPORTED, "this C library's mutexes cannot be watched");
    }
    hf_cell_commit(hf_cell_at(t, index), CELL_CLIENT);
    hf_cells_append(t, ring_of(t), index);
    tell_predecessor(t, index);
    hf_shard_unlock(t, LOCAL_REGISTRY);
    *member = index;
    return HF_OK;
}

hf_status hf_member_next(struct hf_table *t, uint32_t member, uint32_t *next, uint32_t *ring)
{
    hf_status status = hf_shard_lock(t, LOCAL_REGISTRY, soon());
    if (status != HF_OK)
        return status;
    *ring = atomic_load(&t->state->ring);
    *next = member_at(t, member)->head.next;
    if (!*next)
        *next = ring_of(t)->head;
    if (*next == member)
        *next = 0;
    hf_shard_unlock(t, LOCAL_REGISTRY);
    return HF_OK;
}

/* ---- Burying ---- */

static bool belongs_to(union hf_cell *cell, uint32_t member)
{
    uint32_t state = hf_cell_state(cell);
    return (state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED) && cell->entry.client == member;
}

static bool free_entries_in_chunk(struct hf_table *t, uint32_t first, uint32_t member)
{
    uint32_t shard = t->cells[first].head.shard;
    if (shard >= LOCAL_SHARDS)
        return true;
    if (hf_shard_lock(t, shard, soon()) != HF_OK)
        return false;
    hf_nanos now = hf_clock_boot();
    for (uint32_t i = first; i < first + LOCAL_PER_CHUNK; i++)
        if (belongs_to(&t->cells[i], member))
            hf_entry_drop(t, i, now);
    hf_shard_unlock(t, shard);
    return true;
}

/* Holds and places in queues of one client, wherever they are. It gets no new ones: its cell says CELL_DEAD. False:
 * some part of the table could not be entered. */
static bool free_entries(struct hf_table *t, uint32_t member)
{
    bool all = true;
    for (uint32_t first = 0; first < hf_table_cells(t); first += LOCAL_PER_CHUNK)
        for (uint32_t i = first; i < first + LOCAL_PER_CHUNK; i++)
            if (belongs_to(&t->cells[i], member)) {
                all = free_entries_in_chunk(t, first, member) && all;
                break;
            }
    return all;
}

/* The caller owns the life word. */
static bool take_out(struct hf_table *t, uint32_t member)
{
    if (hf_shard_lock(t, LOCAL_REGISTRY, soon()) != HF_OK)
        return false;
    tell_predecessor(t, member);
    hf_cells_remove(t, ring_of(t), member);
    hf_robust_unlock(&member_at(t, member)->life);
    hf_cell_give(t, LOCAL_REGISTRY, member);
    hf_shard_unlock(t, LOCAL_REGISTRY);
    return true;
}

bool hf_member_lives(struct hf_table *t, uint32_t member)
{
    union hf_cell *cell = hf_cell_at(t, member);
    return hf_cell_state(cell) == CELL_CLIENT && hf_robust_held(atomic_load(hf_robust_word(&cell->member.life)));
}

/* Whoever gets the life word is the undertaker. Under the registry's mutex, so that the cell cannot become another
 * client between the look and the grip. */
static enum hf_burial grip(struct hf_table *t, uint32_t member)
{
    if (hf_shard_lock(t, LOCAL_REGISTRY, soon()) != HF_OK)
        return HF_BURIAL_LATER;
    union hf_cell *cell = hf_cell_at(t, member);
    uint32_t state = hf_cell_state(cell);
    bool ours = false;
    if (state == CELL_CLIENT || state == CELL_DEAD) {
        ours = hf_robust_mine(&cell->member.life); /* begun before, and put off */
        if (!ours && !hf_robust_held(atomic_load(hf_robust_word(&cell->member.life)))) {
            enum hf_robust_result r = hf_robust_try(&cell->member.life);
            if (r == HF_ROBUST_OWNER_DIED)
                hf_robust_mend(&cell->member.life);
            ours = r == HF_ROBUST_OWNER_DIED || r == HF_ROBUST_LOCKED;
        }
    }
    if (ours)
        hf_cell_commit(cell, CELL_DEAD);
    hf_shard_unlock(t, LOCAL_REGISTRY);
    return ours ? HF_BURIAL_DONE : HF_BURIAL_NONE;
}

enum hf_burial hf_member_bury(struct hf_table *t, uint32_t member)
{
    enum hf_burial gripped = grip(t, member);
    if (gripped != HF_BURIAL_DONE)
        return gripped;
    return free_entries(t, member) && take_out(t, member) ? HF_BURIAL_DONE : HF_BURIAL_LATER;
}

bool hf_member_leave(struct hf_table *t, uint32_t member)
{
    hf_cell_commit(hf_cell_at(t, member), CELL_DEAD);
    return free_entries(t, member) && take_out(t, member);
}
