/* asking.c - from options to a request, and from its outcome to words. */
#include "asking.h"
#include "glance.h"
#include "holders.h"
#include "text.h"
#include <string.h>
#include <unistd.h>

#define GLANCE_MS 300 /* how long the last words may wait for who holds it */

static int refuse(const char *verb, const char *text)
{
    complain("%s: %s", verb, text);
    return EXIT_USAGE;
}

/* -s and -x say read-write lock; --units and --capacity say semaphore; neither says mutex; both cannot be meant. */
static int choose_kind(const char *verb, const struct cli_options *options, struct hf_request *request)
{
    request->units = (uint32_t)options->units;
    request->capacity = (uint32_t)options->capacity;
    if (options->units == 0 && options->capacity == 0) {
        request->kind = options->kind < 0 ? HF_EXCLUSIVE : (hf_kind)options->kind;
        return 0;
    }
    if (options->kind >= 0)
        return refuse(verb, "-s and -x cannot be combined with --units and --capacity");
    if (options->capacity == 0)
        return refuse(verb, "--units needs --capacity");
    if (options->units > options->capacity) {
        complain("%s: --units %lld is more than --capacity %lld", verb, (long long)options->units,
                 (long long)options->capacity);
        return EXIT_USAGE;
    }
    request->kind = HF_SEMAPHORE;
    return 0;
}

int asking_fill(const char *verb, const struct cli_options *options, struct hf_request *request)
{
    *request = (struct hf_request){.size = sizeof *request,
                                   .wait_ms = options->wait_ms,
                                   .ttl_ms = options->ttl_ms,
                                   .max_hold_ms = options->max_hold_ms,
                                   .label = options->label};
    return choose_kind(verb, options, request);
}

void asking_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct asking *asking = arg;
    uint64_t one = 1;
    (void)lease;
    if (outcome != HF_OK)
        snprintf(asking->words, sizeof asking->words, "%s", hf_error_text());
    atomic_store(&asking->outcome, (int)outcome);
    (void)!write(asking->bell, &one, sizeof one);
}

bool asking_setting(const hf_client *client, const char *name, int64_t *value)
{
    const char *source;
    return hf_client_setting(client, name, value, &source) == HF_OK && strcmp(source, "default") != 0;
}

int64_t asking_wait(const hf_client *client, int64_t wait_ms)
{
    if (wait_ms == HF_WAIT_DEFAULT && !asking_setting(client, "wait", &wait_ms))
        wait_ms = HF_FOREVER;
    return wait_ms;
}

int asking_refused(const struct asking *asking, hf_client *client, const char *name, int busy_code)
{
    hf_status outcome = (hf_status)atomic_load(&asking->outcome);
    int code = hf_status_exit_code(outcome);
    if (outcome != HF_BUSY && outcome != HF_TIMEOUT) {
        complain("%s", *asking->words ? asking->words : hf_status_text(outcome));
        return code;
    }
    struct glance *glance = glance_begin(client, name, asking->bell);
    if (glance && glance_over(glance, GLANCE_MS) && glance->status == HF_OK && glance->rows.count > 0)
        complain("%s", holders_describe(name, &glance->rows).text);
    else if (*asking->words)
        complain("%s", asking->words);
    else
        complain("\"%s\": %s", text_shown(name).text, hf_status_text(outcome));
    glance_end(glance);
    return busy_code >= 0 ? busy_code : code;
}
