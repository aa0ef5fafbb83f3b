/* workload.h - worker processes that use one lock. Every kind of lock is measured the same way. One
 * worker alone is the uncontended case. */
#pragma once
#include "measure.h"

/* A kind of lock is four functions. They are called in the worker's process, and end it with a
 * message and a non-zero status if they fail. */
struct lock_kind {
    const char *who, *engine;
    void *(*open)(const struct bench *b, int worker); /* worker: from 0; returns `lock` */
    void (*take)(void *lock);                         /* waits until it holds the lock */
    void (*give)(void *lock);
    void (*close)(void *lock);
    double (*commands)(const struct bench *b); /* number sent so far; NULL: there is no server */
    int holders; /* number of workers that may hold at the same time; 0 means 1 */
};

/* Runs b->workers workers that acquire and release for b->seconds; each holds for b->section_ms.
 * Returns 0, or the exit status of the first worker that failed. */
int workload_run(const struct bench *b, const struct lock_kind *kind, struct result *result);

/* As workload_run(), with two workers. A handoff counts only if the other worker had already waited
 * for a while when the lock was released. */
int workload_handoff(const struct bench *b, const struct lock_kind *kind, struct result *result);

void *share(size_t size); /* zeroed memory, shared with the processes that are started later */
