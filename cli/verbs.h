/* verbs.h - the verbs of the command, one table entry each; main.c lists them. */
#pragma once
#include "options.h"

extern const struct verb VERB_RUN, VERB_LIST, VERB_SHOW, VERB_VERSION;

/* Says what a call of the library had to say and answers with the exit code for it. */
int fail_with(hf_status status);
