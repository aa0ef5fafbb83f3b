/* status.h - the table of statuses, made from holdfast/status.def. */
#pragma once
#include "holdfast.h"

struct status_row {
    int status;
    const char *name, *text;
    int exit_code, http;
    bool retry;
};

/* Returns the row of a status; for any other number the row "UNKNOWN", with the exit code of an
 * internal error. Never NULL. */
const struct status_row *status_row(int status);

/* Returns all rows, in the order of status.def. */
const struct status_row *status_rows(size_t *count);
