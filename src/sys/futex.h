/* futex.h - sleeping on words in shared memory. Times are CLOCK_BOOTTIME nanoseconds, INT64_MAX = no limit. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t hf_word;

/* Sleeps while *word == expected, until then at most. May return early for no reason. */
void hf_futex_wait(hf_word *word, uint32_t expected, int64_t until);

/* The same on two words at once (FUTEX_WAITV, Linux 5.16); false when the kernel does not have it: nothing was waited
 * for. */
bool hf_futex_wait_two(hf_word *a, uint32_t expect_a, hf_word *b, uint32_t expect_b, int64_t until);

void hf_futex_wake(hf_word *word, int count);

/* The same for words that no other process sees: the kernel need not find out which page they lie in. */
void hf_futex_wait_here(hf_word *word, uint32_t expected, int64_t until);
void hf_futex_wake_here(hf_word *word, int count);
