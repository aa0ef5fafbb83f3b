/* futex.c - sleeping on words in shared memory. */
#include "futex.h"

#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec to_timespec(int64_t nanos)
{
    if (nanos < 0)
        nanos = 0;
    return (struct timespec){.tv_sec = nanos / 1000000000, .tv_nsec = nanos % 1000000000};
}

static void wait_by(int operation, futex_word *word, uint32_t expected, int64_t until)
{
    struct timespec left, *limit = NULL;
    if (until != INT64_MAX) {
        left = to_timespec(until - clock_boot());
        limit = &left;
    }
    syscall(SYS_futex, word, operation, expected, limit, NULL, 0);
}

void futex_wait(futex_word *word, uint32_t expected, int64_t until)
{
    wait_by(FUTEX_WAIT, word, expected, until);
}

void futex_wait_here(futex_word *word, uint32_t expected, int64_t until)
{
    wait_by(FUTEX_WAIT_PRIVATE, word, expected, until);
}

bool futex_wait_two(futex_word *a, uint32_t expect_a, futex_word *b, uint32_t expect_b,
                    int64_t until)
{
    struct futex_waitv words[2] = {
        {.val = expect_a, .uaddr = (uintptr_t)a, .flags = FUTEX_32},
        {.val = expect_b, .uaddr = (uintptr_t)b, .flags = FUTEX_32},
    };
    struct timespec end, *limit = NULL;

    if (until != INT64_MAX) {
        end = to_timespec(clock_monotonic() + (until - clock_boot()));
        limit = &end;
    }

    if (syscall(SYS_futex_waitv, words, 2, 0, limit, CLOCK_MONOTONIC) >= 0)
        return true;

    return errno == EAGAIN || errno == EINTR ||
           /* any other error: the system call is missing, or a filter forbids it (EPERM) */
           errno == ETIMEDOUT;
}

void futex_wake(futex_word *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

void futex_wake_all(futex_word *word)
{
    futex_wake(word, INT32_MAX);
}

void futex_wake_here(futex_word *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}
