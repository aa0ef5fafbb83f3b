/* clock.c - the clocks. */
#include "clock.h"

#include <errno.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t hf_clock_boot(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

int64_t hf_clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t hf_clock_wall_us(void)
{
    return read_clock(CLOCK_REALTIME) / 1000;
}

void hf_sleep_until(int64_t boot)
{
    struct timespec until = {.tv_sec = boot / 1000000000, .tv_nsec = boot % 1000000000};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}
