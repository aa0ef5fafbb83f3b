/* backoff.c - exponential back-off with full jitter. */
#include "backoff.h"

#include <assert.h>

nanos backoff_pause(const struct timing *t, uint32_t tries, uint32_t random)
{
    assert(t->retry_floor > 0 && t->retry_floor <= t->retry_min);

    nanos ceiling = t->retry_min;
    for (uint32_t i = 0; i < tries && ceiling < t->retry_max; i++)
        ceiling = ceiling > t->retry_max / 2 ? t->retry_max : ceiling * 2;
    nanos span = ceiling - t->retry_floor;

    /* span * random / 2^32, computed in two halves so that no span overflows. */
    nanos drawn = (span >> 32) * random + (((span & UINT32_MAX) * (nanos)(random >> 1)) >> 31);
    return t->retry_floor + drawn;
}
