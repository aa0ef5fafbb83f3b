/* top_lines.c - writes the lines of the live view. */
#include "top_lines.h"
#include "output.h"
#include "row_cells.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 20
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RED "\033[31m"
#define GREEN "\033[32m"

void top_lines_add(struct top_lines *lines, long lock, long row, const char *colour,
                   const char *format, ...)
{
    if (lines->count == lines->room) {
        size_t room = lines->room ? lines->room * 2 : 64;
        struct top_line *all = reallocarray(lines->all, room, sizeof *all);
        lines->out_of_memory |= !all;
        if (!all)
            return;
        lines->all = all;
        lines->room = room;
    }

    struct top_line *line = &lines->all[lines->count++];
    line->colour = colour;
    line->lock = lock;
    line->row = row;
    va_list args;
    va_start(args, format);
    vsnprintf(line->text, sizeof line->text, format, args);
    va_end(args);
}

void top_lines_free(struct top_lines *lines)
{
    free(lines->all);
    *lines = (struct top_lines){0};
}

static void add_holder(struct top_lines *lines, long lock, const struct row_list *rows, size_t at)
{
    const struct hf_row *row = &rows->all[at];
    char bar[BAR_WIDTH + 1];
    int64_t filled =
        row->ttl_ms > 0 ? (row->left_ms * BAR_WIDTH + row->ttl_ms - 1) / row->ttl_ms : 0;

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    top_lines_add(lines, lock, (long)at, filled * 3 <= BAR_WIDTH ? RED : GREEN,
                  "  [%s] %-10s left  pid %" PRId64 "%s%.100s  held %.60s  token %" PRIu64
                  "%s%.400s",
                  bar, text_duration(row->left_ms).text, row->pid, *row->host ? " on " : "",
                  output_shown(row->host).text, text_duration(row->since_ms).text, row->token,
                  *row->label ? "  " : "", output_shown(row->label).text);
}

static void add_waiter(struct top_lines *lines, long lock, const struct row_list *rows, size_t at)
{
    const struct hf_row *row = &rows->all[at];
    top_lines_add(lines, lock, (long)at, DIM,
                  "  waiter %" PRIu32 "  pid %" PRId64 "%s%.100s  waits %.60s%s%.400s", row->place,
                  row->pid, *row->host ? " on " : "", output_shown(row->host).text,
                  text_duration(row->since_ms).text, *row->label ? "  " : "",
                  output_shown(row->label).text);
}

static void add_row(struct top_lines *lines, long lock, const struct row_list *rows, size_t at)
{
    if (rows->all[at].role == HF_HOLDER)
        add_holder(lines, lock, rows, at);
    else
        add_waiter(lines, lock, rows, at);
}

static void add_name(struct top_lines *lines, long lock, const struct hf_row *row)
{
    top_lines_add(lines, lock, TOP_NO_LOCK, BOLD, "%s  %s  %.60s used",
                  output_shown(row->name).text, hf_kind_name(row->kind),
                  row_units_of(row, row->used).text);
}

static bool row_matches(const struct hf_row *row, const char *filter)
{
    return strstr(row->name, filter) || strstr(row->label, filter) || strstr(row->host, filter);
}

void top_lines_add_locks(struct top_lines *lines, const struct row_list *rows, const char *filter)
{
    for (size_t first = 0, end; first < rows->count; first = end) {
        bool matches = false;
        for (end = first; end < rows->count; end++) {
            if (strcmp(rows->all[end].name, rows->all[first].name) != 0)
                break;
            matches |= row_matches(&rows->all[end], filter);
        }
        if (!matches)
            continue;

        long lock = lines->locks++;
        add_name(lines, lock, &rows->all[first]);
        for (size_t i = first; i < end; i++)
            add_row(lines, lock, rows, i);
    }
}

void top_lines_add_lock(struct top_lines *lines, const char *name, const struct row_list *rows,
                        const struct row_list *past)
{
    if (rows->count > 0)
        add_name(lines, TOP_NO_LOCK, &rows->all[0]);
    else
        top_lines_add(lines, TOP_NO_LOCK, TOP_NO_LOCK, BOLD, "%s  is free",
                      output_shown(name).text);
    for (size_t i = 0; i < rows->count; i++)
        add_row(lines, TOP_NO_LOCK, rows, i);

    top_lines_add(lines, TOP_NO_LOCK, TOP_NO_LOCK, "", "%s", "");
    top_lines_add(lines, TOP_NO_LOCK, TOP_NO_LOCK, BOLD, "%s",
                  past->count ? "past holds, newest first"
                              : "no past holds (the setting history says how many are kept)");
    for (size_t i = 0; i < past->count; i++) {
        const struct hf_row *row = &past->all[i];
        top_lines_add(lines, TOP_NO_LOCK, TOP_NO_LOCK, "",
                      "  %s %s ago  held %s  pid %" PRId64 "%s%.100s  token %" PRIu64 "%s%.300s",
                      row->ended == HF_OK ? "released" : "lost", text_duration(row->ended_ms).text,
                      text_duration(row->since_ms).text, row->pid, *row->host ? " on " : "",
                      output_shown(row->host).text, row->token, *row->label ? "  " : "",
                      output_shown(row->label).text);
    }
}

void top_lines_add_help(struct top_lines *lines)
{
    static const char *const help[] = {
        "up, down, k, j      the lock above or below",
        "PgUp, PgDn, g, G    a page up or down, the first, the last",
        "Enter               one lock: its holders, its queue, its past holds",
        "b                   revoke the chosen hold, after a question",
        "/                   show only names, labels or hosts that contain a text; Enter ends it",
        "s                   sort by urgency, name, waiters, oldest hold, time left",
        "Esc, Backspace      back to all locks",
        "?                   this help",
        "q                   end",
    };
    for (size_t i = 0; i < sizeof help / sizeof help[0]; i++)
        top_lines_add(lines, TOP_NO_LOCK, TOP_NO_LOCK, "", "  %s", help[i]);
}
