/* acquire.c - the verb `acquire`: takes a detached lease for a script and prints it as a line of JSON.
 *
 * From the grant on the lease exists although nobody knows of it yet: until its line is written, every way out of here
 * gives it back. */
#include "asking.h"
#include "lease_text.h"
#include "session.h"
#include "signals.h"
#include "text.h"
#include "verbs.h"
#include "waiting.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {
    OPTIONS_ASKING,
    {"lease", 0, "FILE", STORE_TEXT, OPTION_FIELD(lease), 0, 0, "write the lease to FILE (new, 0600), not to stdout"},
    OPTION_URL,
    {"json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1, "with --lease: print the line too, without its secret"},
    OPTION_HELP,
};

struct acquire {
    const struct cli_options *options;
    struct hf_request request;
    hf_client *client;
    hf_lease *lease;
    struct asking asking;
    struct signals taken;
    int signals, stops;
    int out;   /* where the lease goes */
    bool told; /* it is there */
};

/* The next signal that ends us, or 0. Ctrl-Z stops us here: it is blocked everywhere else. */
static int ending_signal(struct acquire *acquire)
{
    signals_stop();
    for (int number; (number = signals_next(acquire->signals, NULL)) != 0;)
        if (number != SIGCHLD && number != SIGCONT && number != SIGWINCH)
            return number;
    return 0;
}

static void nap(struct acquire *acquire, int64_t ms)
{
    uint64_t rung;
    struct pollfd ready[] = {{.fd = acquire->signals, .events = POLLIN},
                             {.fd = acquire->stops, .events = POLLIN},
                             {.fd = acquire->asking.bell, .events = POLLIN}};
    poll(ready, sizeof ready / sizeof ready[0], ms > INT32_MAX ? INT32_MAX : (int)ms);
    (void)!read(acquire->asking.bell, &rung, sizeof rung);
}

/* True when granted; otherwise *code is what we exit with, which may be 0. */
static bool wait_for_grant(struct acquire *acquire, int *code)
{
    struct waiting waiting;
    struct terminal terminal;
    int number;
    terminal_open(&terminal, getpid(), getpgrp());
    waiting_begin(&waiting, acquire->request.name, &terminal, acquire->client, acquire->asking.bell);
    while ((number = ending_signal(acquire)) == 0 && atomic_load(&acquire->asking.outcome) == UNDECIDED) {
        waiting_tell(&waiting);
        nap(acquire, waiting_pause(&waiting));
    }
    waiting_end(&waiting);
    terminal_close(&terminal);
    if (number != 0) {
        hf_cancel(acquire->lease); /* closing releases it, should the grant have come first */
        *code = 128 + number;
        return false;
    }
    if (atomic_load(&acquire->asking.outcome) == HF_OK)
        return true;
    *code = asking_refused(&acquire->asking, acquire->client, acquire->request.name, (int)acquire->options->busy_code);
    return false;
}

static int hand_over(struct acquire *acquire)
{
    char secret[HF_EXPORT_MAX];
    hf_status status = hf_lease_export(acquire->lease, secret, sizeof secret);
    if (status != HF_OK)
        return fail_with(status);
    int failed = lease_line_write(acquire->out, acquire->lease, &acquire->request, secret);
    explicit_bzero(secret, sizeof secret);
    if (failed == 0 && acquire->options->json && acquire->options->lease)
        failed = lease_line_write(STDOUT_FILENO, acquire->lease, &acquire->request, NULL);
    acquire->told = failed == 0;
    if (acquire->told)
        return 0;
    complain("cannot write the lease, so it is given back: %s", strerror(errno));
    status = hf_release(acquire->lease);
    return status == HF_OK ? EXIT_INTERNAL : fail_with(status);
}

static int ask(struct acquire *acquire)
{
    const char *source;
    hf_status status = HF_OK;
    acquire->request.wait_ms = asking_wait(acquire->client, acquire->request.wait_ms);
    if (acquire->request.ttl_ms == 0)
        status = hf_client_setting(acquire->client, "ttl", &acquire->request.ttl_ms, &source);
    if (status == HF_OK)
        status = hf_acquire_start(acquire->client, &acquire->request, asking_done, &acquire->asking, &acquire->lease);
    return status == HF_OK ? 0 : fail_with(status);
}

static int acquire_lease(struct acquire *acquire)
{
    signals_take(&acquire->taken);
    acquire->signals = signals_open(&acquire->taken);
    acquire->stops = signals_open_stop();
    acquire->asking.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (acquire->signals < 0 || acquire->stops < 0 || acquire->asking.bell < 0) {
        complain("cannot prepare to wait: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    int code = session_open(acquire->options, NULL, &acquire->client);
    if (code != 0)
        return code;
    code = ask(acquire);
    if (code == 0 && wait_for_grant(acquire, &code))
        code = hand_over(acquire);
    return session_close(acquire->client, code);
}

static int run_acquire(const struct cli_options *options, int argc, char **argv)
{
    struct acquire acquire = {.options = options, .asking = {.outcome = UNDECIDED}, .out = STDOUT_FILENO};
    int code = check_operands(&VERB_ACQUIRE, argc, argv, 1, 1);
    if (code == 0)
        code = asking_fill("acquire", options, &acquire.request);
    if (code != 0)
        return code;
    acquire.request.name = argv[0];
    acquire.request.flags = HF_DETACHED;
    if (options->lease && (acquire.out = lease_file_create(options->lease)) < 0)
        return hf_status_exit_code(HF_CONFIG);
    code = acquire_lease(&acquire);
    if (options->lease && close(acquire.out) != 0 && code == 0) {
        complain("\"%s\": %s", text_shown(options->lease).text, strerror(errno));
        code = EXIT_INTERNAL;
    }
    if (options->lease && !acquire.told)
        unlink(options->lease);
    return code;
}

const struct verb VERB_ACQUIRE = {
    .name = "acquire",
    .operands = "NAME",
    .summary = "Takes a lease that outlives this process and prints it as a line of JSON.",
    .details = "The lease lasts for its ttl, unless `extend` or `release` get to it with the line that was printed.\n"
               "Who has the line can release: it belongs in a pipe or a file of your own, not on a command line.\n\n"
               "    holdfast acquire --lease job.lease job && make && holdfast release --lease job.lease\n\n"
               "Keys of the line: name, kind, token, ttl_ms, left_ms, and lease, the secret.\n"
               "Exit codes: 75 busy (-n) or wait over (-w); -E changes it; 128+N a signal ended the wait.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_acquire,
};
