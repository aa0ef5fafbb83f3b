/* version.c - the verb `version`: prints the version, the engines that are built in, and the C
 * library. */
#include "output.h"
#include "verbs.h"
#include <gnu/libc-version.h>
#include <string.h>

#ifdef WITH_SERVE
#define HAS_SERVE true
#else
#define HAS_SERVE false
#endif

static const struct option_spec OPTIONS[] = {OPTION_JSON, OPTION_HELP};

/* Splits the first line of hf_engines_left_out(), which is ENGINE: REASON. Returns the lines after
 * it. */
static const char *read_left_out(const char *lines, char engine[32], char why[192])
{
    size_t len = strcspn(lines, "\n"), name = strcspn(lines, ":");
    snprintf(engine, 32, "%.*s", (int)name, lines);
    snprintf(why, 192, "%.*s", (int)(len - name - 2), lines + name + 2);
    return lines + len + 1;
}

static void print_json_left_out(const char *lines)
{
    char engine[32], why[192];

    for (const char *comma = ""; *lines; comma = ",") {
        lines = read_left_out(lines, engine, why);
        printf("%s{\"engine\":", comma);
        json_print_text(stdout, engine);
        printf(",\"why\":");
        json_print_text(stdout, why);
        printf("}");
    }
}

static void print_json(const char *libc)
{
    const char *engines = hf_engines();

    printf("{\"version\":");
    json_print_text(stdout, hf_version());
    printf(",\"engines\":[");

    for (const char *comma = ""; *engines; comma = ",") {
        size_t len = strcspn(engines, " ");
        printf("%s\"%.*s\"", comma, (int)len, engines);
        engines += len + strspn(engines + len, " ");
    }

    printf("],\"leftOut\":[");
    print_json_left_out(hf_engines_left_out());
    printf("],\"libc\":");
    json_print_text(stdout, libc);
    printf(",\"serve\":%s}\n", HAS_SERVE ? "true" : "false");
}

static void print_text(const char *libc)
{
    char engine[32], why[192];
    printf("holdfast %s\nengines: %s\n", hf_version(), hf_engines());

    for (const char *lines = hf_engines_left_out(); *lines;) {
        lines = read_left_out(lines, engine, why);
        printf("left out: %s: %s\n", engine, why);
    }
    printf("libc: %s\nserve: %s\n", libc, HAS_SERVE ? "yes" : "no");
}

static int run_version(const struct cli_options *options, int argc, char **argv)
{
    char libc[64];
    int code = check_operands(&VERB_VERSION, argc, argv, 0, 0);

    if (code != 0)
        return code;
    snprintf(libc, sizeof libc, "glibc %s", gnu_get_libc_version());
    if (options->json)
        print_json(libc);
    else
        print_text(libc);
    return finish_stdout();
}

const struct verb VERB_VERSION = {
    .name = "version",
    .operands = "",
    .summary = "Prints the version and the engines that are built in.",
    .details =
        "Engines that this build was made without are named with the reason.\n"
        "With --json: one object with the keys version, engines (an array), leftOut (an array of\n"
        "objects with engine and why), libc and serve.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_version,
};
