/* wait_queue.c - the holders and waiters of a resource. */
#include "wait_queue.h"

#include "clients.h"
#include "hold_history.h"
#include "sys/clock.h"

#include <string.h>

static struct entry *entry_at(struct table *t, uint32_t index)
{
    return &cell_at(t, index)->entry;
}

void entry_notify(struct table *t, uint32_t index)
{
    struct entry *e = entry_at(t, index);
    atomic_fetch_add(&e->head.word, 1);
    if (e->cookie)
        table_client_ready(t, e->client, index);
    else
        futex_wake_all(&e->head.word);
}

void table_notify_watchers(struct table *t)
{
    atomic_fetch_add(&t->state->changes, 1);
    futex_wake_all(&t->state->changes);
}

/* ---- Owners ---- */

static bool same_owner(const struct entry *e, const struct id *owner)
{
    return e->named && id_same(&e->owner, owner);
}

uint32_t resource_owned(struct table *t, const struct resource *r, const struct id *owner)
{
    FOR_EACH_CELL (t, i, &r->holders)
        if (same_owner(entry_at(t, i), owner))
            return i;
    return 0;
}

uint32_t resource_carrier(struct table *t, const struct resource *r, const struct id *owner)
{
    FOR_EACH_CELL (t, i, &r->holders)
        if (same_owner(entry_at(t, i), owner) && entry_at(t, i)->units)
            return i;
    return 0;
}

/* ---- Ending a hold, leaving a queue ---- */

/* Passes the units of a hold to another attempt of its owner. The units are stored in the other
 * attempt first: a death in between counts them twice, never zero times. If called again, finds
 * that the units were passed. Returns false if the owner has no other attempt. */
static bool pass_units(struct table *t, struct resource *r, const struct entry *e)
{
    bool is_carrier = e->named && e->units;
    if (!is_carrier || resource_carrier(t, r, &e->owner) != 0)
        return false;

    uint32_t successor = resource_owned(t, r, &e->owner);
    if (!successor)
        return false;

    entry_at(t, successor)->units = e->units;
    return true;
}

/* Removes a holder from its resource. Returns true if the whole hold ended, not just one
 * attempt. */
static inline bool remove_holder(struct table *t, struct resource *r, union cell *cell, nanos now)
{
    cell_list_remove_cell(t, &r->holders, cell);
    uint32_t units = cell->entry.units;
    bool passed = pass_units(t, r, &cell->entry);

    if (!passed)
        r->used -= units;
    if (!r->holders.count)
        r->next_end = TIME_NEVER;
    table_changed(t, now);

    return units && !passed;
}

/* Returns true if the cell is on a living client's ready list: then only that client may free
 * it. */
static inline bool is_ready_linked(struct table *t, const struct entry *e)
{
    return atomic_load(&e->ready_link) && e->client &&
           cell_state(cell_at(t, e->client)) == CELL_CLIENT;
}

/* Leaves an entry on the ready list for its client to free. Returns false if the client has just
 * taken the entry off the list: it has seen the cookie and will not come back. */
__attribute__((cold, noinline)) static bool leave_to_client(struct table *t, union cell *cell)
{
    assert(cell);
    cell->entry.cookie = 0;
    cell_commit(cell, CELL_ENDED);
    atomic_thread_fence(memory_order_seq_cst);
    return is_ready_linked(t, &cell->entry);
}

static inline void give_entry(struct table *t, uint32_t index, union cell *cell)
{
    struct entry *e = &cell->entry;
    if (is_ready_linked(t, e) && leave_to_client(t, cell))
        return;

    if (!e->client)
        shard_at(t, e->head.shard)->detached--;
    cell_give_back_cell(t, e->head.shard, index, cell);
}

/* Ends a hold. Its cell stays with its client, whose handle and ready list may still name it. A
 * detached hold has no client and is freed here. */
void entry_end(struct table *t, struct resource *r, uint32_t index, hf_status why, nanos now)
{
    assert(why == HF_OK || why == HF_LOST);
    union cell *cell = cell_at(t, index);
    struct entry *e = &cell->entry, note;
    history_copy(&note, r, e);
    bool whole = remove_holder(t, r, cell, now);

    e->why = (uint8_t)why;
    if (e->client)
        cell_commit(cell, CELL_ENDED);
    else
        give_entry(t, index, cell);

    if (whole)
        history_keep(t, r, &note, why, now);
}

void entry_refuse(struct table *t, struct resource *r, uint32_t index, hf_status why, nanos now)
{
    assert(why != HF_OK);
    cell_list_remove(t, &r->waiters, index);
    entry_at(t, index)->why = (uint8_t)why;
    cell_commit(cell_at(t, index), CELL_ENDED);
    entry_notify(t, index);
    table_changed(t, now);
}

void entry_enqueue(struct table *t, struct resource *r, uint32_t index, nanos now)
{
    entry_at(t, index)->ticket = r->ticket++;
    cell_commit(cell_at(t, index), CELL_WAITING);
    cell_list_append(t, &r->waiters, index);
    table_changed(t, now);
}

/* A hold lasts as long as the longest attempt of its owner. An expired attempt that leaves
 * passes its end time on to another attempt, so that the history shows the true end. */
static void leave_end(struct table *t, struct resource *r, const struct entry *e)
{
    FOR_EACH_CELL (t, i, &r->holders) {
        struct entry *other = entry_at(t, i);
        if (other == e || !same_owner(other, &e->owner))
            continue;
        if (other->end < e->end)
            other->end = e->end;
        return;
    }
}

