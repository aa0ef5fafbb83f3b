/* status.h - the table of statuses, made from holdfast/status.def. */
#pragma once
#include "holdfast.h"

struct hf_status_row {
    int status;
    const char *name, *text;
    int exit_code, http;
    bool retry;
};

/* The row of a status; for a number that is none the row "UNKNOWN", which counts as an internal error. Never NULL. */
const struct hf_status_row *hf_status_row(int status);

/* All rows, in the order of status.def. */
const struct hf_status_row *hf_status_rows(size_t *count);
