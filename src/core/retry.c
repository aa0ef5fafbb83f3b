/* retry.c - exponential back-off with full jitter. */
#include "retry.h"

hf_nanos hf_retry_pause(const struct hf_timing *t, uint32_t tries, uint32_t random)
{
    hf_nanos ceiling = t->retry_min;
    for (uint32_t i = 0; i < tries && ceiling < t->retry_max; i++)
        ceiling = ceiling > t->retry_max / 2 ? t->retry_max : ceiling * 2;
    hf_nanos span = ceiling - t->retry_floor;
    /* span * random / 2^32 in two halves, so that no span overflows. */
    hf_nanos drawn = (span >> 32) * random + (((span & UINT32_MAX) * (hf_nanos)(random >> 1)) >> 31);
    return t->retry_floor + drawn;
}
