/* extend_release.c - the verbs `extend` and `release`, for a lease that `acquire` printed. */
#include "json_log.h"
#include "lease_file.h"
#include "output.h"
#include "verb_client.h"
#include "verbs.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPTION_LEASE                                                                               \
    {                                                                                              \
        "lease", 0, "FILE", STORE_TEXT, OPTION_FIELD(lease), 0, 0,                                 \
            "read the lease from FILE (0600), not from stdin"                                      \
    }

static const struct option_spec EXTEND_OPTIONS[] = {
    OPTION_LEASE,
    {"ttl", 0, "DUR", STORE_DURATION, OPTION_FIELD(ttl_ms), 1, LONGEST_MS,
     "make the lease last at least DUR from now; default: its own ttl"},
    OPTIONS_LOG,
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};
static const struct option_spec RELEASE_OPTIONS[] = {OPTION_LEASE, OPTIONS_LOG, OPTION_URL,
                                                     OPTION_JSON, OPTION_HELP};

/* One `extend` or `release` from its beginning to its end. */
struct attached {
    const struct cli_options *options;
    struct log_outlet log;
    hf_client *client;
    hf_lease *lease;
    struct lease_line line;
    bool ended; /* the lease has certainly ended */
};

/* Writes the log line of a lease that could not be attached: the library logs attached leases
 * only. */
static void log_refusal(struct attached *attached, const char *name, hf_status status)
{
    struct timespec now;
    bool ended = status == HF_LOST || status == HF_NOT_HELD;

    clock_gettime(CLOCK_REALTIME, &now);
    log_outlet_write(&attached->log,
                     &(struct hf_log_event){.size = sizeof(struct hf_log_event),
                                            .level = ended ? HF_LOG_WARN : HF_LOG_ERROR,
                                            .event = ended ? "lost" : "denied",
                                            .name = name,
                                            .text = hf_error_text(),
                                            .wall_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000,
                                            .status = status});
}

/* Finds out from the engine how long the lease has been held, because another process acquired
 * it. */
static void find_held_time(void *arg, const struct hf_row *row)
{
    struct attached *attached = arg;
    if (row->role == HF_HOLDER && row->token == hf_lease_token(attached->lease))
        attached->log.held_ms = row->since_ms;
}

/* Returns 0 if the lease is attached, otherwise an exit code after a message. */
static int attach(struct attached *attached)
{
    int code = lease_line_read(attached->options->lease, &attached->line);

    if (code != 0)
        return code;
    hf_status status = hf_lease_attach(attached->client, attached->line.secret, &attached->lease);
    if (status != HF_OK) {
        log_refusal(attached, attached->line.name, status);
        attached->ended = status == HF_LOST || status == HF_NOT_HELD;
        return fail_with(status);
    }
    if (attached->log.fd >= 0)
        (void)!hf_show(attached->client, hf_lease_name(attached->lease), find_held_time, attached);

    return 0;
}

static void print_done(const hf_lease *lease, const char *done, int64_t left_ms)
{
    printf("{\"name\":");
    json_print_text(stdout, hf_lease_name(lease));
    printf(",\"token\":\"%" PRIu64 "\",\"done\":\"%s\",\"leftMs\":%" PRId64 "}\n",
           hf_lease_token(lease), done, left_ms);
}

static int do_extend(struct attached *attached)
{
    hf_status status = hf_extend(attached->lease, attached->options->ttl_ms);
    if (status != HF_OK)
        return fail_with(status);
    if (attached->options->json)
        print_done(attached->lease, "extended", hf_lease_left_ms(attached->lease));
    return finish_stdout();
}

static int do_release(struct attached *attached)
{
    hf_status status = hf_release(attached->lease);

    attached->ended = status == HF_OK || status == HF_LOST || status == HF_NOT_HELD;
    if (status != HF_OK)
        return fail_with(status);
    if (attached->options->json)
        print_done(attached->lease, "released", 0);
    return finish_stdout();
}

static int with_lease(struct attached *attached, int (*act)(struct attached *attached))
{
    int code = log_outlet_open(attached->options, &attached->log);

    if (code != 0)
        return code;

    struct hf_client_options how = log_outlet_client(&attached->log);
    how.log_level = HF_LOG_DEBUG; /* the library logs "extended" at this level */
    code = verb_client_open(attached->options, &how, &attached->client);
    if (code != 0)
        return code;

    code = attach(attached);
    if (code == 0) {
        code = act(attached);
        hf_lease_free(attached->lease);
    }

    return verb_client_close(attached->client, code);
}

static int run_extend(const struct cli_options *options, int argc, char **argv)
{
    struct attached attached = {.options = options};
    int code = check_operands(&VERB_EXTEND, argc, argv, 0, 0);
    if (code == 0)
        code = with_lease(&attached, do_extend);
    explicit_bzero(&attached.line, sizeof attached.line);
    return code;
}

/* Removes the file once its lease has certainly ended. Otherwise the file would be in the way of
 * the next acquire. */
static int run_release(const struct cli_options *options, int argc, char **argv)
{
    struct attached attached = {.options = options};
    int removed = 0, code = check_operands(&VERB_RELEASE, argc, argv, 0, 0);

    if (code == 0)
        code = with_lease(&attached, do_release);
    if (attached.ended && options->lease)
        removed = lease_file_remove(options->lease, &attached.line);
    explicit_bzero(&attached.line, sizeof attached.line);
    return code == 0 ? removed : code;
}

#define DETAILS                                                                                    \
    "Exit code 79 if the lease had already ended; then nothing is changed.\n"                      \
    "With --json: one object with the keys name, token, done and leftMs.\n"

const struct verb VERB_EXTEND = {
    .name = "extend",
    .operands = "",
    .summary = "Extends a lease that `acquire` printed; never shortens it.",
    .details = DETAILS,
    .options = EXTEND_OPTIONS,
    .option_count = sizeof EXTEND_OPTIONS / sizeof EXTEND_OPTIONS[0],
    .run = run_extend,
};

const struct verb VERB_RELEASE = {
    .name = "release",
    .operands = "",
    .summary = "Releases a lease that `acquire` printed, and removes its FILE.",
    .details = DETAILS "FILE is removed in both cases.\n",
    .options = RELEASE_OPTIONS,
    .option_count = sizeof RELEASE_OPTIONS / sizeof RELEASE_OPTIONS[0],
    .run = run_release,
};
