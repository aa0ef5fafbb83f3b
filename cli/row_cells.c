/* row_cells.c - the cells of a table of rows. */
#include "row_cells.h"
#include "text_table.h"
#include <inttypes.h>

#define COLUMNS_MAX 16

static struct shown text_or_dash(const char *text)
{
    return output_shown(*text ? text : "-");
}

struct shown row_name(const struct hf_row *row)
{
    return output_shown(row->name);
}

struct shown row_kind(const struct hf_row *row)
{
    return output_shown(hf_kind_name(row->kind));
}

/* The history of Redis has no capacities: 0. */
struct shown row_units_of(const struct hf_row *row, uint32_t units)
{
    struct shown shown = {"all"};
    bool readers_and_writers = row->kind == HF_READ || row->kind == HF_WRITE;
    bool is_all = readers_and_writers &&
                  (units == HF_CAPACITY_MAX || (row->capacity > 0 && units >= row->capacity));
    bool has_share = !readers_and_writers && row->capacity > 0;

    if (has_share)
        snprintf(shown.text, sizeof shown.text, "%" PRIu32 "/%" PRIu32, units, row->capacity);
    else if (!is_all)
        snprintf(shown.text, sizeof shown.text, "%" PRIu32, units);
    return shown;
}

struct shown row_units(const struct hf_row *row)
{
    return row_units_of(row, row->units);
}

struct shown row_token(const struct hf_row *row)
{
    struct shown shown = {"-"};
    if (row->role == HF_HOLDER && !row->foreign)
        snprintf(shown.text, sizeof shown.text, "%" PRIu64, row->token);
    return shown;
}

struct shown row_since(const struct hf_row *row)
{
    return row->foreign ? output_shown("-") : text_duration(row->since_ms);
}

struct shown row_pid(const struct hf_row *row)
{
    struct shown shown = {"-"};
    if (!row->foreign)
        snprintf(shown.text, sizeof shown.text, "%" PRId64, row->pid);
    return shown;
}

struct shown row_host(const struct hf_row *row)
{
    return text_or_dash(row->host);
}

struct shown row_label(const struct hf_row *row)
{
    return row->foreign && !*row->label ? output_shown("(foreign: another program's lock)")
                                        : text_or_dash(row->label);
}

/* ---- Tables ---- */

struct columns_of_rows {
    const struct row_list *rows;
    const struct row_column *columns;
    bool (*is_dim)(const struct hf_row *row);
};

static struct shown cell(const void *data, size_t row, size_t column)
{
    const struct columns_of_rows *all = data;
    return all->columns[column].cell(&all->rows->all[row]);
}

static bool is_dim(const void *data, size_t row)
{
    const struct columns_of_rows *all = data;
    return all->is_dim && all->is_dim(&all->rows->all[row]);
}

void row_cells_print(const struct row_list *rows, const struct row_column *columns, size_t count,
                     size_t width, bool (*dim)(const struct hf_row *row))
{
    const char *titles[COLUMNS_MAX];
    struct columns_of_rows all = {rows, columns, dim};

    for (size_t i = 0; i < count; i++)
        titles[i] = columns[i].title;

    text_table_print(&(struct text_table){.titles = titles,
                                          .columns = count,
                                          .rows = rows->count,
                                          .width = width,
                                          .data = &all,
                                          .cell = cell,
                                          .is_dim = is_dim});
}
