/* glance.h - who holds a name, asked on a thread of its own: a server that says nothing must hold up neither a deadline
 * nor a signal. */
#pragma once
#include "rows.h"
#include <semaphore.h>
#include <stdatomic.h>

struct glance {
    struct rows rows; /* what was seen, if status is HF_OK; else words say why nothing was */
    hf_status status;
    char words[320];
    hf_client *client;
    const char *name;
    int bell;
    bool over;
    sem_t seen;
    atomic_bool left; /* one of the two has left: the other one cleans up */
};

/* The bell is rung when it is over; the name must last as long. NULL: there is no memory or no thread to be had. */
struct glance *glance_begin(hf_client *client, const char *name, int bell);

/* Is it over, or will it be within that time? */
bool glance_over(struct glance *glance, int64_t within_ms);

/* Done with it; NULL is none. One that is not over goes on by itself. */
void glance_end(struct glance *glance);

/* Is any still inside the library? Closing would wait for it. */
bool glance_pending(void);
