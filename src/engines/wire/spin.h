/* spin.h - whether it pays to look again and again for a moment before sleeping.
 *
 * Waking a sleeping thread costs more than a server on the same machine needs to answer. So whoever waits for an answer
 * looks for `spin` first; when the answer comes later than that, as it does from a server far away or from a busy
 * machine, looking was in vain, and each time that it was doubles the number of waits that go to sleep at once. One
 * that was not halves how often it was: a stroke of luck teaches little, four of them that it pays now. */
#pragma once
#include <stdbool.h>

enum { HF_SPIN_RESTS = 12 }; /* where it never pays, one wait in 2^12 looks in vain: some 10 ns for each */

struct hf_spin {
    unsigned misses; /* less half of them with each hit */
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
    spin->misses = hit ? spin->misses / 2 : spin->misses < HF_SPIN_RESTS ? spin->misses + 1 : HF_SPIN_RESTS;
    spin->rest = (1u << spin->misses) - 1;
}
