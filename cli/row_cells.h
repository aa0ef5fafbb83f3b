/* row_cells.h - the cells of a table of rows, and the items of a JSON array, for all verbs that
 * print rows. */
#pragma once
#include "output.h"
#include "row_list.h"

/* A column of a table of rows. A cell without a value is "-". */
struct row_column {
    const char *title;
    struct shown (*cell)(const struct hf_row *row);
};

struct shown row_name(const struct hf_row *row);
struct shown row_kind(const struct hf_row *row);
struct shown row_units(const struct hf_row *row);
struct shown row_token(const struct hf_row *row);
struct shown row_since(const struct hf_row *row);
struct shown row_pid(const struct hf_row *row);
struct shown row_host(const struct hf_row *row);
struct shown row_label(const struct hf_row *row);

/* A number of units of the row's lock: "2/5". For a read-write lock the capacity is left out:
 * "3", or "all" for a writer. */
struct shown row_units_of(const struct hf_row *row, uint32_t units);

/* Prints the rows as a table, cut to `width` columns (0: not cut); nothing if there are none.
 * is_dim says which rows are dimmed on a terminal; NULL: none. */
void row_cells_print(const struct row_list *rows, const struct row_column *columns, size_t count,
                     size_t width, bool (*is_dim)(const struct hf_row *row));
