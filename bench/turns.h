/* turns.h - processes that take turns under one lock, whatever the lock is: how many turns, how
 * fair, how long from the beginning of a release to the next turn, and what each turn cost the
 * server. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct turns {
    void (*open)(int worker); /* in the worker's process: connects, makes a session */
    bool (*take)(void);       /* false: the time is over, and the worker has no turn */
    void (*give)(void);
    uint64_t (*writes)(void); /* number of writes that the server has made so far */
};

/* Runs the workers, and prints a line: "WAY workers=N hold_us=N per_s=N writes=N ...". Each worker
 * has one turn before the measurement, so that its session is not counted. */
void turns_run(const char *way, const struct turns *turns, int workers, double seconds,
               int64_t hold_us);
bool turns_are_over(void);
/* Returns memory that the workers share. */
void *turns_shared(unsigned long size);

int64_t turns_now(void); /* in nanoseconds */
_Noreturn void turns_fail(const char *what, const char *why);

int turns_connect(int port);
/* Asks on a connection of its own, by HTTP/1.0 so that nothing comes in chunks, and returns the
 * whole answer. */
const char *turns_http_get(int port, const char *path);
