/* rows.h - holders and waiters as hf_list and hf_show tell of them, copied so that they can be looked at afterwards. */
#pragma once
#include "holdfast.h"

struct rows {
    struct hf_row *all; /* their texts belong to the list */
    size_t count, room;
    bool out_of_memory;
};

/* An hf_row_fn; arg is a struct rows that began as zero. */
void rows_add(void *rows, const struct hf_row *row);

/* The exit code of what filled the rows: 0, or another after a message. */
int rows_check(const struct rows *rows, hf_status status);
void rows_free(struct rows *rows);
