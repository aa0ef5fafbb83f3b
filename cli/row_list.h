/* row_list.h - copies of the holders and waiters that hf_list, hf_show and hf_history pass to
 * their callback. */
#pragma once
#include "holdfast.h"

struct row_list {
    struct hf_row *all; /* the texts of the rows belong to the list */
    size_t count, room;
    bool out_of_memory;
};

/* An hf_row_fn; arg is a struct row_list that began as zero. */
void row_list_add(void *rows, const struct hf_row *row);

/* Returns the exit code of the call that filled the rows: 0, or another after a message. */
int row_list_check(const struct row_list *rows, hf_status status);
/* Removes the rows for which `keep` is false. */
void row_list_filter(struct row_list *rows, const bool *keep);

void row_list_free(struct row_list *rows);
