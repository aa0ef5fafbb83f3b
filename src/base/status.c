/* status.c - the table of statuses. */
#include "status.h"

static const struct status_row rows[] = {
#define HF_STATUS(name, number, exit_code, http, retry, text)                                      \
    {number, #name, text, exit_code, http, retry},
#include "holdfast/status.def"
#undef HF_STATUS
};

static const struct status_row unknown = {-1, "UNKNOWN", "not a status of this version",
                                          70, 500,       false};

const struct status_row *status_row(int status)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return &rows[i];
    return &unknown;
}

const struct status_row *status_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
