/* oversee.c - the verbs `break` and `resize`: what an operator may do to a lock that others hold. */
#include "log.h"
#include "session.h"
#include "text.h"
#include "verbs.h"
#include <inttypes.h>

static const struct option_spec BREAK_OPTIONS[] = {
    {"token", 0, "N", STORE_NUMBER, OPTION_FIELD(token), 1, INT64_MAX, "the token of the hold, as `show` tells it"},
    {"reason", 0, "TEXT", STORE_TEXT, OPTION_FIELD(reason), 0, 0, "why; it stands in the log"},
    {"log", 0, "FILE", STORE_TEXT, OPTION_FIELD(log), 0, 0, "append what was done to FILE, as a line of JSON"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};
static const struct option_spec RESIZE_OPTIONS[] = {
    {"capacity", 0, "N", STORE_NUMBER, OPTION_FIELD(capacity), 1, HF_CAPACITY_MAX, "the new capacity"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

static int check_break(const struct cli_options *options)
{
    if (options->token == 0)
        complain("break needs --token: it proves that you saw who holds it (holdfast show NAME)");
    else if (!options->reason || !*options->reason)
        complain("break needs --reason");
    else
        return 0;
    return EXIT_USAGE;
}

static void on_log(void *fd, const struct hf_log_event *event)
{
    log_write(*(int *)fd, event);
}

static int do_break(const struct cli_options *options, hf_client *client, const char *name)
{
    hf_status status = hf_break(client, name, (uint64_t)options->token, options->reason);
    if (status != HF_OK)
        return fail_with(status);
    if (options->json) {
        printf("{\"name\":");
        json_print_text(stdout, name);
        printf(",\"token\":%" PRId64 ",\"reason\":", options->token);
        json_print_text(stdout, options->reason);
        printf("}\n");
    }
    return finish_stdout();
}

static int run_break(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    struct hf_client_options how = {.size = sizeof how};
    int log_fd = -1;
    int code = check_operands(&VERB_BREAK, argc, argv, 1, 1);
    if (code == 0)
        code = check_break(options);
    if (code == 0 && options->log && (log_fd = log_open(options->log)) < 0)
        code = hf_status_exit_code(HF_CONFIG);
    if (log_fd >= 0) {
        how.on_log = on_log;
        how.log_arg = &log_fd;
    }
    if (code == 0)
        code = session_open(options, &how, &client);
    return code == 0 ? session_close(client, do_break(options, client, argv[0])) : code;
}

static int run_resize(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    int code = check_operands(&VERB_RESIZE, argc, argv, 1, 1);
    if (code == 0 && options->capacity == 0) {
        complain("resize needs --capacity");
        code = EXIT_USAGE;
    }
    if (code == 0)
        code = session_open(options, NULL, &client);
    if (code != 0)
        return code;
    hf_status status = hf_resize(client, argv[0], (uint32_t)options->capacity);
    if (status != HF_OK)
        return session_close(client, fail_with(status));
    if (options->json) {
        printf("{\"name\":");
        json_print_text(stdout, argv[0]);
        printf(",\"capacity\":%" PRId64 "}\n", options->capacity);
    }
    return session_close(client, finish_stdout());
}

const struct verb VERB_BREAK = {
    .name = "break",
    .operands = "NAME",
    .summary = "Takes a hold away from who has it; the token proves that you saw who that is.",
    .details =
        "The holder learns that its lease is lost, and `run` stops its command. --token and --reason are required.\n"
        "Exit code 79: nobody holds NAME with that token.\n"
        "With --json: one object with the keys name, token and reason.\n",
    .options = BREAK_OPTIONS,
    .option_count = sizeof BREAK_OPTIONS / sizeof BREAK_OPTIONS[0],
    .run = run_break,
};

const struct verb VERB_RESIZE = {
    .name = "resize",
    .operands = "NAME",
    .summary = "Changes the capacity of a semaphore that is in use, for all who use it.",
    .details = "Shrinking takes nothing away: it takes effect as units come back. --capacity is required.\n"
               "Exit codes: 79 nobody holds NAME or waits for it; 78 it is not a semaphore.\n"
               "With --json: one object with the keys name and capacity.\n",
    .options = RESIZE_OPTIONS,
    .option_count = sizeof RESIZE_OPTIONS / sizeof RESIZE_OPTIONS[0],
    .run = run_resize,
};
