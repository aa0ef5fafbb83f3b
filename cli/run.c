/* run.c - the verb `run`: turns options and operands into an order for the two processes, front and
 * guard (run.h). */
#include "run.h"
#include "json_log.h"
#include "lock_request.h"
#include "output.h"
#include "status_fd.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {
    {"lock", 'l', "NAME", STORE_VALUE, OPTION_FIELD(locks), 0, 0,
     "instead of NAME, once for each of several locks: all are taken or none"},
    OPTIONS_LOCK_REQUEST,
    {"grace", 0, "DUR", STORE_DURATION, OPTION_FIELD(grace_ms), 0, LONGEST_MS,
     "SIGTERM this long before the lease can end; default: ttl/6"},
    {"max-hold", 0, "DUR", STORE_DURATION, OPTION_FIELD(max_hold_ms), 1, LONGEST_MS,
     "stop renewing after DUR, so that CMD is stopped"},
    {"command", 'c', "STRING", STORE_TEXT, OPTION_FIELD(script), 0, 0,
     "run STRING with sh -c instead of CMD"},
    {"on-lost", 0, "stop|kill|signal:NAME|warn", STORE_TEXT, OPTION_FIELD(on_lost), 0, 0,
     "what to do with CMD if the lease cannot be kept; default: stop"},
    OPTIONS_LOG,
    {"status-fd", 0, "N", STORE_NUMBER, OPTION_FIELD(status_fd), 0, INT32_MAX,
     "write each event to descriptor N, a line of JSON each"},
    OPTION_URL,
    OPTION_HELP,
};

static int refuse(const char *text)
{
    complain("run: %s", text);
    return EXIT_USAGE;
}

/* Reads --on-lost. stop sends SIGTERM when the grace begins, signal:NAME another signal, kill
 * none. All of them send SIGKILL before the lease ends. */
static int choose_on_lost(const char *word, struct run_order *order)
{
    order->lost_signal = SIGTERM;
    if (!word || strcmp(word, "stop") == 0)
        return 0;
    if (strcmp(word, "kill") == 0)
        order->lost_signal = 0;
    else if (strcmp(word, "warn") == 0)
        order->only_warns = true;
    else if (strncmp(word, "signal:", 7) != 0 ||
             (order->lost_signal = signals_number(word + 7)) == 0) {
        complain("--on-lost: \"%s\" is not stop, kill, warn, or signal: and the name of a signal, "
                 "as signal:USR1",
                 output_shown(word).text);
        return EXIT_USAGE;
    }

    return 0;
}

/* Opens --status-fd and --log. CMD inherits the descriptor of --status-fd only if it is below 3. */
static int choose_outlets(const struct cli_options *options, struct run_order *order)
{
    order->status_fd = (int)options->status_fd;
    if (order->status_fd >= 0 && !status_fd_open(order->status_fd)) {
        complain("--status-fd: %d is not open for writing", order->status_fd);
        return EXIT_USAGE;
    }

    int code = log_outlet_open(options, &order->log);
    order->request.correlation_id = order->log.correlation_id;
    return code;
}

static int refuse_twice(const char *name)
{
    complain("run: -l \"%s\" is given twice", output_shown(name).text);
    return EXIT_USAGE;
}

/* Takes the names of -l, otherwise the first operand. */
static int choose_names(const struct option_values *locks, int argc, char **argv,
                        struct run_order *order)
{
    order->numbered = locks->count > 0;
    order->count = order->numbered ? locks->count : 1;
    if (!order->numbered && argc == 0)
        return refuse("NAME is missing");
    for (size_t i = 0; i < order->count; i++) {
        const char *name = order->numbered ? locks->texts[i] : argv[0];
        if (!*name)
            return refuse("NAME is empty");
        for (size_t j = 0; j < i; j++)
            if (strcmp(name, order->names[j]) == 0)
                return refuse_twice(name);
        order->names[i] = name;
    }

