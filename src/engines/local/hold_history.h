/* hold_history.h - the last holds of a resource, kept for operators to read, as the settings
 * history and history_age say. Notes are dropped with their resource, when it is unused and a cell
 * is needed. */
#pragma once
#include "cells.h"

/* Copies the fields that a note shows, before the cell of the hold is reused. */
void history_copy_fields(struct entry *note, const struct entry *e);
static inline void history_copy(struct entry *note, const struct resource *r, const struct entry *e)
{
    if (r->history)
        history_copy_fields(note, e);
}
/* Notes that a hold ended at `now`, or at its end time if that came first. Uses only a free cell
 * or the cell of the oldest note. */
void history_keep_note(struct table *t, struct resource *r, const struct entry *note, hf_status why,
                       nanos now);
static inline void history_keep(struct table *t, struct resource *r, const struct entry *note,
                                hf_status why, nanos now)
{
    if (r->history)
        history_keep_note(t, r, note, why, now);
}
/* Frees the oldest notes until `most` are left. */
void history_drop(struct table *t, struct resource *r, uint32_t most);
/* Frees the notes that are older than history_age. */
void history_forget(struct table *t, struct resource *r, nanos now);
