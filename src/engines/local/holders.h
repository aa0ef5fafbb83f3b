/* holders.h - who holds a resource and who waits for it. All under the mutex of the resource's shard.
 *
 * The rule that every function here keeps: none ends with a first waiter that fits.
 *
 * A hold is an owner with a set of attempts. Each attempt has an entry of its own that lives by its own time; one of
 * them has the hold's units, the others have none. When that one goes, its units go to another. */
#pragma once
#include "resource.h"

/* Ends the holds whose time is over. */
void hf_resource_reap_ended(struct hf_table *t, struct hf_resource *r, hf_nanos now);
static inline void hf_resource_reap(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    if (now >= r->next_end)
        hf_resource_reap_ended(t, r, now);
}
/* Ends the holds of clients that died and that nobody has buried yet: their neighbour may be stopped. */
void hf_resource_reap_dead(struct hf_table *t, struct hf_resource *r, hf_nanos now);
/* Gives the free units to the first waiters, in order, and makes sure that the next one looks in time. */
void hf_resource_admit_first(struct hf_table *t, struct hf_resource *r, hf_nanos now);
static inline void hf_resource_admit(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    if (r->waiters.head)
        hf_resource_admit_first(t, r, now);
}
/* Makes an entry (waiting or new) one more attempt of the hold that `sibling` belongs to. `told`: its client hears of
 * it some other way. */
void hf_resource_join(struct hf_table *t, struct hf_resource *r, uint32_t entry, uint32_t sibling, hf_nanos now,
                      bool told);
/* Waiters with the owner of that holder join it: otherwise they would wait for themselves. Who wants to write what its
 * owner reads is refused. */
void hf_resource_gather(struct hf_table *t, struct hf_resource *r, uint32_t holder, hf_nanos now);
/* A holder with that owner; 0: none. */
uint32_t hf_resource_owned(struct hf_table *t, const struct hf_resource *r, const struct hf_id *owner);
/* The entry of that owner that has the units. */
uint32_t hf_resource_carrier(struct hf_table *t, const struct hf_resource *r, const struct hf_id *owner);

/* Takes an entry out of its resource, whatever it was, and frees its cell; then admits. */
void hf_entry_drop_cell(struct hf_table *t, uint32_t index, union hf_cell *cell, hf_nanos now);
static inline void hf_entry_drop(struct hf_table *t, uint32_t index, hf_nanos now)
{
    hf_entry_drop_cell(t, index, hf_cell_at(t, index), now);
}
/* Ends a hold without its client's doing, which is told to look; the caller admits. */
void hf_entry_end(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_status why, hf_nanos now);
/* Refuses a waiter; its client hears why when it asks again. */
void hf_entry_refuse(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_status why, hf_nanos now);
/* Puts an entry at the end of the queue. */
void hf_entry_enqueue(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_nanos now);
/* Tells those who watch the table. */
void hf_table_tell(struct hf_table *t);
static inline void hf_table_changed(struct hf_table *t, hf_nanos now)
{
    if (now < atomic_load_explicit(&t->state->watched_until, memory_order_relaxed))
        hf_table_tell(t);
}
/* From here on an entry that stands in no queue holds. */
static inline void hf_entry_hold(struct hf_table *t, struct hf_resource *r, struct hf_spot spot, uint64_t token,
                                 hf_nanos now)
{
    struct hf_entry *e = &spot.cell->entry;
    e->token = token;
    e->since = now;
    e->end = hf_after(now, e->ttl);
    hf_cell_commit(spot.cell, CELL_HELD);
    hf_cells_append_cell(t, &r->holders, spot.index, spot.cell);
    r->used += e->units;
    if (e->end < r->next_end)
        r->next_end = e->end;
    hf_table_changed(t, now);
}
/* Something happened to a waiting or just granted entry: its client must look. */
void hf_entry_notify(struct hf_table *t, uint32_t index);
