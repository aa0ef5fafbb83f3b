/* live.h - the live view of `watch` on a terminal. */
#pragma once
#include "holdfast.h"

/* Shows names that begin with `prefix` (NULL: all) until q or a signal; answers with the exit code. */
int live_view(hf_client *client, const char *prefix);
