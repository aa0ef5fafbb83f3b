/* main.c - the command `holdfast`: finds the verb, reads its options by its table, and hands on. */
#include "help.h"
#include "output.h"
#include "verbs.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a stand-in for each descriptor below 3 that the caller left closed. Otherwise the next open
 * file would get that number. The stand-in for stdout is read-only and the one for stdin
 * write-only, so that their use is still an error. A stand-in is closed by exec, so that a command
 * finds the descriptor closed. */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd)
            exit(EXIT_INTERNAL);
    }
}

/* Overwrites user and password of the URL in argv, because everybody who lists processes can
 * read the command line. */
static int hide_password(struct cli_options *options)
{
    static char *kept; /* kept until the process ends */
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

static int do_verb(const struct verb *verb, struct arguments *arguments,
                   struct cli_options *options)
{
    if (options_parse(verb->options, verb->option_count, verb->stops_at_operand, arguments,
                      options) != 0)
        return EXIT_USAGE;
    if (hide_password(options) != 0)
        return EXIT_INTERNAL;
    return options->help ? help_print_verb(verb)
                         : verb->run(options, arguments->count, arguments->all);
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
        return help_print_all();
    if (options.version)
        return VERB_VERSION.run(&options, 0, argv);
    if (arguments.count == 0) {
        complain("no verb given; holdfast --help lists them");
        return EXIT_USAGE;
    }

    const struct verb *verb = help_find_verb(arguments.all[0]);
    if (!verb)
        return EXIT_USAGE;

    arguments.all++;
    arguments.count--;

    return do_verb(verb, &arguments, &options);
}
