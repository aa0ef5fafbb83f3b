/* leases.h - what the rest of the service needs of leases. */
#pragma once
#include "server.h"

/* Names that begin like this are ours: records of idempotency keys. */
#define RECORD_PREFIX "holdfast.idempotency/"

struct leases *leases_new(struct server *server);
void leases_free(struct leases *leases);

/* No new grants: who waits is told so, leases that are renewed here are given back. */
void leases_stop(struct leases *leases);
size_t leases_waiting(const struct leases *leases);
bool leases_idle(const struct leases *leases); /* nothing is waited for or given back any more */

/* Holders and waiters of a name as they stand in a refusal: holder, place, waiters, retryAfterMs. Blocks. */
struct standing {
    json_t *holder; /* NULL: not known */
    uint32_t waiters;
    int64_t left_ms; /* until the first hold ends; -1: not known */
};
void standing_read(hf_client *client, const char *name, struct standing *standing);

/* 409 with what is known; takes the holder's reference. `extra` may be NULL; its reference is taken. */
void answer_busy(struct exchange *x, const struct standing *standing, const char *detail, json_t *extra);
