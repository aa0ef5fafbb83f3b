/* chaos_outcomes.h - an acquire that tells its outcome by a callback, and that is cancelled now and
 * then: it is told once. */
#pragma once
#include "lib/actors.h"
#include "lib/random_draw.h"

#include <semaphore.h>
#include <stdatomic.h>

enum { ROUNDS = 1 << 16 }; /* of one process, at most */

struct outcome {
    sem_t told;
    _Atomic unsigned times;
    hf_status status;
};

static inline void note_outcome(hf_lease *lease, hf_status status, void *arg)
{
    struct outcome *o = arg;
    (void)lease;
    o->status = status;
    atomic_fetch_add(&o->times, 1);
    sem_post(&o->told);
}

static inline hf_status acquire_later(hf_client *client, const struct hf_request *request,
                                      hf_lease **lease)
{
    static struct outcome outcomes[ROUNDS];
    static unsigned used;
    part_must(used < ROUNDS);
    struct outcome *o = &outcomes[used++];
    sem_init(&o->told, 0, 0);
    hf_status status = hf_acquire_start(client, request, note_outcome, o, lease);
    if (status != HF_OK)
        return status;
    if (draw(4) == 0) {
        nap_us(draw(50000));
        status = hf_cancel(*lease);
        part_must(status == HF_OK || status == HF_NOT_HELD);
    }
    while (sem_wait(&o->told) != 0) {
    }
    if (o->status != HF_OK) {
        hf_lease_free(*lease);
        *lease = NULL;
    }
    for (unsigned i = 0; i < used; i++)
        part_must(atomic_load(&outcomes[i].times) <= 1);
    return o->status;
}
