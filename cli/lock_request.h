/* lock_request.h - the request of `run` and `acquire`: options become a request, the library's
 * thread delivers its outcome, and a refusal becomes a message and an exit code. */
#pragma once
#include "options.h"
#include <stdatomic.h>

#define UNDECIDED (-1)

/* A started request and its outcome. */
struct lock_request {
    int busy_code;           /* exit code instead of 75; -1 if not given */
    bool quiet;              /* print nothing while waiting and when busy */
    int64_t connect_wait_ms; /* longest wait for an engine that does not answer */
    hf_kind kind;            /* kind that is requested */
    uint32_t units;          /* units that are requested */
    bool has_owner;          /* the request names an owner, which may already hold the lock */
    int wake_fd;             /* eventfd, written when there is an outcome */
    atomic_int outcome; /* hf_status, or UNDECIDED; set by the library's thread, after `words` */
    char words[512];
};

/* Fills a request from options. Returns 0, or 64 after a message that begins with the verb. */
int lock_request_fill(const char *verb, const struct cli_options *options,
                      struct hf_request *request);

/* Sets how to report waiting and a refusal. If busy counts as success (-E 0) and the wait is
 * bounded, nothing is printed. */
void lock_request_prepare(struct lock_request *lock_request, int busy_code, bool quiet,
                          const struct hf_request *request);

/* An hf_done_fn whose arg is a struct lock_request. */
void lock_request_done(hf_lease *lease, hf_status outcome, void *lock_request);

/* Returns true if URL or environment give the setting; *value is then its value. */
bool lock_request_setting(const hf_client *client, const char *name, int64_t *value);

/* Returns the wait in force: the option, otherwise the setting, otherwise forever. */
int64_t lock_request_wait(const hf_client *client, int64_t wait_ms);

/* An outer run holds the lock with this token, so the wait would never end: prints that and
 * returns the exit code. */
int lock_request_held_already(const struct lock_request *lock_request, const char *name,
                              uint64_t token);

/* The engine did not answer: prints the reason and returns the exit code. timed_out: it was waited
 * for as long as --connect-wait allows. */
int lock_request_unreachable(const char *reason, bool timed_out);

/* Prints why the request was refused, with the holder if the lock is busy. Returns the exit
 * code. */
int lock_request_refused(const struct lock_request *lock_request, hf_client *client,
                         const char *name);
