/* giving_back.c - a lease that nobody has is released on a worker, with what belongs to its key. */
#include "engine.h"
#include "waits.h"
#include <stdlib.h>
#include <string.h>

struct give_back {
    struct job job;
    struct leases *leases;
    hf_lease *lease; /* NULL: only what belongs to the key */
    struct keyed keyed;
    bool again; /* the next try under the key needs another attempt */
};

bool lease_leave_behind(hf_lease *lease)
{
    char text[HF_EXPORT_MAX];
    bool fine = hf_lease_export(lease, text, sizeof text) == HF_OK;
    explicit_bzero(text, sizeof text);
    return fine;
}

/* The same record under another token. */
static bool renew_record(hf_client *client, const struct keyed *keyed)
{
    struct hf_request request = keyed_record_request(hf_lease_name(keyed->record), keyed);
    hf_lease *lease = NULL;
    bool renewed = hf_release(keyed->record) == HF_OK && hf_acquire(client, &request, &lease) == HF_OK &&
                   lease_leave_behind(lease);
    hf_lease_free(lease);
    return renewed;
}

/* Without its turn an instance does not know whether another one has granted the same attempt meanwhile: then the lease
 * is left to its time. */
static void do_give_back(struct job *job)
{
    struct give_back *give = (struct give_back *)(void *)job;
    hf_lease *turn = give->keyed.turn;
    bool ours = !turn || hf_lease_ok(turn);
    if (give->lease && (ours || !lease_leave_behind(give->lease)))
        (void)hf_release(give->lease);
    bool renewed = give->keyed.record && give->again && ours &&
                   renew_record(engine_client(give->leases->server->engine), &give->keyed);
    if (renewed && give->keyed.note)
        (void)hf_release(give->keyed.note); /* nobody looks for it any more */
    if (turn)
        (void)hf_release(turn);
}

static void free_given(const struct give_back *give)
{
    hf_lease_free(give->lease);
    hf_lease_free(give->keyed.note);
    hf_lease_free(give->keyed.record);
    hf_lease_free(give->keyed.turn);
}

static void after_give_back(struct job *job)
{
    struct give_back *give = (struct give_back *)(void *)job;
    free_given(give);
    give->leases->busy--;
    free(give);
}

void give_back(struct leases *leases, hf_lease *lease, struct keyed *keyed, bool again)
{
    struct workers *workers = leases->server->workers; /* NULL: at the very end */
    struct give_back given = {{do_give_back, after_give_back, NULL}, leases, lease, *keyed, again};
    struct give_back *give = malloc(sizeof *give);
    bool nothing = !lease && !keyed->turn;
    *keyed = (struct keyed){.turn = NULL};
    if (workers && give && !nothing) {
        *give = given;
        leases->busy++;
        workers_post(workers, &give->job);
        return;
    }
    free(give);
    if (!nothing)
        do_give_back(&given.job);
    free_given(&given);
}
