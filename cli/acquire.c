/* acquire.c - the verb `acquire`: takes a detached lease for a script and prints it as a line of
 * JSON.
 *
 * The lease exists from the grant on, but nobody can release it before its line is written. So
 * every early exit of this file releases it. */
#include "json_log.h"
#include "lease_file.h"
#include "lock_request.h"
#include "output.h"
#include "signals.h"
#include "verb_client.h"
#include "verbs.h"
#include "wait_display.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {
    OPTIONS_LOCK_REQUEST,
    {"lease", 0, "FILE", STORE_TEXT, OPTION_FIELD(lease), 0, 0,
     "write the lease to FILE (0600), not to stdout; a FILE whose lease has ended is replaced"},
    OPTIONS_LOG,
    OPTION_URL,
    {"json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1,
     "with --lease: print the line too, without its secret"},
    OPTION_HELP,
};

struct acquire {
    const struct cli_options *options;
    struct hf_request request;
    hf_client *client;
    hf_lease *lease;
    struct lock_request lock_request;
    struct log_outlet log;
    struct signals taken;
    int signals, stops;
    int out;      /* descriptor that the line of the lease is written to */
    bool written; /* the whole line was written */
};

/* Returns the next signal that ends this process, or 0. A pending Ctrl-Z takes effect here:
 * SIGTSTP is blocked everywhere else. */
static int ending_signal(struct acquire *acquire)
{
    signals_stop();
    for (int number; (number = signals_next(acquire->signals, NULL)) != 0;)
        if (signals_ends_wait(number))
            return number;
    return 0;
}

static void sleep_until_event(struct acquire *acquire, int64_t ms)
{
    uint64_t woken;
    struct pollfd ready[] = {{.fd = acquire->signals, .events = POLLIN},
                             {.fd = acquire->stops, .events = POLLIN},
                             {.fd = acquire->lock_request.wake_fd, .events = POLLIN}};
    poll(ready, sizeof ready / sizeof ready[0], ms > INT32_MAX ? INT32_MAX : (int)ms);
    (void)!read(acquire->lock_request.wake_fd, &woken, sizeof woken);
}

/* Returns true when the lease is granted. Otherwise *code is the exit code, which may be 0. */
static bool wait_for_grant(struct acquire *acquire, int *code)
{
    struct wait_display waiting;
    struct terminal terminal;
    int number;

    terminal_open(&terminal, getpid(), getpgrp());
    wait_display_begin(&waiting, acquire->request.name, &terminal, acquire->client,
                       &acquire->lock_request);

    while ((number = ending_signal(acquire)) == 0 &&
           atomic_load(&acquire->lock_request.outcome) == UNDECIDED) {
        wait_display_update(&waiting);
        if (waiting.ours || waiting.gave_up)
            break;
        sleep_until_event(acquire, wait_display_pause(&waiting));
    }

    wait_display_end(&waiting);
    terminal_close(&terminal);
    if (number != 0) {
        hf_cancel(acquire->lease); /* if the grant came first, closing releases it */
        *code = 128 + number;
        return false;
    }

    int outcome = atomic_load(&acquire->lock_request.outcome);
    if (outcome == HF_OK)
        return true;
    if (outcome == UNDECIDED) {
        hf_cancel(acquire->lease);
        if (waiting.gave_up)
            *code = lock_request_unreachable(waiting.failure, waiting.timed_out);
        else
            *code = lock_request_held_already(&acquire->lock_request, acquire->request.name,
                                              waiting.ours);
        return false;
    }

    *code = lock_request_refused(&acquire->lock_request, acquire->client, acquire->request.name);
    return false;
}

static int deliver(struct acquire *acquire)
{
    char secret[HF_EXPORT_MAX];
    hf_status status;

    /* A handoff on a server is short until its new holder confirms it. A failure changes nothing: a
     * lease that was lost cannot be exported, and any other is held for as long as the line says.
     */
    bool is_short = hf_lease_left_ms(acquire->lease) < acquire->request.ttl_ms / 2;
    if (is_short)
        status = hf_extend(acquire->lease, 0);
    status = hf_lease_export(acquire->lease, secret, sizeof secret);

    if (status != HF_OK)
        return fail_with(status);

    int failed = lease_line_write(acquire->out, acquire->lease, &acquire->request, secret);
    explicit_bzero(secret, sizeof secret);

    bool prints_too = acquire->options->json && acquire->options->lease;
    if (failed == 0 && prints_too)
        failed = lease_line_write(STDOUT_FILENO, acquire->lease, &acquire->request, NULL);
    acquire->written = failed == 0;
    if (acquire->written)
        return 0;

    complain("cannot write the lease, so it was released: %s", strerror(errno));
    status = hf_release(acquire->lease);

    return status == HF_OK ? EXIT_INTERNAL : fail_with(status);
}

