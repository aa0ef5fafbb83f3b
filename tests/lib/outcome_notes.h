/* outcome_notes.h - what a callback told, and how often. */
#pragma once
#include "actors.h"

#include <stdatomic.h>

struct outcome {
    _Atomic int times, status;
};

static inline void note_outcome(hf_lease *lease, hf_status status, void *arg)
{
    struct outcome *outcome = arg;
    (void)lease;
    atomic_store(&outcome->status, (int)status);
    atomic_fetch_add(&outcome->times, 1);
}
