/* holders.c - who holds a resource and who waits for it. */
#include "holders.h"

#include "members.h"
#include "past.h"
#include "sys/clock.h"

#include <string.h>

static struct hf_entry *entry_at(struct hf_table *t, uint32_t index)
{
    return &hf_cell_at(t, index)->entry;
}

void hf_entry_notify(struct hf_table *t, uint32_t index)
{
    struct hf_entry *e = entry_at(t, index);
    atomic_fetch_add(&e->head.word, 1);
    if (e->cookie)
        hf_member_ready(t, e->client, index);
    else
        hf_futex_wake(&e->head.word, 1);
}

void hf_table_tell(struct hf_table *t)
{
    atomic_fetch_add(&t->state->changes, 1);
    hf_futex_wake(&t->state->changes, INT32_MAX);
}

/* ---- Owners ---- */

static bool same_owner(const struct hf_entry *e, const struct hf_id *owner)
{
    return e->named && hf_id_same(&e->owner, owner);
}

uint32_t hf_resource_owned(struct hf_table *t, const struct hf_resource *r, const struct hf_id *owner)
{
    HF_EACH_CELL(t, i, &r->holders)
    if (same_owner(entry_at(t, i), owner))
        return i;
    return 0;
}

uint32_t hf_resource_carrier(struct hf_table *t, const struct hf_resource *r, const struct hf_id *owner)
{
    HF_EACH_CELL(t, i, &r->holders)
    if (same_owner(entry_at(t, i), owner) && entry_at(t, i)->units)
        return i;
    return 0;
}

/* ---- Going ---- */

/* The units of a hold whose other attempts go on pass to one of those: stored there first, so that a death in between
 * counts them twice and never not at all. A repeat finds them passed. False: nobody takes them. */
static bool pass_units(struct hf_table *t, struct hf_resource *r, const struct hf_entry *e)
{
    if (!e->named || !e->units || hf_resource_carrier(t, r, &e->owner) != 0)
        return false;
    uint32_t heir = hf_resource_owned(t, r, &e->owner);
    if (!heir)
        return false;
    entry_at(t, heir)->units = e->units;
    return true;
}

/* Takes a holder off its resource. True: the whole hold is over, not just one attempt of it. */
static inline bool remove_holder(struct hf_table *t, struct hf_resource *r, union hf_cell *cell, hf_nanos now)
{
    hf_cells_remove_cell(t, &r->holders, cell);
    uint32_t units = cell->entry.units;
    bool passed = pass_units(t, r, &cell->entry);
    if (!passed)
        r->used -= units;
    if (!r->holders.count)
        r->next_end = HF_NEVER;
    hf_table_changed(t, now);
    return units && !passed;
}

/* A cell on a living client's ready list may not become anything else before the client has taken it off. */
static inline bool is_linked(struct hf_table *t, const struct hf_entry *e)
{
    return atomic_load(&e->linked) && e->client && hf_cell_state(hf_cell_at(t, e->client)) == CELL_CLIENT;
}

/* Leaves a linked entry to its client. False: that has taken it off meanwhile, and saw the cookie: it will not come
 * back. */
__attribute__((cold, noinline)) static bool leave_to_client(struct hf_table *t, union hf_cell *cell)
{
    cell->entry.cookie = 0;
    hf_cell_commit(cell, CELL_ENDED);
    atomic_thread_fence(memory_order_seq_cst);
    return is_linked(t, &cell->entry);
}

static inline void give_entry(struct hf_table *t, uint32_t index, union hf_cell *cell)
{
    struct hf_entry *e = &cell->entry;
    if (is_linked(t, e) && leave_to_client(t, cell))
        return;
    if (!e->client)
        hf_shard_at(t, e->head.shard)->detached--;
    hf_cell_give_cell(t, e->head.shard, index, cell);
}

/* The cell stays the client's: it may be in the client's ready list, and the client's handle still points to it.
 * Without a client nobody does. */
void hf_entry_end(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_status why, hf_nanos now)
{
    union hf_cell *cell = hf_cell_at(t, index);
    struct hf_entry *e = &cell->entry, note;
    hf_past_copy(&note, r, e);
    bool whole = remove_holder(t, r, cell, now);
    e->why = (uint8_t)why;
    if (e->client)
        hf_cell_commit(cell, CELL_ENDED);
    else
        give_entry(t, index, cell);
    if (whole)
        hf_past_keep(t, r, &note, why, now);
}

void hf_entry_refuse(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_status why, hf_nanos now)
{
    hf_cells_remove(t, &r->waiters, index);
    entry_at(t, index)->why = (uint8_t)why;
    hf_cell_commit(hf_cell_at(t, index), CELL_ENDED);
    hf_entry_notify(t, index);
    hf_table_changed(t, now);
}

void hf_entry_enqueue(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_nanos now)
{
    entry_at(t, index)->ticket = r->ticket++;
    hf_cell_commit(hf_cell_at(t, index), CELL_WAITING);
    hf_cells_append(t, &r->waiters, index);
    hf_table_changed(t, now);
}