    return 0;
}

/* Returns the index of CMD among the operands, after NAME and `--`. With -l there is no NAME,
 * and the `--` was read with the options. */
static int child_begins(const struct run_order *order, int argc, char **argv)
{
    if (order->numbered)
        return 0;
    return argc >= 2 && strcmp(argv[1], "--") == 0 ? 2 : 1;
}

static bool is_command_option(const char *word)
{
    return strcmp(word, "-c") == 0 || strcmp(word, "--command") == 0;
}

/* Reads [NAME] [--] CMD..., or -c STRING before NAME, or NAME -c STRING as in flock(1). `sh` has
 * room for four words. */
static int choose_command(const char *script, int argc, char **argv, struct run_order *order,
                          char **sh)
{
    int at = child_begins(order, argc, argv);
    bool may_follow = !order->numbered && !script && argc >= 2;

    if (may_follow && is_command_option(argv[1])) {
        if (argc != 3)
            return refuse("-c after NAME takes exactly one STRING");
        script = argv[2];
        at = 3;
    }

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
    struct run_order order = {.url = options->url,
                              .grace_ms = options->grace_ms,
                              .connect_wait_ms = options->connect_wait_ms,
                              .busy_code = (int)options->busy_code,
                              .quiet = options->quiet};
    int code = lock_request_fill("run", options, &order.request);

    order.request.flags = HF_AUTO_RENEW;
    if (code == 0)
        code = choose_names(&options->locks, argc, argv, &order);
    if (code == 0)
        code = choose_command(options->script, argc, argv, &order, sh);
    if (code == 0)
        code = choose_on_lost(options->on_lost, &order);
    if (code == 0)
        code = choose_outlets(options, &order);

    return code == 0 ? run_front(&order) : code;
}

const struct verb VERB_RUN = {
    .name = "run",
    .operands = "NAME [--] CMD...",
    .summary =
        "Runs CMD while holding NAME; stops CMD before the lease can end if it cannot be kept.",
    .details =
        "DUR is a number of seconds, or 500ms, 5s, 2m, 1h.\n"
        "CMD finds HOLDFAST_NAME, HOLDFAST_TOKEN, HOLDFAST_TTL_MS, HOLDFAST_LOST_FD and "
        "HOLDFAST_HELD in its\n"
        "environment.\n"
        "\n"
        "Several locks: run -l a -l b [options] [--] CMD... takes all or none, and releases all; "
        "the other\n"
        "options apply to each of them. If one is lost, CMD is stopped. CMD finds "
        "HOLDFAST_NAME_1,\n"
        "HOLDFAST_TOKEN_1, HOLDFAST_NAME_2 and so on in the order of -l; variables without a "
        "number are for\n"
        "the first lock.\n"
        "\n"
        "--on-lost:\n"
        "  stop         SIGTERM when the grace begins, SIGKILL before the lease ends\n"
        "  kill         only SIGKILL\n"
        "  signal:NAME  that signal instead of SIGTERM\n"
        "  warn         a message; CMD continues without the lock, and the exit code is still 79\n"
        "\n"
        "Events of --status-fd: waiting, granted, refused, started, lost, exited, released\n"
        "(docs/json.md).\n"
        "\n"
        "exit codes:\n"
        "  CMD's own  it ran to its end under the lock\n"
        "  64         usage\n"
        "  69         engine unreachable or full, before CMD was started\n"
        "  70         internal error\n"
        "  75         busy (-n) or wait over (-w); -E changes it, and -E 0 prints no message\n"
        "  77, 78     refused; bad configuration\n"
        "  79         the lease was lost before CMD had ended: CMD was stopped, unless the message "
        "says otherwise\n"
        "  126, 127   CMD cannot be executed; not found\n"
        "  128+N      signal N ended CMD or the wait\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .stops_at_operand = true,
    .run = run_run,
};