static int start_request(struct acquire *acquire)
{
    const char *source;
    hf_status status = HF_OK;

    acquire->request.wait_ms = lock_request_wait(acquire->client, acquire->request.wait_ms);
    acquire->lock_request.connect_wait_ms = acquire->options->connect_wait_ms;
    lock_request_prepare(&acquire->lock_request, (int)acquire->options->busy_code,
                         acquire->options->quiet, &acquire->request);
    if (acquire->request.ttl_ms == 0)
        status = hf_client_setting(acquire->client, "ttl", &acquire->request.ttl_ms, &source);
    if (status == HF_OK)
        status = hf_acquire_start(acquire->client, &acquire->request, lock_request_done,
                                  &acquire->lock_request, &acquire->lease);
    return status == HF_OK ? 0 : fail_with(status);
}

static int acquire_lease(struct acquire *acquire)
{
    signals_take(&acquire->taken);
    acquire->signals = signals_open(&acquire->taken);
    acquire->stops = signals_open_stop();
    acquire->lock_request.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    bool opened =
        acquire->signals >= 0 && acquire->stops >= 0 && acquire->lock_request.wake_fd >= 0;
    if (!opened) {
        complain("cannot prepare to wait: %s", strerror(errno));
        return EXIT_INTERNAL;
    }

    struct hf_client_options how = log_outlet_client(&acquire->log);
    int code = verb_client_open(acquire->options, &how, &acquire->client);
    if (code != 0)
        return code;
    if (acquire->options->lease)
        code = lease_file_claim(acquire->options->lease, acquire->client, &acquire->out);
    if (code == 0)
        code = start_request(acquire);
    if (code == 0 && wait_for_grant(acquire, &code))
        code = deliver(acquire);

    return verb_client_close(acquire->client, code);
}

/* Removes a file without a lease. The file is still locked, so no other command has taken it
 * over. */
static int finish_file(struct acquire *acquire, int code)
{
    const char *path = acquire->options->lease;

    if (!acquire->written)
        unlink(path);
    if (close(acquire->out) == 0 || code != 0)
        return code;
    complain("\"%s\": %s", output_shown(path).text, strerror(errno));
    return EXIT_INTERNAL;
}

static int run_acquire(const struct cli_options *options, int argc, char **argv)
{
    struct acquire acquire = {.options = options,
                              .lock_request = {.outcome = UNDECIDED},
                              .out = options->lease ? -1 : STDOUT_FILENO};
    int code = check_operands(&VERB_ACQUIRE, argc, argv, 1, 1);

    if (code == 0)
        code = lock_request_fill("acquire", options, &acquire.request);
    if (code == 0)
        code = log_outlet_open(options, &acquire.log);
    if (code != 0)
        return code;

    acquire.request.name = argv[0];
    acquire.request.flags = HF_DETACHED;
    acquire.request.correlation_id = acquire.log.correlation_id;
    code = acquire_lease(&acquire);

    return options->lease && acquire.out >= 0 ? finish_file(&acquire, code) : code;
}

const struct verb VERB_ACQUIRE = {
    .name = "acquire",
    .operands = "NAME",
    .summary = "Takes a lease that outlives this process and prints it as a line of JSON.",
    .details =
        "The lease lasts for its ttl, unless `extend` or `release` read the line before that.\n"
        "Anybody who has the line can release the lease: keep it in a pipe or in a file of your "
        "own, not on a\n"
        "command line.\n"
        "\n"
        "    holdfast acquire --lease job.lease job && trap 'holdfast release --lease job.lease' "
        "EXIT && make\n"
        "\n"
        "Keys of the line: name, kind, token, ttlMs, leftMs, and lease, the secret.\n"
        "Exit codes: 75 if the lock is busy (-n) or the wait is over (-w), unless -E changes it; "
        "128+N if\n"
        "signal N ended the wait.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_acquire,
};
