/* retry.h - exponential back-off with full jitter: the n-th pause is drawn evenly from [floor, min(max, min * 2^n)]. */
#pragma once
#include "timing.h"

/* `random` is any 32 random bits. Never 0, so that a retry loop cannot spin. */
hf_nanos hf_retry_pause(const struct hf_timing *t, uint32_t tries, uint32_t random);
