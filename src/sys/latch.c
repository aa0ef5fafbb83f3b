/* latch.c - what happens when a latch is taken. */
#include "latch.h"

/* Who sleeps leaves the latch marked, and who gets it after that does too: there may be more who sleep. */
void hf_latch_wait(hf_latch *latch)
{
    while (atomic_exchange_explicit(&latch->word, HF_LATCH_WANTED, memory_order_acquire) != HF_LATCH_FREE)
        hf_futex_wait_here(&latch->word, HF_LATCH_WANTED, INT64_MAX);
}
