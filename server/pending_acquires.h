/* pending_acquires.h - shared by the files that serve a request for a lease. A request becomes a
 * `wait` (pending_acquires.c). lease_request.c reads its body, leases.c starts it. For an
 * Idempotency-Key idempotency.c acquires the key's lock and record first, and
 * idempotency_replay.c notes the grant. grant_response.c answers with a lease, leases.c without
 * one. release_job.c releases leases that no client has. All on the loop. */
#pragma once
#include "leases.h"
#include <openssl/sha.h>

#define HEX_BYTES (2 * SHA256_DIGEST_LENGTH + 1)
#define CALLER_BYTES (HEX_BYTES + 128)
#define OWNER_MAX 64 /* limit of the library */
#define DAY_MS (INT64_C(24) * 3600 * 1000)

struct requester {
    struct exchange *x;
    struct wait *wait;
    struct requester *next;
};

enum phase { PHASE_KEY_LOCK, PHASE_RECORD, PHASE_LOCK, PHASE_NOTE };

/* What a request under an Idempotency-Key has besides its lease. */
struct idempotency {
    hf_lease *key_lock, *record, *note; /* NULL: not acquired yet, or released */
    int64_t record_ms;
    char body[HEX_BYTES]; /* attempt of the record: made of caller, key and body */
};

struct wait {
    struct leases *leases;
    struct wait *next, *prev;
    struct requester *requesters;
    enum phase phase;
    hf_lease *lease;           /* lease of the present phase */
    hf_lease *granted;         /* lease of the lock while its note is written */
    bool replayed;             /* an earlier answer carried the lease */
    int64_t granted_ms;        /* time of the grant in milliseconds since 1970 */
    int64_t until_ms;          /* end of the wait, by clock_ms() */
    struct hf_request request; /* points to the texts below */
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1], correlation[HF_CORRELATION_MAX + 1];
    char owner[OWNER_MAX + 1];
    bool renews, counted;
    char record[sizeof RECORD_PREFIX + HEX_BYTES]; /* name of the record */
    char key[HEX_BYTES];     /* made of caller and key, a secret; empty without a key */
    char attempt[HEX_BYTES]; /* attempt of the lock */
    struct idempotency idempotency;
    hf_status outcome;
    char message[512];
};

struct leases {
    struct server *server;
    struct event *renewals; /* timer: check for renewals */
    struct wait *waits;
    size_t waiting; /* number of pending acquires with waitMs above 0 */
    size_t busy;    /* number of jobs in flight */
    void *names;    /* tree of struct name_count */
};

/* ---- pending_acquires.c ---- */

void wait_count(struct wait *wait);
void wait_uncount(struct wait *wait);
/* Returns true if one more request may wait; false after it answered with a refusal. */
bool wait_may(struct exchange *x, struct wait *wait);
void wait_counts_free(struct leases *leases);

void wait_cancel(struct wait *wait); /* Leaves the queue, if the wait is in one. */
void wait_free(struct wait *wait);
bool wait_join(struct wait *wait, struct exchange *x); /* Returns false without memory. */
/* Removes a requester so that it can be answered. NULL if there is none left. */
struct exchange *wait_take_requester(struct wait *wait);

/* ---- lease_request.c ---- */

/* Reads the body. Returns false after it answered with a refusal. */
bool wait_read(struct exchange *x, struct wait *wait, json_t *body);

/* ---- leases.c ---- */

void wait_start_lock(struct wait *wait);
void wait_refused(struct wait *wait);              /* Answers all requesters and frees the wait. */
void leases_watch_renewals(struct leases *leases); /* Starts checking for renewals. */
/* The hf_done_fn of every acquire that a wait makes: of the key's lock, record and note, and of the
 * lock itself. */
void wait_done(hf_lease *lease, hf_status outcome, void *wait);

/* ---- idempotency.c ---- */

/* Reads the Idempotency-Key of a request. Returns false after it answered with a refusal. */
bool idempotency_read(struct exchange *x, struct wait *wait, json_t *body);
/* Returns the wait under the same key in this instance, or NULL. */
struct wait *idempotency_shared(struct leases *leases, const struct wait *wanted);
void idempotency_start(struct wait *wait);
/* Called when the acquire of the key's lock, the record or the note has its outcome. */
void idempotency_done(struct wait *wait);
/* Nothing was granted under the key yet: starts the lock. */
void idempotency_start_lock(struct wait *wait);
void idempotency_start_note(struct wait *wait); /* The lock is granted: starts the note. */
void hex_print(const unsigned char hash[SHA256_DIGEST_LENGTH], char text[HEX_BYTES]);
void hex_digest(const void *data, size_t len, char text[HEX_BYTES]);
/* Prints a text that identifies the caller: two callers never have the same text. */
void caller_print(const struct exchange *x, char text[CALLER_BYTES]);
struct hf_request idempotency_record_request(const char *name,
                                             const struct idempotency *idempotency);

/* ---- idempotency_replay.c ---- */

struct replay_note {
    struct hf_request request; /* points to the texts below */
    char name[sizeof RECORD_PREFIX + HEX_BYTES + 24], label[HF_LABEL_MAX + 1];
};
/* Returns false if the lease is already lost. */
bool idempotency_replay_request(const struct wait *wait, struct replay_note *note);
/* Repeats the answer given under its key, or continues with the lock. */
void idempotency_replay(struct wait *wait);

/* ---- grant_response.c ---- */

void wait_granted(struct wait *wait);

/* ---- release_job.c ---- */

/* Releases a lease and the lock of its idempotency key, and frees the handles of both and of the
 * key's record and note. `again`: the next request under the key must use another attempt. */
void release_job(struct leases *leases, hf_lease *lease, struct idempotency *idempotency,
                 bool again);
bool lease_leave_behind(hf_lease *lease); /* Makes the lease outlive its handle. */
