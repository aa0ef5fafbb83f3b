/* run.c - the verb `run`: turns options and operands into an order for front and guard. */
#include "run.h"
#include "text.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_MS (INT64_C(366) * 24 * 3600 * 1000)

static const struct option_spec OPTIONS[] = {
    {"nonblock", 'n', NULL, STORE_CONSTANT, OPTION_FIELD(wait_ms), 0, 0, "do not wait: busy is exit code 75"},
    {"wait", 'w', "DUR", STORE_DURATION, OPTION_FIELD(wait_ms), HF_FOREVER, LONGEST_MS,
     "wait at most DUR; default: for ever"},
    {"conflict-exit-code", 'E', "CODE", STORE_NUMBER, OPTION_FIELD(busy_code), 0, 255,
     "exit with CODE instead of 75 when busy or the wait is over"},
    {"shared", 's', NULL, STORE_CONSTANT, OPTION_FIELD(kind), HF_READ, HF_READ,
     "a read lock: many readers at once, no writer"},
    {"exclusive", 'x', NULL, STORE_CONSTANT, OPTION_FIELD(kind), HF_WRITE, HF_WRITE,
     "a write lock: the only holder, also among readers"},
    {"units", 0, "K", STORE_NUMBER, OPTION_FIELD(units), 1, HF_CAPACITY_MAX, "take K units of a semaphore; default: 1"},
    {"capacity", 0, "N", STORE_NUMBER, OPTION_FIELD(capacity), 1, HF_CAPACITY_MAX, "a semaphore of N units"},
    {"ttl", 0, "DUR", STORE_DURATION, OPTION_FIELD(ttl_ms), 1, LONGEST_MS,
     "how long the lease lasts without renewal; default: 30s"},
    {"grace", 0, "DUR", STORE_DURATION, OPTION_FIELD(grace_ms), 0, LONGEST_MS,
     "SIGTERM this long before the lease can end; default: ttl/6"},
    {"max-hold", 0, "DUR", STORE_DURATION, OPTION_FIELD(max_hold_ms), 1, LONGEST_MS,
     "renew no longer than this: then CMD is stopped"},
    {"label", 0, "TEXT", STORE_TEXT, OPTION_FIELD(label), 0, 0, "shown to others who look or wait"},
    {"command", 'c', "STRING", STORE_TEXT, OPTION_FIELD(script), 0, 0, "run STRING with sh -c instead of CMD"},
    OPTION_URL,
    OPTION_HELP,
};

static int refuse(const char *text)
{
    complain("run: %s", text);
    return EXIT_USAGE;
}

/* -s and -x say read-write lock; --units and --capacity say semaphore; neither says mutex; both cannot be meant. */
static int choose_kind(const struct cli_options *options, struct hf_request *request)
{
    request->units = (uint32_t)options->units;
    request->capacity = (uint32_t)options->capacity;
    if (options->units == 0 && options->capacity == 0) {
        request->kind = options->kind < 0 ? HF_EXCLUSIVE : (hf_kind)options->kind;
        return 0;
    }
    if (options->kind >= 0)
        return refuse("-s and -x cannot be combined with --units and --capacity");
    if (options->capacity == 0)
        return refuse("--units needs --capacity");
    if (options->units > options->capacity) {
        complain("run: --units %lld is more than --capacity %lld", (long long)options->units,
                 (long long)options->capacity);
        return EXIT_USAGE;
    }
    request->kind = HF_SEMAPHORE;
    return 0;
}

/* NAME [--] CMD..., or -c STRING before NAME, or NAME -c STRING as flock(1) has it. `sh` has room for four. */
static int choose_command(const char *script, int argc, char **argv, struct run_order *order, char **sh)
{
    int at = 1;
    if (argc == 0)
        return refuse("NAME is missing");
    if (!script && argc >= 2 && (strcmp(argv[1], "-c") == 0 || strcmp(argv[1], "--command") == 0)) {
        if (argc != 3)
            return refuse("-c after NAME takes exactly one STRING");
        script = argv[2];
        at = 3;
    } else if (argc >= 2 && strcmp(argv[1], "--") == 0) {
        at = 2;
    }
    order->request.name = argv[0];
    order->argv = argv + at;
    if (script && at < argc)
        return refuse("either -c STRING or CMD, not both");
    if (!script && at == argc)
        return refuse("CMD is missing");
    if (script) {
        char *const words[] = {"sh", "-c", (char *)script, NULL};
        memcpy(sh, words, sizeof words);
        order->argv = sh;
    }
    return 0;
}

static int run_run(const struct cli_options *options, int argc, char **argv)
{
    char *sh[4];
    struct run_order order = {
        .url = options->url,
        .request = {.size = sizeof order.request,
                    .wait_ms = options->wait_ms,
                    .ttl_ms = options->ttl_ms,
                    .max_hold_ms = options->max_hold_ms,
                    .flags = HF_AUTO_RENEW,
                    .label = options->label},
        .grace_ms = options->grace_ms,
        .busy_code = (int)options->busy_code,
    };
    int code = choose_kind(options, &order.request);
    if (code == 0)
        code = choose_command(options->script, argc, argv, &order, sh);
    if (code == 0 && !*order.request.name)
        code = refuse("NAME is empty");
    return code == 0 ? front_run(&order) : code;
}

const struct verb VERB_RUN = {
    .name = "run",
    .operands = "NAME [--] CMD...",
    .summary = "Runs CMD while holding NAME; stops CMD before the lease can end if it cannot be kept.",
    .details = "DUR is a number of seconds, or 500ms, 5s, 2m, 1h.\n"
               "CMD finds HOLDFAST_NAME, HOLDFAST_TOKEN, HOLDFAST_TTL_MS and HOLDFAST_LOST_FD in its environment.\n\n"
               "exit codes:\n"
               "  CMD's own  it ran to its end under the lock\n"
               "  64         usage\n"
               "  69         engine unreachable or full, before CMD was started\n"
               "  70         internal error\n"
               "  75         busy (-n) or wait over (-w); -E changes it\n"
               "  77, 78     refused; bad configuration\n"
               "  79         the lease was lost while CMD ran: CMD was stopped\n"
               "  126, 127   CMD cannot be executed; not found\n"
               "  128+N      CMD, or the wait, was ended by signal N\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_run,
};
