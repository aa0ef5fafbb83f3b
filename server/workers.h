/* workers.h - threads for calls that wait for the engine, so that the loop never blocks. */
#pragma once
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

struct job {
    void (*work)(struct job *job); /* runs on a worker */
    void (*done)(struct job *job); /* runs afterwards on the loop and frees the job */
    struct job *next;
};

struct workers;
/* Returns NULL on failure. */
struct workers *workers_start(struct event_base *base, size_t count);
void workers_post(struct workers *workers, struct job *job);
/* As workers_post(), for work that does not block: it runs at once. `done` still runs later, from
 * the loop. */
void workers_do(struct workers *workers, struct job *job);
/* Returns the number of jobs posted and not done; on the loop. */
size_t workers_pending(const struct workers *workers);
void workers_stop(struct workers *workers); /* Call it after all posted jobs are done. */
