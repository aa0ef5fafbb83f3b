/* holder_text.h - describes in words who holds a name. */
#pragma once
#include "output.h"
#include "row_list.h"

struct holder_text {
    char text[1024];
};

/* `"job" is held by pid 123 on HOST (label) for 3.2 s, 26 s left`, on a quorum `, on 3 of 5
 * servers`, and how many more there are; `"job" is not held`. */
struct holder_text holder_text_describe(const char *name, const struct row_list *rows);

/* Returns true if this process is among the holders: then the server has granted the lock and
 * the reply has not arrived yet. */
bool holder_text_include_us(const struct row_list *rows);

/* Returns the place of a process among the waiters, or 0 if it does not wait. *waiters is the
 * number of waiters. */
uint32_t holder_text_place(const struct row_list *rows, int64_t pid, size_t *waiters);