void hf_resource_reap_ended(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    int64_t next_end = HF_NEVER;
    HF_EACH_CELL(t, i, &r->holders)
    {
        int64_t end = entry_at(t, i)->end;
        if (end <= now)
            hf_entry_end(t, r, i, HF_LOST, now);
        else if (end < next_end)
            next_end = end;
    }
    r->next_end = next_end;
}

void hf_resource_reap_dead(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    HF_EACH_CELL(t, i, &r->holders)
    {
        uint32_t client = entry_at(t, i)->client;
        if (client && !hf_member_lives(t, client))
            hf_entry_end(t, r, i, HF_LOST, now);
    }
}

/* ---- Coming ---- */

static void become_holder(struct hf_table *t, struct hf_resource *r, uint32_t index, uint64_t token, hf_nanos now,
                          bool told)
{
    struct hf_spot spot = {.index = index, .cell = hf_cell_at(t, index)};
    if (hf_cell_state(spot.cell) == CELL_WAITING) {
        hf_nanos here = hf_clock_boot(); /* a granter that lost the CPU on its way in must not grant what is over */
        now = here > now ? here : now;
        hf_cells_remove_cell(t, &r->waiters, spot.cell);
    }
    hf_entry_hold(t, r, spot, token, now);
    if (!told)
        hf_entry_notify(t, index);
}

void hf_resource_join(struct hf_table *t, struct hf_resource *r, uint32_t index, uint32_t sibling, hf_nanos now,
                      bool told)
{
    /* A waiter without units would fit everywhere: after a death in between, the repair lets it join. */
    entry_at(t, index)->units = 0;
    entry_at(t, index)->kind = entry_at(t, sibling)->kind;
    become_holder(t, r, index, entry_at(t, sibling)->token, now, told);
}

void hf_resource_gather(struct hf_table *t, struct hf_resource *r, uint32_t holder, hf_nanos now)
{
    const struct hf_id owner = entry_at(t, holder)->owner;
    HF_EACH_CELL(t, i, &r->waiters)
    {
        if (!same_owner(entry_at(t, i), &owner))
            continue;
        if (entry_at(t, i)->kind == HF_WRITE && entry_at(t, holder)->kind == HF_READ)
            hf_entry_refuse(t, r, i, HF_MISMATCH, now); /* it asks again, and hears of the upgrade */
        else
            hf_resource_join(t, r, i, holder, now, false);
    }
}

static bool fits(const struct hf_resource *r, const struct hf_entry *e)
{
    return (uint64_t)r->used + e->units <= r->capacity;
}

void hf_resource_admit_first(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    uint32_t left = hf_table_cells(t);
    while (r->waiters.head && left--) {
        uint32_t first = r->waiters.head;
        if (hf_cell_state(hf_cell_at(t, first)) !=
            CELL_WAITING) { /* by a damage: it would be granted again and again */
            atomic_store_explicit(&t->damaged, true, memory_order_relaxed);
            return;
        }
        if (entry_at(t, first)->units > r->capacity) { /* after a resize it never will */
            hf_entry_refuse(t, r, first, HF_TOO_BIG, now);
            continue;
        }
        if (!fits(r, entry_at(t, first)))
            break;
        become_holder(t, r, first, ++r->token, now, false);
        if (entry_at(t, first)->named)
            hf_resource_gather(t, r, first, now);
    }
    if (!r->waiters.head)
        return;
    /* The first in line looks when the next hold ends, for a holder that is stopped frees nothing itself. */
    struct hf_entry *first = entry_at(t, r->waiters.head);
    if (r->next_end < first->check_at) {
        first->check_at = r->next_end;
        hf_entry_notify(t, r->waiters.head);
    }
}

/* A caller may be parked on it while another thread cancels. */
static void remove_waiter(struct hf_table *t, struct hf_resource *r, union hf_cell *cell, hf_nanos now)
{
    hf_cells_remove_cell(t, &r->waiters, cell);
    atomic_fetch_add(&cell->head.word, 1);
    if (!cell->entry.cookie)
        hf_futex_wake(&cell->head.word, 1);
    hf_table_changed(t, now);
}

void hf_entry_drop_cell(struct hf_table *t, uint32_t index, union hf_cell *cell, hf_nanos now)
{
    uint32_t state = hf_cell_state(cell), ri = cell->entry.resource;
    union hf_cell *home = hf_cell_at(t, ri);
    struct hf_resource *r = &home->resource;
    struct hf_entry note;
    bool whole = false;
    if (state == CELL_HELD) {
        hf_past_copy(&note, r, &cell->entry);
        whole = remove_holder(t, r, cell, now);
    } else if (state == CELL_WAITING) {
        remove_waiter(t, r, cell, now);
    }
    give_entry(t, index, cell);
    if (state == CELL_ENDED)
        return; /* its resource has long gone on, or away */
    if (whole && r->history)
        hf_past_keep_note(t, r, &note, HF_OK, hf_clock_boot()); /* whoever gives back may bring a coarse time */
    hf_resource_reap(t, r, now);
    hf_resource_admit(t, r, now);
    hf_resource_settle_cell(t, ri, home);
}
