/* past.h - the last holds of a resource, kept for people to see as long as its asks want it (settings history and
 * history_age). They go with their resource, which is dropped when nobody uses it and a cell is needed for something
 * else. */
#pragma once
#include "cells.h"

/* What a note shows of a hold, copied before its cell becomes something else. */
void hf_past_copy_fields(struct hf_entry *note, const struct hf_entry *e);
static inline void hf_past_copy(struct hf_entry *note, const struct hf_resource *r, const struct hf_entry *e)
{
    if (r->history)
        hf_past_copy_fields(note, e);
}
/* Notes that a hold is over. Takes a cell only if one is free, or the oldest note's. */
void hf_past_keep_note(struct hf_table *t, struct hf_resource *r, const struct hf_entry *note, hf_status why,
                       hf_nanos now);
static inline void hf_past_keep(struct hf_table *t, struct hf_resource *r, const struct hf_entry *note, hf_status why,
                                hf_nanos now)
{
    if (r->history)
        hf_past_keep_note(t, r, note, why, now);
}
/* Frees the oldest notes until `most` are left. */
void hf_past_drop(struct hf_table *t, struct hf_resource *r, uint32_t most);
/* Frees the notes that are too old. */
void hf_past_forget(struct hf_table *t, struct hf_resource *r, hf_nanos now);
