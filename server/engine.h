/* engine.h - a client of the library whose events are fed into the loop. */
#pragma once
#include "holdfast.h"
#include "workers.h"
#include <event2/event.h>

struct engine;

/* 0, or an exit code after a message. `log` may be NULL. */
int engine_open(struct event_base *base, const char *url, hf_log_fn *log, void *arg, struct engine **engine);
hf_client *engine_client(const struct engine *engine);

/* Does a job that asks this engine about one lease or name: on a worker, unless the engine answers at once. */
void engine_ask(const struct engine *engine, struct workers *workers, struct job *job);
/* Something was started that may have its outcome already: its callback runs soon, before anything else is waited for.
 */
void engine_started(const struct engine *engine);
void engine_close(struct engine *engine);
