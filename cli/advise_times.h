/* advise_times.h - which times follow from hold times that were measured. */
#pragma once
#include "options.h"

/* Both print what follows and answer with an exit code. */
int advise_from_history(const struct cli_options *options);
int advise_from_metrics(const struct cli_options *options);
