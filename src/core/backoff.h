/* backoff.h - exponential back-off with full jitter: pause number n is drawn evenly from
 * [retry_floor, min(retry_max, retry_min * 2^n)]. */
#pragma once
#include "timing.h"

/* Returns the length of a pause after that many tries; `random` is any 32 random bits. It is
 * never 0, so that no retry loop spins. */
nanos backoff_pause(const struct timing *t, uint32_t tries, uint32_t random);
