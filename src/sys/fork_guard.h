/* fork_guard.h - tells whether this process made a handle, or a forked child has a copy of it. The
 * kernel clears the page in a child, so a check is one load; getpid() would be a system call. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct fork_guard {
    volatile uint32_t *page;
};

int fork_guard_set(struct fork_guard *mark); /* 0 or an errno */
void fork_guard_clear(struct fork_guard *mark);

static inline bool fork_guard_ours(const struct fork_guard *mark)
{
    return *mark->page != 0;
}
