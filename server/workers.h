/* workers.h - threads for the calls that wait for the engine, so that the loop never does. */
#pragma once
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

struct job {
    void (*work)(struct job *job); /* on a worker */
    void (*done)(struct job *job); /* afterwards on the loop; the job is its to free */
    struct job *next;
};

struct workers;
struct workers *workers_start(struct event_base *base, size_t count); /* NULL: errno */
void workers_post(struct workers *workers, struct job *job);
/* The same for work that takes no time: it is done here and now. `done` runs afterwards all the same. */
void workers_do(struct workers *workers, struct job *job);
size_t workers_pending(const struct workers *workers); /* posted and not done yet; on the loop */
void workers_stop(struct workers *workers);            /* after what was posted is done */
