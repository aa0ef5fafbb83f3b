/* past.c - the last holds of a resource. In a note `check_at` is the time of the end. */
#include "past.h"

#include <string.h>

static void free_note(struct hf_table *t, struct hf_resource *r, uint32_t index)
{
    hf_cells_remove(t, &r->past, index);
    hf_cell_give(t, r->head.shard, index);
}

void hf_past_drop(struct hf_table *t, struct hf_resource *r, uint32_t most)
{
    uint32_t left = hf_table_cells(t);
    while (r->past.count > most && r->past.head && left--)
        free_note(t, r, r->past.head);
}

void hf_past_forget(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    uint32_t left = hf_table_cells(t);
    while (r->past.head && left--) {
        int64_t ended_at = hf_cell_at(t, r->past.head)->entry.check_at;
        if (ended_at >= 0 && hf_until(ended_at, now) < r->history_age)
            return; /* also one that ended while we waited to get in: our time is older */
        free_note(t, r, r->past.head);
    }
}

/* Field by field: `word` and `linked` belong to the cell. */
void hf_past_copy_fields(struct hf_entry *note, const struct hf_entry *over)
{
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

void hf_past_keep_note(struct hf_table *t, struct hf_resource *r, const struct hf_entry *note, hf_status why,
                       hf_nanos now)
{
    hf_past_drop(t, r, r->history - 1);
    hf_past_forget(t, r, now);
    struct hf_cells *free = &hf_shard_at(t, r->head.shard)->free;
    uint32_t index = free->head;
    if (!index)
        return;
    hf_cells_remove(t, free, index);
    union hf_cell *cell = hf_cell_at(t, index);
    hf_past_copy_fields(&cell->entry, note);
    cell->entry.check_at = now;
    cell->entry.ticket = (uint64_t)now; /* by which a repair puts them in order again */
    cell->entry.why = (uint8_t)why;
    hf_cell_commit(cell, CELL_PAST);
    hf_cells_append(t, &r->past, index);
}
