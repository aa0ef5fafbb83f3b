/* describe.c - the hidden verb `__describe`: prints all verbs and options as JSON, straight from
 * the tables. Tests compare man pages, completion and help with it. */
#include "output.h"
#include "verbs.h"
#include <string.h>

static const struct option_spec OPTIONS[] = {OPTION_JSON, OPTION_HELP};

static void print_choice(void *arg, const char *word, size_t len)
{
    bool *first = arg;
    printf("%s\"%.*s\"", *first ? "" : ",", (int)len, word);
    *first = false;
}

static void print_option(const struct option_spec *spec)
{
    char letter[2] = {spec->letter, 0};
    bool first = true;

    printf("{\"name\":\"%s\",\"letter\":", spec->name);
    spec->letter ? json_print_text(stdout, letter) : (void)fputs("null", stdout);
    printf(",\"argument\":");
    spec->argument ? json_print_text(stdout, spec->argument) : (void)fputs("null", stdout);
    printf(",\"choices\":[");
    choices_each(spec->argument, print_choice, &first);
    printf("],\"help\":");
    json_print_text(stdout, spec->help);
    printf("}");
}

static void print_options(const struct option_spec *specs, size_t count)
{
    printf("\"options\":[");
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ",\n    " : "\n    ", stdout);
        print_option(&specs[i]);
    }

    printf("]");
}

static void print_verb(const struct verb *verb)
{
    printf("{\"name\":\"%s\",\"operands\":", verb->name);
    json_print_text(stdout, verb->operands);
    printf(",\"summary\":");
    json_print_text(stdout, verb->summary);
    printf(",\"details\":");
    json_print_text(stdout, verb->details);
    printf(",\n  ");
    print_options(verb->options, verb->option_count);
    printf("}");
}

static int run_describe(const struct cli_options *options, int argc, char **argv)
{
    const char *comma = "";

    (void)options;
    int code = check_operands(&VERB_DESCRIBE, argc, argv, 0, 0);
    if (code != 0)
        return code;

    printf("{\"name\":\"holdfast\",");
    print_options(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    printf(",\n\"verbs\":[");

    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (VERBS[i]->hidden)
            continue;
        printf("%s\n  ", comma);
        print_verb(VERBS[i]);
        comma = ",";
    }

    printf("]}\n");
    return finish_stdout();
}

const struct verb VERB_DESCRIBE = {
    .name = "__describe",
    .operands = "",
    .summary = "Prints all verbs and their options as JSON.",
    .details = "",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .hidden = true,
    .run = run_describe,
};
