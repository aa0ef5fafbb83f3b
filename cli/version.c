/* version.c - the verb `version`: which Holdfast this is, which engines are in it, on which C library it runs. */
#include "text.h"
#include "verbs.h"
#include <gnu/libc-version.h>
#include <string.h>

#ifdef HF_SERVE
#define HAS_SERVE true
#else
#define HAS_SERVE false
#endif

static const struct option_spec OPTIONS[] = {OPTION_JSON, OPTION_HELP};

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
    printf("],\"libc\":");
    json_print_text(stdout, libc);
    printf(",\"serve\":%s}\n", HAS_SERVE ? "true" : "false");
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
        printf("holdfast %s\nengines: %s\nlibc: %s\nserve: %s\n", hf_version(), hf_engines(), libc,
               HAS_SERVE ? "yes" : "no");
    return finish_stdout();
}

const struct verb VERB_VERSION = {
    .name = "version",
    .operands = "",
    .summary = "Says which version this is and which engines are built in.",
    .details = "With --json: one object with the keys version, engines (an array), libc and serve.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_version,
};
