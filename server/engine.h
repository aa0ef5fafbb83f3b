/* engine.h - a client of the library whose events are fed into the loop. */
#pragma once
#include "holdfast.h"
#include <event2/event.h>

struct engine;

/* 0, or an exit code after a message. `log` may be NULL. */
int engine_open(struct event_base *base, const char *url, hf_log_fn *log, void *arg, struct engine **engine);
hf_client *engine_client(const struct engine *engine);
void engine_close(struct engine *engine);
