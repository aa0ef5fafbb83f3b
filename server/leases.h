/* leases.h - what other parts of the service need of leases. */
#pragma once
#include "server.h"

/* Prefix of the service's own names: records of Idempotency-Keys. */
#define RECORD_PREFIX "holdfast.idempotency/"

bool is_own_name(const char *name);
void answer_own_name(struct exchange *x); /* Answers 403. */

struct leases *leases_new(struct server *server);
void leases_free(struct leases *leases);

/* Stops granting: waiters are refused, and leases that are renewed here are released. */
void leases_stop(struct leases *leases);
size_t leases_waiting(const struct leases *leases);
/* Returns true if no acquire is pending and no release is in flight. */
bool leases_idle(const struct leases *leases);

/* State of a name for a refusal: holder, place, waiters, retryAfterMs. */
struct lock_state {
    json_t *holder; /* NULL if unknown */
    uint32_t waiters;
    /* time until enough holds end if none of them is renewed or released; -1 if unknown */
    int64_t left_ms;
};
/* Reads the state of a name; blocks. `needed` is the number of units of the refused request. */
void lock_state_read(hf_client *client, const char *name, uint32_t needed,
                     struct lock_state *lock_state);

/* Answers 409 with the state; takes the holder's reference. `extra` may be NULL; its reference
 * is taken. */
void answer_busy(struct exchange *x, const struct lock_state *lock_state, const char *detail,
                 json_t *extra);
