/* loss_notes.h - holds whose loss is noted: how often it was told, and when. */
#pragma once
#include "actors.h"

#include <stdatomic.h>

struct loss {
    _Atomic int times;
    _Atomic int64_t at_ns;
};

static inline void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    struct loss *loss = arg;
    (void)lease, (void)why;
    atomic_store(&loss->at_ns, now_ns());
    atomic_fetch_add(&loss->times, 1);
}

/* Must be granted. `loss` may be NULL, else it outlives the client. */
static inline hf_lease *hold_noting(hf_client *client, const struct want *want, struct loss *loss)
{
    struct hf_request request = request_of(want);
    request.on_lost = loss ? note_loss : NULL;
    request.lost_arg = loss;
    hf_lease *lease;
    if (hf_acquire(client, &request, &lease) != HF_OK)
        fail_msg("%s: %s", want->name, hf_error_text());
    return lease;
}
