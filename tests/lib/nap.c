/* nap.c - clock and sleep of the test programs. */
#include "nap.h"

#include <time.h>

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_ms(void)
{
    return now_ns() / 1000000;
}

void nap_us(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

void nap_ms(int64_t ms)
{
    nap_us(ms * 1000);
}
