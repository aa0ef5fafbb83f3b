/* lock_request.c - makes a request from options, and a message and exit code from its outcome. */
#include "lock_request.h"
#include "held.h"
#include "holder_lookup.h"
#include "holder_text.h"
#include "output.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define HOLDER_LOOKUP_MS                                                                           \
    300 /* longest time that the message for busy may take to find the holder */

static int refuse(const char *verb, const char *text)
{
    complain("%s: %s", verb, text);
    return EXIT_USAGE;
}

/* Chooses the kind: -s or -x mean a read-write lock, --units or --capacity a semaphore, none of
 * them an exclusive lock. Both together are refused. */
static int choose_kind(const char *verb, const struct cli_options *options,
                       struct hf_request *request)
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

int lock_request_fill(const char *verb, const struct cli_options *options,
                      struct hf_request *request)
{
    *request = (struct hf_request){.size = sizeof *request,
                                   .wait_ms = options->wait_ms,
                                   .ttl_ms = options->ttl_ms,
                                   .max_hold_ms = options->max_hold_ms,
                                   .owner = options->owner,
                                   .label = options->label};
    return choose_kind(verb, options, request);
}

void lock_request_prepare(struct lock_request *lock_request, int busy_code, bool quiet,
                          const struct hf_request *request)
{
    lock_request->busy_code = busy_code;
    lock_request->quiet = quiet || (busy_code == 0 && request->wait_ms != HF_FOREVER);
    lock_request->kind = request->kind;
    lock_request->units = request->units;
    lock_request->has_owner = request->owner != NULL;
}

void lock_request_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct lock_request *lock_request = arg;
    uint64_t one = 1;

    (void)lease;
    if (outcome != HF_OK)
        snprintf(lock_request->words, sizeof lock_request->words, "%s", hf_error_text());
    atomic_store(&lock_request->outcome, (int)outcome);
    (void)!write(lock_request->wake_fd, &one, sizeof one);
}

bool lock_request_setting(const hf_client *client, const char *name, int64_t *value)
{
    const char *source;
    return hf_client_setting(client, name, value, &source) == HF_OK &&
           strcmp(source, "default") != 0;
}

int64_t lock_request_wait(const hf_client *client, int64_t wait_ms)
{
    if (wait_ms == HF_WAIT_DEFAULT && !lock_request_setting(client, "wait", &wait_ms))
        wait_ms = HF_FOREVER;
    return wait_ms;
}

static void say_held_already(const char *name, uint64_t token)
{
    complain("\"%s\": you hold it already (token %" PRIu64
             "); --owner would let you enter it again",
             output_shown(name).text, token);
}

int lock_request_held_already(const struct lock_request *lock_request, const char *name,
                              uint64_t token)
{
    if (!lock_request->quiet)
        say_held_already(name, token);
    return lock_request->busy_code >= 0 ? lock_request->busy_code : hf_status_exit_code(HF_BUSY);
}

int lock_request_unreachable(const char *reason, bool timed_out)
{
    complain("%s%s", *reason ? reason : hf_status_text(HF_UNAVAILABLE),
             timed_out ? "; given up, as --connect-wait says" : "");
    return hf_status_exit_code(HF_UNAVAILABLE);
}

/* Prints who holds the lock, if the engine answers quickly. */
static void say_busy(const struct lock_request *lock_request, hf_client *client, const char *name,
                     hf_status outcome)
{
    struct holder_lookup *holder_lookup = holder_lookup_begin(client, name, lock_request->wake_fd);
    bool seen = holder_lookup && holder_lookup_done(holder_lookup, HOLDER_LOOKUP_MS) &&
                holder_lookup->status == HF_OK && holder_lookup->rows.count > 0;
    uint64_t ours =
        seen ? held_in_the_way(name, &holder_lookup->rows, lock_request->kind, lock_request->units)
             : 0;

    if (ours)
        say_held_already(name, ours);
    else if (seen)
        complain("%s", holder_text_describe(name, &holder_lookup->rows).text);
    else if (*lock_request->words)
        complain("%s", lock_request->words);
    else
        complain("\"%s\": %s", output_shown(name).text, hf_status_text(outcome));
    holder_lookup_end(holder_lookup);
}

int lock_request_refused(const struct lock_request *lock_request, hf_client *client,
                         const char *name)
{
    hf_status outcome = (hf_status)atomic_load(&lock_request->outcome);
    int code = hf_status_exit_code(outcome);

    if (outcome != HF_BUSY && outcome != HF_TIMEOUT) {
        complain("%s", *lock_request->words ? lock_request->words : hf_status_text(outcome));
        return code;
    }
    if (!lock_request->quiet)
        say_busy(lock_request, client, name, outcome);
    return lock_request->busy_code >= 0 ? lock_request->busy_code : code;
}
