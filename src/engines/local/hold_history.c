/* hold_history.c - the past holds of a resource, sorted by the time when they ended. A note
 * keeps that time in `check_at`. */
#include "hold_history.h"

#include <string.h>

static void free_note(struct table *t, struct resource *r, uint32_t index)
{
    cell_list_remove(t, &r->past, index);
    cell_give_back(t, r->head.shard, index);
}

void history_drop(struct table *t, struct resource *r, uint32_t most)
{
    uint32_t left = cell_walk_most(t);
    while (r->past.count > most && r->past.head && cell_walk_goes_on(t, &left))
        free_note(t, r, r->past.head);
}

void history_forget(struct table *t, struct resource *r, nanos now)
{
    uint32_t left = cell_walk_most(t);
    while (r->past.head && cell_walk_goes_on(t, &left)) {
        int64_t ended_at = cell_at(t, r->past.head)->entry.check_at;
        /* A note may be newer than `now`, because its hold ended while this op waited for the
         * mutex. */
        if (ended_at >= 0 && time_until(ended_at, now) < r->history_age)
            return;
        free_note(t, r, r->past.head);
    }
}

/* Copies field by field: `word` and `ready_link` belong to the cell. */
void history_copy_fields(struct entry *note, const struct entry *over)
{
    assert(note != over);
    note->resource = over->resource;
    note->client = 0;
    note->units = over->units;
    note->kind = over->kind;
    note->label_len = over->label_len;
    note->named = 0;
    note->token = over->token;
    note->end = over->end;
    note->ttl = over->ttl;
    note->since = over->since;
    note->pid = over->pid;
    memcpy(note->label, over->label, sizeof note->label);
}

/* Returns the time when a hold ended. An expired hold ended at its end time, even if that was
 * noticed later. */
static int64_t end_of(const struct entry *note, nanos now)
{
    return note->end < now ? note->end : now;
}

/* Makes room for a note with that end time. Returns false if the history is full of later notes. */
static bool make_room(struct table *t, struct resource *r, int64_t ended_at, nanos now)
{
    history_forget(t, r, now);
    history_drop(t, r, r->history);
    bool is_full = r->past.head && r->past.count == r->history;

    if (is_full && cell_at(t, r->past.head)->entry.check_at > ended_at)
        return false;

    history_drop(t, r, r->history - 1);
    return true;
}

/* Inserts by end time; nearly always at the tail. */
static void put_in_order(struct table *t, struct cell_list *past, uint32_t index)
{
    int64_t ended_at = cell_at(t, index)->entry.check_at;
    uint32_t before = past->tail, left = cell_walk_most(t);
    while (before && cell_walk_goes_on(t, &left) && cell_at(t, before)->entry.check_at > ended_at)
        before = cell_at(t, before)->head.prev;

    if (before)
        cell_list_insert(t, past, before, index);
    else
        cell_list_push(t, past, index);
}

void history_keep_note(struct table *t, struct resource *r, const struct entry *note, hf_status why,
                       nanos now)
{
    assert(why == HF_OK || why == HF_LOST);
    int64_t ended_at = end_of(note, now);
    struct cell_list *free = &shard_at(t, r->head.shard)->free;
    if (!make_room(t, r, ended_at, now) || !free->head)
        return;

    uint32_t index = free->head;
    cell_list_remove(t, free, index);
    union cell *cell = cell_at(t, index);

    history_copy_fields(&cell->entry, note);
    cell->entry.check_at = ended_at;
    cell->entry.ticket = (uint64_t)ended_at; /* a repair sorts notes by ticket */
    cell->entry.why = (uint8_t)why;
    cell_commit(cell, CELL_PAST);
    put_in_order(t, &r->past, index);
}
