/* row_cells.h - what is shown of a row alike, whoever lists rows: the columns of a table, and the keys of JSON. */
#pragma once
#include "rows.h"
#include "text.h"

/* A column of a table of rows; a cell is "-" where its row has nothing to say. */
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

/* So many units of the row's lock: "2/5". A lock for readers and writers has no capacity that is worth a word: "3", or
 * "all" for a writer. */
struct shown row_units_of(const struct hf_row *row, uint32_t units);

/* The rows as a table; nothing when there are none. is_dim: on a terminal; NULL: none is. */
void row_cells_print(const struct rows *rows, const struct row_column *columns, size_t count,
                     bool (*is_dim)(const struct hf_row *row));

/* The rows as the items of an array, a line each, without its brackets. */
void row_json_items(const struct rows *rows, void (*print)(const struct hf_row *row));

/* The keys ttl_ms, pid, host and label. */
void row_json_who(const struct hf_row *row);