void resource_reap_ended(struct table *t, struct resource *r, nanos now)
{
    assert(now > 0);
    int64_t next_end = TIME_NEVER;
    FOR_EACH_CELL (t, i, &r->holders) {
        const struct entry *e = entry_at(t, i);
        if (e->end > now) {
            next_end = e->end < next_end ? e->end : next_end;
            continue;
        }
        if (e->named && r->history)
            leave_end(t, r, e);
        entry_end(t, r, i, HF_LOST, now);
    }

    r->next_end = next_end;
}

void resource_reap_dead(struct table *t, struct resource *r, nanos now)
{
    FOR_EACH_CELL (t, i, &r->holders) {
        uint32_t client = entry_at(t, i)->client;
        if (client && !table_client_lives(t, client))
            entry_end(t, r, i, HF_LOST, now);
    }
}

/* ---- Granting and queueing ---- */

static void become_holder(struct table *t, struct resource *r, uint32_t index, uint64_t token,
                          nanos now, bool is_notified)
{
    assert(now > 0);
    struct cell_ref ref = {.index = index, .cell = cell_at(t, index)};
    if (cell_state(ref.cell) == CELL_WAITING) {
        /* Read the clock: a granter that was preempted while locking must not grant with a time
         * that is past. */
        nanos here = clock_boot();
        now = here > now ? here : now;
        cell_list_remove_cell(t, &r->waiters, ref.cell);
    }

    entry_hold(t, r, ref, token, now);
    if (!is_notified)
        entry_notify(t, index);
}

void resource_join(struct table *t, struct resource *r, uint32_t index, uint32_t sibling, nanos now,
                   bool is_notified)
{
    /* A waiter without units fits everywhere. So if this process dies at this point, the repair
     * makes the waiter a holder. */
    entry_at(t, index)->units = 0;
    entry_at(t, index)->kind = entry_at(t, sibling)->kind;
    become_holder(t, r, index, entry_at(t, sibling)->token, now, is_notified);
}

void resource_gather(struct table *t, struct resource *r, uint32_t holder, nanos now)
{
    const struct id owner = entry_at(t, holder)->owner;
    FOR_EACH_CELL (t, i, &r->waiters) {
        if (!same_owner(entry_at(t, i), &owner))
            continue;
        /* the client of a refused waiter asks again, and is then told to upgrade */
        if (entry_at(t, i)->kind == HF_WRITE && entry_at(t, holder)->kind == HF_READ)
            entry_refuse(t, r, i, HF_MISMATCH, now);
        else
            resource_join(t, r, i, holder, now, false);
    }
}

static bool fits(const struct resource *r, const struct entry *e)
{
    return (uint64_t)r->used + e->units <= r->capacity;
}

void resource_admit_first(struct table *t, struct resource *r, nanos now)
{
    uint32_t left = cell_walk_most(t);
    while (r->waiters.head && cell_walk_goes_on(t, &left)) {
        uint32_t first = read_once(r->waiters.head);
        if (cell_state(cell_at(t, first)) != CELL_WAITING) {
            /* The head of the queue does not wait, so the table is damaged; without this the loop
             * might not end. */
            table_found_damage(t);
            return;
        }
        /* the request exceeds the capacity since a resize */
        if (entry_at(t, first)->units > r->capacity) {
            entry_refuse(t, r, first, HF_TOO_BIG, now);
            continue;
        }
        if (!fits(r, entry_at(t, first)))
            break;
        become_holder(t, r, first, ++r->token, now, false);
        if (entry_at(t, first)->named)
            resource_gather(t, r, first, now);
    }

    if (!r->waiters.head)
        return;

    /* The first waiter checks when the next hold ends, because a stopped holder releases
     * nothing. */
    struct entry *first = entry_at(t, r->waiters.head);
    if (r->next_end < first->check_at) {
        first->check_at = r->next_end;
        entry_notify(t, r->waiters.head);
    }
}

/* Removes a waiter from the queue and wakes its caller: another thread may have cancelled the op
 * while the caller is parked on the word. */
static void remove_waiter(struct table *t, struct resource *r, union cell *cell, nanos now)
{
    cell_list_remove_cell(t, &r->waiters, cell);
    atomic_fetch_add(&cell->head.word, 1);
    if (!cell->entry.cookie)
        futex_wake_all(&cell->head.word);
    table_changed(t, now);
}

void entry_drop_cell(struct table *t, uint32_t index, union cell *cell, nanos now)
{
    assert(cell);
    uint32_t state = cell_state(cell), ri = cell->entry.resource;
    union cell *home = cell_at(t, ri);
    struct resource *r = &home->resource;
    struct entry note;
    bool whole = false;

    if (state == CELL_HELD) {
        history_copy(&note, r, &cell->entry);
        whole = remove_holder(t, r, cell, now);
    } else if (state == CELL_WAITING) {
        remove_waiter(t, r, cell, now);
    }

    give_entry(t, index, cell);
    if (state == CELL_ENDED)
        return; /* its resource was reused or dropped */

    /* The history gets the exact clock, because a release may have passed a coarse `now`. */
    if (whole && r->history)
        history_keep_note(t, r, &note, note.end <= now ? HF_LOST : HF_OK, clock_boot());
    resource_reap(t, r, now);
    resource_admit(t, r, now);
    resource_settle_cell(t, ri, home);
}
