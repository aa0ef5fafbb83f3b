/* deadlock.h - finds circles of holders that wait for each other. Pure: no engine, no clock.
 *
 * A holder that waits for nothing can release. A holder that waits can release once its wait can be
 * granted. A waiter can be granted once its lock can be freed: a semaphore if one of its holders
 * can release, any other lock if all of them can. What these rules do not reach is a deadlock, or
 * waits for one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One holder or one waiter. */
struct wait_entry {
    const char *name; /* name of the lock */
    bool holds;       /* it holds; false: it waits */
    bool semaphore;
    uint64_t token;     /* holder: its token */
    const char *client; /* equal for all holds and waits of one client; NULL: unknown */
};

/* A circle: the holder of names[i] waits for names[i + 1], that of the last one for names[0]. */
typedef void deadlock_circle_fn(void *arg, const struct wait_entry *const *holders, size_t count);
/* Called if the holder entries[i] waits for the lock `name`. */
typedef void deadlock_edge_fn(void *arg, size_t holder, const char *name);

struct deadlock_report {
    deadlock_edge_fn *edge;
    /* called for each circle, beginning with its smallest name */
    deadlock_circle_fn *circle;
    void *arg;
};

/* Finds deadlocks. Entries of one name must be adjacent. A client that waits more than once at a
 * time has several threads, so nothing is claimed of its holds. A wait for a lock that the same
 * client holds is not counted either, because another thread may hold it. Returns false without
 * memory. */
bool deadlock_find(const struct wait_entry *entries, size_t count,
                   const struct deadlock_report *report);
