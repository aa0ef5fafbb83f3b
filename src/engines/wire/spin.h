/* spin.h - whether it pays to look again and again for a moment before sleeping.
 *
 * Waking a sleeping thread costs more than a server on the same machine needs to answer. So whoever waits for an answer
 * looks for `spin` first; when the answer comes later than that, as it does from a server far away or from a busy
 * machine, looking was in vain, and each time in a row that it was doubles the number of waits that go to sleep at
 * once. */
#pragma once
#include <stdbool.h>

enum { HF_SPIN_RESTS = 8 }; /* where it never pays, one wait in 2^8 looks in vain */

struct hf_spin {
    unsigned misses; /* in a row */
    unsigned rest;   /* waits that sleep at once */
};

static inline bool hf_spin_pays(struct hf_spin *spin)
{
    if (!spin->rest)
        return true;
    spin->rest--;
    return false;
}

static inline void hf_spin_learn(struct hf_spin *spin, bool hit)
{
    spin->misses = hit ? 0 : spin->misses < HF_SPIN_RESTS ? spin->misses + 1 : HF_SPIN_RESTS;
    spin->rest = (1u << spin->misses) - 1;
}
