/* verbs.c - the table of verbs, which help, completion and description read, and code that all
 * verbs share.
 *
 * Adding a verb: one file with a `struct verb`, its name in verbs.h, one line in VERBS. */
#include "verbs.h"
#include "output.h"

const struct verb *const VERBS[] = {
    &VERB_RUN,        &VERB_ACQUIRE, &VERB_EXTEND,  &VERB_RELEASE,  &VERB_LIST,   &VERB_SHOW,
    &VERB_WHY,        &VERB_TOP,     &VERB_WATCH,   &VERB_HISTORY,  &VERB_BREAK,  &VERB_RESIZE,
    &VERB_FENCE,      &VERB_EXPLAIN, &VERB_DOCTOR,  &VERB_BENCH,    &VERB_ADVISE,
#ifdef WITH_SERVE
    &VERB_SERVE,
#endif
    &VERB_COMPLETION, &VERB_HELP,    &VERB_VERSION, &VERB_DESCRIBE,
};
const size_t VERB_COUNT = sizeof VERBS / sizeof VERBS[0];

const struct option_spec GLOBAL_OPTIONS[] = {
    OPTION_URL,
    OPTION_HELP,
    {"version", 'V', NULL, STORE_CONSTANT, OPTION_FIELD(version), 1, 1, "show the version"},
};
const size_t GLOBAL_OPTION_COUNT = sizeof GLOBAL_OPTIONS / sizeof GLOBAL_OPTIONS[0];

int fail_with(hf_status status)
{
    const char *words = hf_error_text();
    complain("%s", *words ? words : hf_status_text(status));
    return hf_status_exit_code(status);
}

int check_operands(const struct verb *verb, int argc, char **argv, int least, int most)
{
    if (argc > most && most == 0)
        complain("%s takes no arguments: \"%s\"", verb->name, output_shown(argv[0]).text);
    else if (argc > most)
        complain("%s takes %s: \"%s\" is one argument too many", verb->name, verb->operands,
                 output_shown(argv[most]).text);
    else if (argc < least)
        complain("%s needs %s", verb->name, verb->operands);
    else
        return 0;
    return EXIT_USAGE;
}
