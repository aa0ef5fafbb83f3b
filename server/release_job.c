/* release_job.c - releases a lease that no client has, on a worker, together with the locks of
 * its key. */
#include "lease_ledger.h"
#include "lock_client.h"
#include "pending_acquires.h"
#include <stdlib.h>
#include <string.h>

struct release_job {
    struct job job;
    struct leases *leases;
    hf_lease *lease; /* lease to release; NULL: only the locks of the key */
    struct idempotency idempotency;
    bool again;          /* the next request under the key must use another attempt */
    uint64_t ledger_key; /* of the lease */
    hf_status outcome;   /* of its release; HF_BUSY: not tried */
};

bool lease_leave_behind(hf_lease *lease)
{
    char text[HF_EXPORT_MAX];
    bool fine = hf_lease_export(lease, text, sizeof text) == HF_OK;
    explicit_bzero(text, sizeof text);
    return fine;
}

/* Acquires the record again, so that it has another token. */
static bool renew_record(hf_client *client, const struct idempotency *idempotency)
{
    struct hf_request request =
        idempotency_record_request(hf_lease_name(idempotency->record), idempotency);
    hf_lease *lease = NULL;
    bool renewed = hf_release(idempotency->record) == HF_OK &&
                   hf_acquire(client, &request, &lease) == HF_OK && lease_leave_behind(lease);
    hf_lease_free(lease);
    return renewed;
}

/* Without the key's lock this instance cannot know whether another one has granted the same
 * attempt meanwhile. The lease is left to expire then. */
static void do_release_job(struct job *job)
{
    struct release_job *releasing = (struct release_job *)(void *)job;
    hf_lease *key_lock = releasing->idempotency.key_lock;
    bool ours = !key_lock || hf_lease_left_ms(key_lock) > 0;

    bool may_release = releasing->lease && (ours || !lease_leave_behind(releasing->lease));
    releasing->outcome = may_release ? hf_release(releasing->lease) : HF_BUSY;
    bool renewed = releasing->idempotency.record && releasing->again && ours &&
                   renew_record(lock_client_client(releasing->leases->server->engine),
                                &releasing->idempotency);
    /* the name of the note contains the old token */
    if (renewed && releasing->idempotency.note)
        (void)hf_release(releasing->idempotency.note);
    if (key_lock)
        (void)hf_release(key_lock);
}

static void end_release_job(const struct release_job *releasing)
{
    if (releasing->lease)
        lease_ledger_release(
            lease_ledger_find_key(releasing->leases->server->ledger, releasing->ledger_key),
            releasing->outcome);
    hf_lease_free(releasing->lease);
    hf_lease_free(releasing->idempotency.note);
    hf_lease_free(releasing->idempotency.record);
    hf_lease_free(releasing->idempotency.key_lock);
}

static void after_release_job(struct job *job)
{
    struct release_job *releasing = (struct release_job *)(void *)job;
    end_release_job(releasing);
    releasing->leases->busy--;
    free(releasing);
}

/* Returns 0 if the lease was lost and so has no text: its end is counted elsewhere. */
static uint64_t ledger_key_of(hf_lease *lease)
{
    char text[HF_EXPORT_MAX];
    bool has_text = lease && hf_lease_export(lease, text, sizeof text) == HF_OK;
    uint64_t key = has_text ? text_hash(text) : 0;

    explicit_bzero(text, sizeof text);
    return key;
}

void release_job(struct leases *leases, hf_lease *lease, struct idempotency *idempotency,
                 bool again)
{
    struct workers *workers = leases->server->workers; /* NULL while the service closes */
    struct release_job on_stack = {.job = {do_release_job, after_release_job, NULL},
                                   .leases = leases,
                                   .lease = lease,
                                   .idempotency = *idempotency,
                                   .again = again,
                                   .ledger_key = ledger_key_of(lease)};
    struct release_job *releasing = malloc(sizeof *releasing);
    bool nothing = !lease && !idempotency->key_lock;

    *idempotency = (struct idempotency){.key_lock = NULL};
    bool may_post = workers && releasing && !nothing;
    if (may_post) {
        *releasing = on_stack;
        leases->busy++;
        workers_post(workers, &releasing->job);
        return;
    }

    free(releasing);
    if (!nothing)
        do_release_job(&on_stack.job);
    end_release_job(&on_stack);
}
