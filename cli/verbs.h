/* verbs.h - the verbs of the command: one table entry each, and the table. */
#pragma once
#include "options.h"

extern const struct verb VERB_RUN, VERB_ACQUIRE, VERB_EXTEND, VERB_RELEASE, VERB_LIST, VERB_SHOW,
    VERB_WATCH, VERB_TOP, VERB_HISTORY, VERB_BREAK, VERB_RESIZE, VERB_FENCE, VERB_EXPLAIN,
    VERB_DOCTOR, VERB_WHY, VERB_HELP, VERB_BENCH, VERB_ADVISE, VERB_SERVE, VERB_COMPLETION,
    VERB_VERSION, VERB_DESCRIBE;

extern const struct verb *const VERBS[]; /* all verbs, in the order of the help */
extern const size_t VERB_COUNT;

/* The options that may come before the verb. */
extern const struct option_spec GLOBAL_OPTIONS[];
extern const size_t GLOBAL_OPTION_COUNT;

/* Prints the library's error message and returns the exit code of the status. */
int fail_with(hf_status status);

/* Checks the number of operands of a verb. Returns 0, or 64 after a message. */
int check_operands(const struct verb *verb, int argc, char **argv, int least, int most);
