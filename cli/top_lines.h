/* top_lines.h - the lines of the live view: each lock with its holders and waiters, one lock with
 * its past, and the help. */
#pragma once
#include "row_list.h"

enum { TOP_LINE_BYTES = 1024, TOP_NO_LOCK = -1 };

struct top_line {
    char text[TOP_LINE_BYTES];
    const char *colour; /* escape sequence; "": none */
    long lock;          /* index of the lock that the line belongs to, or TOP_NO_LOCK */
    long row;           /* index of the holder's or waiter's row, or TOP_NO_LOCK */
};

struct top_lines {
    struct top_line *all;
    size_t count, room;
    long locks; /* number of locks */
    bool out_of_memory;
};

/* Appends a line. */
__attribute__((format(printf, 5, 6))) void top_lines_add(struct top_lines *lines, long lock,
                                                         long row, const char *colour,
                                                         const char *format, ...);

/* Appends the locks of the rows whose name or label contains `filter` ("": all), with their holders
 * and waiters. Rows of one name are neighbours. */
void top_lines_add_locks(struct top_lines *lines, const struct row_list *rows, const char *filter);

/* Appends one lock: its holders, its queue and its past holds. */
void top_lines_add_lock(struct top_lines *lines, const char *name, const struct row_list *rows,
                        const struct row_list *past);

void top_lines_add_help(struct top_lines *lines);
void top_lines_free(struct top_lines *lines);
