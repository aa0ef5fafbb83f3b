/* wait_queue.h - the holders and waiters of a resource. The caller holds the mutex of the
 * resource's shard.
 *
 * The rule that every function keeps: when it returns, the first waiter does not fit.
 *
 * A hold is an owner with a set of attempts. Each attempt has an entry with its own end time. One
 * entry has the hold's units, the others have none. When the entry with the units is removed, the
 * units pass to another entry. */
#pragma once
#include "resource.h"

/* Ends the holds that have expired. */
void resource_reap_ended(struct table *t, struct resource *r, nanos now);
static inline void resource_reap(struct table *t, struct resource *r, nanos now)
{
    if (now >= r->next_end)
        resource_reap_ended(t, r, now);
}
/* Ends the holds of dead clients that were not cleaned up yet, because their watcher may be
 * stopped. */
void resource_reap_dead(struct table *t, struct resource *r, nanos now);
/* Grants free units to the first waiters, in order, and sets when the next waiter must check. */
void resource_admit_first(struct table *t, struct resource *r, nanos now);
static inline void resource_admit(struct table *t, struct resource *r, nanos now)
{
    if (r->waiters.head)
        resource_admit_first(t, r, now);
}
/* Makes an entry (waiting or new) another attempt of the hold of `sibling`. `is_notified`: the
 * client learns of the grant without a notification from here. */
void resource_join(struct table *t, struct resource *r, uint32_t entry, uint32_t sibling, nanos now,
                   bool is_notified);
/* Lets waiters with the owner of `holder` join the hold; otherwise the owner would wait for itself.
 * Refuses a waiter that wants to write while its owner reads. */
void resource_gather(struct table *t, struct resource *r, uint32_t holder, nanos now);
/* Returns an entry that holds for that owner, or 0. */
uint32_t resource_owned(struct table *t, const struct resource *r, const struct id *owner);
/* Returns the entry of that owner that has the units, or 0. */
uint32_t resource_carrier(struct table *t, const struct resource *r, const struct id *owner);

/* Removes an entry from its resource in any state, frees its cell and admits waiters. */
void entry_drop_cell(struct table *t, uint32_t index, union cell *cell, nanos now);
static inline void entry_drop(struct table *t, uint32_t index, nanos now)
{
    entry_drop_cell(t, index, cell_at(t, index), now);
}
/* Ends a hold without its client. The caller tells the client to check, and admits waiters. */
void entry_end(struct table *t, struct resource *r, uint32_t index, hf_status why, nanos now);
/* Refuses a waiter; its client learns why when it asks again. */
void entry_refuse(struct table *t, struct resource *r, uint32_t index, hf_status why, nanos now);
/* Puts an entry at the end of the queue. */
void entry_enqueue(struct table *t, struct resource *r, uint32_t index, nanos now);
/* Wakes the clients that watch the table. */
void table_notify_watchers(struct table *t);
static inline void table_changed(struct table *t, nanos now)
{
    if (now < atomic_load_explicit(&t->state->watched_until, memory_order_relaxed))
        table_notify_watchers(t);
}
/* Makes an entry that is in no queue a holder. */
static inline void entry_hold(struct table *t, struct resource *r, struct cell_ref ref,
                              uint64_t token, nanos now)
{
    struct entry *e = &ref.cell->entry;
    e->token = token;
    e->since = now;
    e->end = time_after(now, e->ttl);
    cell_commit(ref.cell, CELL_HELD);
    cell_list_append_cell(t, &r->holders, ref.index, ref.cell);
    r->used += e->units;
    if (e->end < r->next_end)
        r->next_end = e->end;
    table_changed(t, now);
}
/* Notifies the client of an entry that was granted, refused, or must check. */
void entry_notify(struct table *t, uint32_t index);
