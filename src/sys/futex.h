/* futex.h - sleeping on words in shared memory. Times are CLOCK_BOOTTIME in nanoseconds; INT64_MAX
 * is no limit. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t futex_word;

/* Sleeps while *word == expected, at most until `until`. May return early without a reason. */
void futex_wait(futex_word *word, uint32_t expected, int64_t until);

/* Sleeps on two words at once (FUTEX_WAITV, Linux 5.16). Returns false at once if the kernel does
 * not offer it. */
bool futex_wait_two(futex_word *a, uint32_t expect_a, futex_word *b, uint32_t expect_b,
                    int64_t until);

void futex_wake(futex_word *word, int count);

/* Wakes every sleeper. Words in a file that processes share need this even if only one thread is
 * to sleep there: a thread that was killed stays in the kernel's queue of the word until it runs
 * once more, and would take the only wake. */
void futex_wake_all(futex_word *word);

/* The same for words that only this process uses. They are cheaper: the kernel need not look up the
 * page. */
void futex_wait_here(futex_word *word, uint32_t expected, int64_t until);
void futex_wake_here(futex_word *word, int count);
