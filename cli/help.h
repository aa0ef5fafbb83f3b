/* help.h - the texts of --help, and the search for a verb. */
#pragma once
#include "options.h"

/* Both print to stdout and return an exit code. */
int help_print_all(void);
int help_print_verb(const struct verb *verb);

/* Returns the verb of that name, or NULL after a message with a suggestion. */
const struct verb *help_find_verb(const char *word);
