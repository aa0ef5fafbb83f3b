/* waits.h - what the files that serve a request for a lease share. A request becomes a `wait` (waits.c), which
 * lease_request.c fills in and leases.c starts; keyed.c does what an Idempotency-Key wants beforehand; granting.c
 * answers with a lease, which told.c notes for later requests under the key, leases.c without; giving_back.c takes back
 * what nobody has. All on the loop. */
#pragma once
#include "leases.h"
#include <openssl/sha.h>

#define HEX_BYTES (2 * SHA256_DIGEST_LENGTH + 1)
#define DAY_MS (INT64_C(24) * 3600 * 1000)

struct asker {
    struct exchange *x;
    struct wait *wait;
    struct asker *next;
};

enum phase { PHASE_TURN, PHASE_RECORD, PHASE_LOCK, PHASE_NOTE };

/* What a request under an Idempotency-Key has besides its lease. */
struct keyed {
    hf_lease *turn, *record, *note; /* NULL: not yet, or not any more */
    int64_t record_ms;
    char body[HEX_BYTES]; /* caller, key and body: the attempt of the record */
};

struct wait {
    struct leases *leases;
    struct wait *next, *prev;
    struct asker *askers;
    enum phase phase;
    hf_lease *lease;           /* of the phase */
    hf_lease *granted;         /* the lock's, while its note is written */
    bool told;                 /* an answer had it before */
    int64_t until_ms;          /* the end of what it may wait */
    struct hf_request request; /* its texts are below */
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1], correlation[HF_CORRELATION_MAX + 1];
    bool renews, counted;
    char record[sizeof RECORD_PREFIX + HEX_BYTES]; /* the name of the record */
    char key[HEX_BYTES];                           /* caller and key, a secret; empty: there is none */
    char attempt[HEX_BYTES];                       /* of the lock */
    struct keyed keyed;
    hf_status outcome;
    char words[512];
};

struct leases {
    struct server *server;
    struct event *renewals; /* when to look for them */
    struct wait *waits;
    size_t waiting; /* those that may wait */
    size_t busy;    /* jobs that give back */
    void *names;    /* struct name_count */
};

/* ---- waits.c ---- */

void wait_count(struct wait *wait);
void wait_uncount(struct wait *wait);
bool wait_may(struct exchange *x, struct wait *wait); /* is there room for one more? False after it answered */
void wait_counts_free(struct leases *leases);

void wait_cancel(struct wait *wait); /* what of it stands in a queue */
void wait_free(struct wait *wait);
bool wait_join(struct wait *wait, struct exchange *x); /* false: no memory */
/* Takes an asker out for its answer. NULL: there is none (any more). */
struct exchange *wait_take_asker(struct wait *wait);

/* ---- lease_request.c ---- */

/* What the body asks for. False after a refusal was answered. */
bool wait_read(struct exchange *x, struct wait *wait, json_t *body);

/* ---- leases.c ---- */

void wait_start_lock(struct wait *wait);
void wait_refused(struct wait *wait);              /* answers everybody, and frees it */
void leases_watch_renewals(struct leases *leases); /* there is a lease more that is renewed here */
/* Of every acquire of a wait: its turn, its record, the lock. */
void wait_done(hf_lease *lease, hf_status outcome, void *wait);

/* ---- keyed.c ---- */

bool keyed_read(struct exchange *x, struct wait *wait, json_t *body); /* false after it answered */
/* The wait under the same key, if this instance has one. */
struct wait *keyed_shared(struct leases *leases, const struct wait *wanted);
void keyed_start(struct wait *wait);
void keyed_done(struct wait *wait);       /* turn, record or note have their outcome */
void keyed_start_lock(struct wait *wait); /* nothing was told under its key */
void keyed_start_note(struct wait *wait); /* the lock is granted */
struct hf_request keyed_record_request(const char *name, const struct keyed *keyed);

/* ---- told.c ---- */

struct told_note {
    struct hf_request request; /* its texts are below */
    char name[sizeof RECORD_PREFIX + HEX_BYTES + 24], label[HF_LABEL_MAX + 1];
};
bool told_request(const struct wait *wait, struct told_note *note); /* false: the lease is lost already */
void told_recall(struct wait *wait); /* answers again what was told under its key, or goes on with the lock */

/* ---- granting.c ---- */

void wait_granted(struct wait *wait);

/* ---- giving_back.c ---- */

/* A lease, and what belongs to its key; takes over both. `again`: the next try under the key needs another attempt. */
void give_back(struct leases *leases, hf_lease *lease, struct keyed *keyed, bool again);
bool lease_leave_behind(hf_lease *lease); /* made to outlive its handle */
