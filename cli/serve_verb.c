/* serve_verb.c - the verb `serve`: takes its options from the service's own table of settings. */
#include "output.h"
#include "serve.h"
#include "verbs.h"
#include <string.h>

static const struct option_spec OPTIONS[] = {
#define SERVE_SETTING(id, name, argument, kind, low, high, standard, help)                         \
    {name, 0, argument, STORE_VALUE, OPTION_FIELD(given), 0, 0, help},
#include "serve_settings.def"
#undef SERVE_SETTING
    {"config", 0, "FILE", STORE_TEXT, OPTION_FIELD(config), 0, 0,
     "read settings from FILE, a \"name = value\" a line"},
    {"print-config", 0, NULL, STORE_CONSTANT, OPTION_FIELD(print_config), 1, 1,
     "print the settings in force, and end"},
    OPTION_URL,
    {"json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1,
     "log in JSON; with --print-config: print JSON"},
    OPTION_HELP,
};

static int run_serve(const struct cli_options *options, int argc, char **argv)
{
    struct serve_flag flags[OPTION_VALUES_MAX];
    int code = check_operands(&VERB_SERVE, argc, argv, 0, 0);

    if (code != 0)
        return code;
    for (size_t i = 0; i < options->given.count; i++)
        flags[i] = (struct serve_flag){options->given.names[i], options->given.texts[i]};

    struct serve_order order = {.url = options->url,
                                .config = options->config,
                                .print_config = options->print_config != 0,
                                .json = options->json != 0,
                                .flags = flags,
                                .flag_count = options->given.count};
    code = serve_run(&order);

    int printed = finish_stdout();
    return code != 0 ? code : printed;
}

const struct verb VERB_SERVE = {
    .name = "serve",
    .operands = "",
    .summary =
        "Serves leases over HTTP, with metrics and a page that shows who holds and who waits.",
    .details =
        "It listens on 127.0.0.1:3009. An address that others can reach needs --token-file or\n"
        "--tls-client-ca.\n"
        "\n"
        "    holdfast serve &\n"
        "    curl -sX POST localhost:3009/v1/locks/job/leases --json "
        "'{\"ttlMs\":30000,\"waitMs\":5000}'\n"
        "\n"
        "Each setting may also stand in the --config FILE as \"name = value\", and in the "
        "environment as\n"
        "HOLDFAST_SERVE_NAME. A flag beats the environment, which beats the file.\n"
        "A line of the token file is: sha256:HEX RIGHTS PREFIX NAME, where RIGHTS are some of\n"
        "read,acquire,break and PREFIX is what the names must begin with; * is all.\n"
        "SIGTERM: no new grants, waiting requests get 503, leases with autoRenew are released, "
        "exit code 0.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_serve,
};
