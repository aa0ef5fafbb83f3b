/* run.c - the verb `run`: turns options and operands into an order for front and guard. */
#include "run.h"
#include "asking.h"
#include "log.h"
#include "status.h"
#include "text.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {
    OPTIONS_ASKING,
    {"grace", 0, "DUR", STORE_DURATION, OPTION_FIELD(grace_ms), 0, LONGEST_MS,
     "SIGTERM this long before the lease can end; default: ttl/6"},
    {"max-hold", 0, "DUR", STORE_DURATION, OPTION_FIELD(max_hold_ms), 1, LONGEST_MS,
     "renew no longer than this: then CMD is stopped"},
    {"command", 'c', "STRING", STORE_TEXT, OPTION_FIELD(script), 0, 0, "run STRING with sh -c instead of CMD"},
    {"on-lost", 0, "stop|kill|signal:NAME|warn", STORE_TEXT, OPTION_FIELD(on_lost), 0, 0,
     "what happens to CMD when the lease cannot be kept; default: stop"},
    {"log", 0, "FILE", STORE_TEXT, OPTION_FIELD(log), 0, 0, "append what happens to FILE, a line of JSON each"},
    {"correlation-id", 0, "TEXT", STORE_TEXT, OPTION_FIELD(correlation_id), 0, 0,
     "stands in the log; else $HOLDFAST_CORRELATION_ID, else $TRACEPARENT"},
    {"status-fd", 0, "N", STORE_NUMBER, OPTION_FIELD(status_fd), 0, INT32_MAX,
     "write what happens to descriptor N, a line of JSON each"},
    OPTION_URL,
    OPTION_HELP,
};

static int refuse(const char *text)
{
    complain("run: %s", text);
    return EXIT_USAGE;
}

/* stop: SIGTERM at the grace; signal:NAME: another one then; kill: none; all of them SIGKILL before the end. */
static int choose_on_lost(const char *word, struct run_order *order)
{
    order->lost_signal = SIGTERM;
    if (!word || strcmp(word, "stop") == 0)
        return 0;
    if (strcmp(word, "kill") == 0)
        order->lost_signal = 0;
    else if (strcmp(word, "warn") == 0)
        order->only_warns = true;
    else if (strncmp(word, "signal:", 7) != 0 || (order->lost_signal = signals_number(word + 7)) == 0) {
        complain("--on-lost: \"%s\" is not stop, kill, warn, or signal: and the name of a signal, as signal:USR1",
                 text_shown(word).text);
        return EXIT_USAGE;
    }
    return 0;
}

/* A wrong variable of ours is an error; a wrong TRACEPARENT is somebody else's, and no reason not to run. */
static int choose_correlation(const char *given, struct run_order *order)
{
    const char *ours = getenv("HOLDFAST_CORRELATION_ID"), *theirs = getenv("TRACEPARENT");
    order->request.correlation_id = given;
    if (given)
        return 0;
    if (ours && *ours) {
        if (!log_may_correlate(ours)) {
            complain("HOLDFAST_CORRELATION_ID from the environment: not a text of at most %d bytes without control "
                     "characters",
                     HF_CORRELATION_MAX);
            return hf_status_exit_code(HF_CONFIG);
        }
        order->request.correlation_id = ours;
    } else if (theirs && *theirs && log_may_correlate(theirs)) {
        order->request.correlation_id = theirs;
    }
    return 0;
}

/* The descriptor is ours from now on, and CMD's only if it is one of the three that everybody has. */
static int choose_outlets(const struct cli_options *options, struct run_order *order)
{
    order->log_fd = -1;
    order->status_fd = (int)options->status_fd;
    if (order->status_fd >= 0 && !status_open(order->status_fd)) {
        complain("--status-fd: %d is not open for writing", order->status_fd);
        return EXIT_USAGE;
    }
    if (options->log && (order->log_fd = log_open(options->log)) < 0)
        return hf_status_exit_code(HF_CONFIG);
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
    struct run_order order = {.url = options->url, .grace_ms = options->grace_ms, .busy_code = (int)options->busy_code};
    int code = asking_fill("run", options, &order.request);
    order.request.flags = HF_AUTO_RENEW;
    if (code == 0)
        code = choose_command(options->script, argc, argv, &order, sh);
    if (code == 0 && !*order.request.name)
        code = refuse("NAME is empty");
    if (code == 0)
        code = choose_on_lost(options->on_lost, &order);
    if (code == 0)
        code = choose_correlation(options->correlation_id, &order);
    if (code == 0)
        code = choose_outlets(options, &order);
    return code == 0 ? front_run(&order) : code;
}

const struct verb VERB_RUN = {
    .name = "run",
    .operands = "NAME [--] CMD...",
    .summary = "Runs CMD while holding NAME; stops CMD before the lease can end if it cannot be kept.",
    .details = "DUR is a number of seconds, or 500ms, 5s, 2m, 1h.\n"
               "CMD finds HOLDFAST_NAME, HOLDFAST_TOKEN, HOLDFAST_TTL_MS and HOLDFAST_LOST_FD in its environment.\n\n"
               "--on-lost stop: SIGTERM when the grace begins, SIGKILL before the lease ends. kill: only SIGKILL. "
               "signal:NAME:\n"
               "that signal instead of SIGTERM. warn: a message, and CMD goes on without the lock; the exit code is 79 "
               "still.\n"
               "--status-fd: waiting, granted, refused, started, lost, exited, released; see docs/json.md.\n\n"
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
    .stops_at_operand = true,
    .run = run_run,
};
