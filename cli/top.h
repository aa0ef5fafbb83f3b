/* top.h - the live view of `top`, and of `watch` on a terminal. */
#pragma once
#include "options.h"

/* Shows names that begin with `prefix` (NULL: all) until q or a signal. `verb` is the verb that the
 * user typed. Returns the exit code. */
int top_run(hf_client *client, const char *verb, const char *prefix, int64_t order);
