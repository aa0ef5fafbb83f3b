/* break_resize.c - the verbs `break` and `resize`: an operator changes a lock that others hold. */
#include "json_log.h"
#include "output.h"
#include "verb_client.h"
#include "verbs.h"
#include <inttypes.h>

static const struct option_spec BREAK_OPTIONS[] = {
    {"token", 0, "N", STORE_NUMBER, OPTION_FIELD(token), 1, INT64_MAX,
     "the token of the hold, as `show` prints it"},
    {"reason", 0, "TEXT", STORE_TEXT, OPTION_FIELD(reason), 0, 0, "why; it is written to the log"},
    OPTIONS_LOG,
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};
static const struct option_spec RESIZE_OPTIONS[] = {
    {"capacity", 0, "N", STORE_NUMBER, OPTION_FIELD(capacity), 1, HF_CAPACITY_MAX,
     "the new capacity"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

static int check_break(const struct cli_options *options)
{
    if (options->token == 0)
        complain("break needs --token, which proves that you saw the holder; holdfast show NAME "
                 "prints it");
    else if (!options->reason || !*options->reason)
        complain("break needs --reason");
    else
        return 0;
    return EXIT_USAGE;
}

/* The hold that is to be revoked, as the engine showed it before. */
struct victim {
    uint64_t token;
    bool known;
    int64_t pid, since_ms;
    struct shown host, label;
};

static void find_victim(void *arg, const struct hf_row *row)
{
    struct victim *victim = arg;
    if (row->role != HF_HOLDER || row->token != victim->token)
        return;
    victim->known = true;
    victim->pid = row->pid;
    victim->since_ms = row->since_ms;
    victim->host = output_shown(row->host);
    victim->label = output_shown(row->label);
}

static void print_broken(const char *name, const struct victim *victim)
{
    printf("revoked \"%s\", token %" PRIu64, output_shown(name).text, victim->token);
    if (victim->known)
        printf(": pid %" PRId64 "%s%s%s%s%s had held it for %s", victim->pid,
               *victim->host.text ? " on " : "", victim->host.text, *victim->label.text ? " (" : "",
               victim->label.text, *victim->label.text ? ")" : "",
               text_duration(victim->since_ms).text);
    printf("\n");
}

static void print_broken_json(const char *name, const struct cli_options *options)
{
    printf("{\"name\":");
    json_print_text(stdout, name);
    printf(",\"token\":\"%" PRId64 "\",\"reason\":", options->token);
    json_print_text(stdout, options->reason);
    printf("}\n");
}

static int do_break(const struct cli_options *options, hf_client *client, const char *name)
{
    struct victim victim = {.token = (uint64_t)options->token};
    if (!options->json)
        (void)!hf_show(client, name, find_victim, &victim);
    hf_status status = hf_break(client, name, victim.token, options->reason);
    if (status != HF_OK)
        return fail_with(status);

    if (options->json)
        print_broken_json(name, options);
    else
        print_broken(name, &victim);
    return finish_stdout();
}

static int run_break(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    struct log_outlet log;
    int code = check_operands(&VERB_BREAK, argc, argv, 1, 1);

    if (code == 0)
        code = check_break(options);
    if (code == 0)
        code = log_outlet_open(options, &log);
    if (code != 0)
        return code;
    struct hf_client_options how = log_outlet_client(&log);
    code = verb_client_open(options, &how, &client);

    return code == 0 ? verb_client_close(client, do_break(options, client, argv[0])) : code;
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
        code = verb_client_open(options, NULL, &client);
    if (code != 0)
        return code;

    hf_status status = hf_resize(client, argv[0], (uint32_t)options->capacity);
    if (status != HF_OK)
        return verb_client_close(client, fail_with(status));
    if (options->json) {
        printf("{\"name\":");
        json_print_text(stdout, argv[0]);
        printf(",\"capacity\":%" PRId64 "}\n", options->capacity);
    } else {
        printf("\"%s\" has a capacity of %" PRId64 " now\n", output_shown(argv[0]).text,
               options->capacity);
    }

    return verb_client_close(client, finish_stdout());
}

const struct verb VERB_BREAK = {
    .name = "break",
    .operands = "NAME",
    .summary = "Revokes a hold; the token proves that you saw the holder.",
    .details = "The holder is told that its lease is lost, and `run` stops its command. --token "
               "and --reason are\n"
               "required.\n"
               "Exit code 79 if nobody holds NAME with that token.\n"
               "With --json: one object with the keys name, token and reason.\n",
    .options = BREAK_OPTIONS,
    .option_count = sizeof BREAK_OPTIONS / sizeof BREAK_OPTIONS[0],
    .run = run_break,
};

const struct verb VERB_RESIZE = {
    .name = "resize",
    .operands = "NAME",
    .summary = "Changes the capacity of a semaphore that is in use.",
    .details = "Shrinking revokes nothing: it takes effect as units are released. --capacity is "
               "required.\n"
               "Exit codes: 79 if nobody holds NAME or waits for it; 78 if it is not a semaphore.\n"
               "With --json: one object with the keys name and capacity.\n",
    .options = RESIZE_OPTIONS,
    .option_count = sizeof RESIZE_OPTIONS / sizeof RESIZE_OPTIONS[0],
    .run = run_resize,
};
