/* crew.h - workers in processes of their own that use one lock: what is measured of every kind of lock alike. A worker
 * alone is the uncontended case. */
#pragma once
#include "measure.h"

/* A kind of lock is four functions. They are called in the worker's process; what goes wrong there ends it with a
 * message and a status that is not 0. */
struct lock_kind {
    const char *who, *engine;
    void *(*open)(const struct bench *b, int worker); /* workers count from 0; what it returns goes to the others */
    void (*take)(void *lock);                         /* waits for its turn */
    void (*give)(void *lock);
    void (*close)(void *lock);
    double (*commands)(const struct bench *b); /* that clients have sent to the server so far; NULL: there is none */
    int holders;                               /* how many may hold at once; 0: one */
};

/* b->workers of them take and give for b->seconds, each holds for b->section_ms. Returns 0, or with what status the
 * first worker ended that failed. */
int crew_run(const struct bench *b, const struct lock_kind *kind, struct result *result);

/* The same with two workers; a hand-over counts where the other one already waited for long when the lock was given. */
int crew_hand_over(const struct bench *b, const struct lock_kind *kind, struct result *result);

void *share(size_t size); /* zeroed memory, common to this process and those it starts from now on */
