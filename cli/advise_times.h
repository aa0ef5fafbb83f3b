/* advise_times.h - suggests ttl and max_hold from measured hold times. */
#pragma once
#include "options.h"

/* Both print the suggestion and return an exit code. */
int advise_from_history(const struct cli_options *options);
int advise_from_metrics(const struct cli_options *options);
