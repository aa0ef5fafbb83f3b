/* main.c - the command `holdfast`: finds the verb, reads its options by its table, and hands on. */
#include "text.h"
#include "verbs.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOSE_ENOUGH 2 /* edits between a word and the verb that we suggest instead */

/* A descriptor below 3 that the caller left closed would be given to the next thing that we open. The stand-in cannot
 * be used in the direction that matters, so that a closed stdout still is an error, and it does not survive an exec, so
 * that a command finds closed what was closed. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd)
            exit(EXIT_INTERNAL);
    }
}

static int print_global_help(void)
{
    printf("usage: holdfast [-u URL] VERB [options] [arguments]\n\n"
           "Locks, semaphores and leases that other processes and other machines respect.\n\nverbs:\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            printf("  %-10s  %s\n", VERBS[i]->name, VERBS[i]->summary);
    printf("\noptions:\n");
    options_print(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    printf("\n`holdfast VERB --help` says more about a verb.\n");
    return finish_stdout();
}

static int print_verb_help(const struct verb *verb)
{
    printf("usage: holdfast [-u URL] %s [options]%s%s\n\n%s\n\noptions:\n", verb->name, *verb->operands ? " " : "",
           verb->operands, verb->summary);
    options_print(verb->options, verb->option_count);
    if (*verb->details)
        printf("\n%s", verb->details);
    return finish_stdout();
}

static const struct verb *find_verb(const char *word)
{
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
    struct shown shown = text_shown(word);
    if (closest)
        complain("unknown verb \"%s\"; did you mean %s?", shown.text, closest->name);
    else
        complain("unknown verb \"%s\"; holdfast --help lists them", shown.text);
    return NULL;
}

/* Who lists processes reads our command line: user and password in a URL are taken out of it at once. */
static int hide_password(struct cli_options *options)
{
    static char *kept; /* until the end */
    char *shown = (char *)(uintptr_t)options->url;
    char *from = shown ? strstr(shown, "//") : NULL, *to = from ? strrchr(from, '@') : NULL;
    if (!to || shown == kept)
        return 0;
    free(kept);
    kept = strdup(shown);
    if (!kept) {
        complain("no memory");
        return EXIT_INTERNAL;
    }
    options->url = kept;
    memset(from + 2, '*', (size_t)(to - from) - 2);
    return 0;
}

static int do_verb(const struct verb *verb, struct arguments *arguments, struct cli_options *options)
{
    if (options_parse(verb->options, verb->option_count, verb->stops_at_operand, arguments, options) != 0)
        return EXIT_USAGE;
    if (hide_password(options) != 0)
        return EXIT_INTERNAL;
    return options->help ? print_verb_help(verb) : verb->run(options, arguments->count, arguments->all);
}

int main(int argc, char **argv)
{
    struct cli_options options = CLI_OPTIONS_NONE;
    struct arguments arguments = {argc > 0 ? argc - 1 : 0, argc > 0 ? argv + 1 : argv};
    fill_standard_descriptors();
    if (options_parse(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT, true, &arguments, &options) != 0)
        return EXIT_USAGE;
    if (hide_password(&options) != 0)
        return EXIT_INTERNAL;
    if (options.help)
        return print_global_help();
    if (options.version)
        return VERB_VERSION.run(&options, 0, argv);
    if (arguments.count == 0) {
        complain("no verb given; holdfast --help lists them");
        return EXIT_USAGE;
    }
    const struct verb *verb = find_verb(arguments.all[0]);
    if (!verb)
        return EXIT_USAGE;
    arguments.all++;
    arguments.count--;
    return do_verb(verb, &arguments, &options);
}
