/* clock.c - the clocks. */
#include "clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_boot(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

/* CLOCK_BOOTTIME minus CLOCK_MONOTONIC: the time that the machine slept. In a time namespace it
 * may be negative. Only CLOCK_MONOTONIC has a coarse, cheaper form. */
static _Atomic int64_t asleep = INT64_MIN / 2;

/* Measures `asleep`. The boot time is read first, so the result is never too large. The true value
 * only grows, so the largest measurement is the best. */
void clock_tune(void)
{
    int64_t boot = clock_boot(), measured = boot - clock_monotonic();
    if (measured > atomic_load_explicit(&asleep, memory_order_relaxed))
        atomic_store_explicit(&asleep, measured, memory_order_relaxed);
}

int64_t clock_boot_lately(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE) + atomic_load_explicit(&asleep, memory_order_relaxed);
}

int64_t clock_thread_cpu(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void)
{
    return read_clock(CLOCK_REALTIME) / 1000;
}

void clock_sleep_until(int64_t boot)
{
    struct timespec until = {.tv_sec = boot / 1000000000, .tv_nsec = boot % 1000000000};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}
