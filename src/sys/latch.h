/* latch.h - a lock of four bytes between the threads of one process. Free of charge but for one atomic operation to get
 * it and one to let go; who finds it taken sleeps in the kernel. */
#pragma once
#include "futex.h"

typedef struct {
    hf_word word;
} hf_latch;

enum hf_latch_state { HF_LATCH_FREE, HF_LATCH_HELD, HF_LATCH_WANTED }; /* the last: held, and somebody may sleep */

void hf_latch_wait(hf_latch *latch); /* the rare half of hf_latch_lock() */

static inline bool hf_latch_try(hf_latch *latch)
{
    uint32_t seen = HF_LATCH_FREE;
    return atomic_compare_exchange_strong_explicit(&latch->word, &seen, HF_LATCH_HELD, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void hf_latch_lock(hf_latch *latch)
{
    if (!hf_latch_try(latch))
        hf_latch_wait(latch);
}

/* One that nobody else can see yet is held from here on. */
static inline void hf_latch_begin_held(hf_latch *latch)
{
    atomic_store_explicit(&latch->word, HF_LATCH_HELD, memory_order_relaxed);
}

/* Whoever gets it next may free its memory: the wake goes to the address alone. */
static inline void hf_latch_unlock(hf_latch *latch)
{
    if (atomic_exchange_explicit(&latch->word, HF_LATCH_FREE, memory_order_release) == HF_LATCH_WANTED)
        hf_futex_wake_here(&latch->word, 1);
}
