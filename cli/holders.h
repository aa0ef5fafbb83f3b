/* holders.h - says in words who holds a name. */
#pragma once
#include "rows.h"
#include "text.h"

struct holders_text {
    char text[1024];
};

/* `"job" is held by pid 123 on HOST (label) for 3.2 s, 26 s left`, on a quorum `, on 3 of 5 servers`, and how many more
 * there are; `"job" is not held`. */
struct holders_text holders_describe(const char *name, const struct rows *rows);

/* Is this process among the holders? Then the server has granted what this process does not know yet. */
bool holders_include_us(const struct rows *rows);

/* The place of a process among the waiters, 0 if it does not wait; *waiters is how many there are. */
uint32_t holders_place(const struct rows *rows, int64_t pid, size_t *waiters);
