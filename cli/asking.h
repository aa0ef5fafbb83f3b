/* asking.h - what `run` and `acquire` share: options become a request, its outcome comes on the library's thread, and a
 * refusal is put into words. */
#pragma once
#include "options.h"
#include <stdatomic.h>

#define UNDECIDED (-1)

/* The outcome of a request that was started. */
struct asking {
    int bell;           /* rung when the outcome is there */
    atomic_int outcome; /* hf_status, or UNDECIDED; written by the library's thread, as are the words before it */
    char words[512];
};

/* The part of a request that options say. 0, or 64 after a message that begins with the verb. */
int asking_fill(const char *verb, const struct cli_options *options, struct hf_request *request);

/* An hf_done_fn whose arg is a struct asking. */
void asking_done(hf_lease *lease, hf_status outcome, void *asking);

/* Is a setting given by URL or environment? Then *value is what it says. */
bool asking_setting(const hf_client *client, const char *name, int64_t *value);

/* How long the command waits when no option says it: what the settings say, else for ever. */
int64_t asking_wait(const hf_client *client, int64_t wait_ms);

/* Not granted: says why, and for busy who holds it; answers with the exit code. busy_code replaces 75 unless it is -1.
 */
int asking_refused(const struct asking *asking, hf_client *client, const char *name, int busy_code);
