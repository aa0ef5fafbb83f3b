/* help.c - the verb `help`: lists the verbs or describes one, and suggests a verb for an unknown
 * word. */
#include "help.h"
#include "output.h"
#include "verbs.h"
#include <string.h>

#define CLOSE_ENOUGH 2 /* most edits between a word and the verb that is suggested */

int help_print_all(void)
{
    printf("usage: holdfast [-u URL] VERB [options] [arguments]\n\nLocks, semaphores and leases "
           "that other processes and other machines respect.\n\nverbs:\n");

    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            printf("  %-10s  %s\n", VERBS[i]->name, VERBS[i]->summary);

    printf("\noptions:\n");
    options_print(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    printf("\n`holdfast help VERB` says more about a verb.\n");
    return finish_stdout();
}

int help_print_verb(const struct verb *verb)
{
    printf("usage: holdfast [-u URL] %s [options]%s%s\n\n%s\n\noptions:\n", verb->name,
           *verb->operands ? " " : "", verb->operands, verb->summary);
    options_print(verb->options, verb->option_count);
    if (*verb->details)
        printf("\n%s", verb->details);
    return finish_stdout();
}

/* Words that other tools use, and the verbs for them here. */
static const struct hint {
    const char *word, *advice;
} HINTS[] = {
    {"lock", "`run NAME -- CMD` holds a lock for a command, `acquire NAME` for a script"},
    {"unlock", "`release` releases what `acquire` printed; `run` releases by itself"},
    {"status", "`show NAME` prints the state of one lock, `list` of all, `doctor` of the engine"},
    {"ps", "`list` prints all holders and waiters"},
    {"kill", "`break NAME --token N --reason TEXT` revokes a hold"},
};

static const char *find_hint(const char *word)
{
    for (size_t i = 0; i < sizeof HINTS / sizeof HINTS[0]; i++)
        if (strcmp(word, HINTS[i].word) == 0)
            return HINTS[i].advice;
    return NULL;
}

const struct verb *help_find_verb(const char *word)
{
    const char *hint = find_hint(word);
    const struct verb *closest = NULL;
    size_t best = CLOSE_ENOUGH + 1;

    for (size_t i = 0; i < VERB_COUNT; i++) {
        size_t distance = words_distance(word, VERBS[i]->name);
        if (distance == 0)
            return VERBS[i];
        if (distance < best && !VERBS[i]->hidden) {
            best = distance;
            closest = VERBS[i];
        }
    }

    struct shown shown = output_shown(word);
    if (hint)
        complain("unknown verb \"%s\"; %s", shown.text, hint);
    else if (closest)
        complain("unknown verb \"%s\"; did you mean %s?", shown.text, closest->name);
    else
        complain("unknown verb \"%s\"; holdfast --help lists them", shown.text);

    return NULL;
}

static const struct option_spec OPTIONS[] = {OPTION_HELP};

static int run_help(const struct cli_options *options, int argc, char **argv)
{
    (void)options;
    int code = check_operands(&VERB_HELP, argc, argv, 0, 1);
    if (code != 0)
        return code;
    if (argc == 0)
        return help_print_all();

    const struct verb *verb = help_find_verb(argv[0]);
    return verb ? help_print_verb(verb) : EXIT_USAGE;
}

const struct verb VERB_HELP = {
    .name = "help",
    .operands = "[VERB]",
    .summary = "Lists the verbs, or says more about one of them.",
    .details = "`holdfast help VERB` prints the same as `holdfast VERB --help`.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_help,
};
