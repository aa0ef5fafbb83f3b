/* table.h - prints rows of text in aligned columns, with a title line. */
#pragma once
#include "text.h"

struct table {
    const char *const *titles;
    size_t columns, rows;
    const void *data;
    struct shown (*cell)(const void *data, size_t row, size_t column);
    bool (*is_dim)(const void *data, size_t row); /* on a terminal; NULL: none is */
};

/* Prints it to stdout; nothing when it has no rows. */
void table_print(const struct table *table);
