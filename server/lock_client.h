/* lock_client.h - a client of the library whose events are fed into the loop. */
#pragma once
#include "holdfast.h"
#include "workers.h"
#include <event2/event.h>

struct lock_client;

/* Returns 0, or an exit code after a message. `log` may be NULL. */
int lock_client_open(struct event_base *base, const char *url, hf_log_fn *log, void *arg,
                     struct lock_client **engine);
hf_client *lock_client_client(const struct lock_client *engine);

/* Runs a job that queries this engine about one lease or name: on a worker, or at once if the
 * engine answers at once. */
void lock_client_do(const struct lock_client *engine, struct workers *workers, struct job *job);
/* Call this after starting a call of the library: an engine that answers at once may have the
 * outcome already, and its callback then runs before the loop waits. */
void lock_client_started(const struct lock_client *engine);
/* Requests that the loop starts between these two are sent together. */
void lock_client_batch(const struct lock_client *engine);
void lock_client_flush(const struct lock_client *engine);
void lock_client_close(struct lock_client *engine);
