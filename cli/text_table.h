/* text_table.h - prints rows of text in aligned columns, with a title line. */
#pragma once
#include "output.h"

struct text_table {
    const char *const *titles;
    size_t columns, rows;
    const void *data;
    struct shown (*cell)(const void *data, size_t row, size_t column);
    size_t
        width; /* columns of the terminal: the first column is cut so that lines fit; 0: no limit */
    bool (*is_dim)(const void *data,
                   size_t row); /* rows that are dimmed on a terminal; NULL: none */
};

/* Prints the table to stdout; nothing if it has no rows. */
void text_table_print(const struct text_table *table);
