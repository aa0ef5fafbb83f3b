/* attached.c - the verbs `extend` and `release`: what a script does with a lease that `acquire` printed. */
#include "lease_text.h"
#include "session.h"
#include "text.h"
#include "verbs.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define OPTION_LEASE                                                                                                   \
    {                                                                                                                  \
        "lease", 0, "FILE", STORE_TEXT, OPTION_FIELD(lease), 0, 0, "read the lease from FILE (0600), not from stdin"   \
    }

static const struct option_spec EXTEND_OPTIONS[] = {
    OPTION_LEASE,
    {"ttl", 0, "DUR", STORE_DURATION, OPTION_FIELD(ttl_ms), 1, LONGEST_MS,
     "make it good for at least DUR from now; default: its own ttl"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};
static const struct option_spec RELEASE_OPTIONS[] = {OPTION_LEASE, OPTION_URL, OPTION_JSON, OPTION_HELP};

static hf_status attach(const struct cli_options *options, hf_client *client, hf_lease **lease, int *code)
{
    char secret[HF_EXPORT_MAX];
    *code = lease_line_read(options->lease, secret);
    if (*code != 0)
        return HF_INVALID;
    hf_status status = hf_lease_attach(client, secret, lease);
    explicit_bzero(secret, sizeof secret);
    if (status != HF_OK)
        *code = fail_with(status);
    return status;
}

static void print_done(const hf_lease *lease, const char *done, int64_t left_ms)
{
    printf("{\"name\":");
    json_print_text(stdout, hf_lease_name(lease));
    printf(",\"token\":%" PRIu64 ",\"done\":\"%s\",\"left_ms\":%" PRId64 "}\n", hf_lease_token(lease), done, left_ms);
}

static int do_extend(const struct cli_options *options, hf_lease *lease)
{
    hf_status status = hf_extend(lease, options->ttl_ms);
    if (status != HF_OK)
        return fail_with(status);
    if (options->json)
        print_done(lease, "extended", hf_lease_left_ms(lease));
    return finish_stdout();
}

/* The file is removed once its lease is certainly gone: it would be in the way of the next acquire. */
static int do_release(const struct cli_options *options, hf_lease *lease)
{
    hf_status status = hf_release(lease);
    if (status != HF_OK)
        return fail_with(status);
    if (options->lease && unlink(options->lease) != 0) {
        complain("released, but \"%s\" cannot be removed: %s", text_shown(options->lease).text, strerror(errno));
        return EXIT_INTERNAL;
    }
    if (options->json)
        print_done(lease, "released", 0);
    return finish_stdout();
}

static int with_lease(const struct cli_options *options, int (*act)(const struct cli_options *, hf_lease *))
{
    hf_client *client;
    hf_lease *lease = NULL;
    int code = session_open(options, NULL, &client);
    if (code != 0)
        return code;
    if (attach(options, client, &lease, &code) == HF_OK) {
        code = act(options, lease);
        hf_lease_free(lease);
    }
    return session_close(client, code);
}

static int run_extend(const struct cli_options *options, int argc, char **argv)
{
    int code = check_operands(&VERB_EXTEND, argc, argv, 0, 0);
    return code == 0 ? with_lease(options, do_extend) : code;
}

static int run_release(const struct cli_options *options, int argc, char **argv)
{
    int code = check_operands(&VERB_RELEASE, argc, argv, 0, 0);
    return code == 0 ? with_lease(options, do_release) : code;
}

#define DETAILS                                                                                                        \
    "Exit code 79: the lease had ended, and nothing was changed.\n"                                                    \
    "With --json: one object with the keys name, token, done and left_ms.\n"

const struct verb VERB_EXTEND = {
    .name = "extend",
    .operands = "",
    .summary = "Makes a lease that `acquire` printed last longer; never shortens it.",
    .details = DETAILS,
    .options = EXTEND_OPTIONS,
    .option_count = sizeof EXTEND_OPTIONS / sizeof EXTEND_OPTIONS[0],
    .run = run_extend,
};

const struct verb VERB_RELEASE = {
    .name = "release",
    .operands = "",
    .summary = "Gives back a lease that `acquire` printed, and removes its FILE.",
    .details = DETAILS,
    .options = RELEASE_OPTIONS,
    .option_count = sizeof RELEASE_OPTIONS / sizeof RELEASE_OPTIONS[0],
    .run = run_release,
};
