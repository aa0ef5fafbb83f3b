/* limits.h - for how long a simulator runs: a number of schedules, or seconds. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

struct limits {
    uint64_t schedules;
    double seconds;
};

static bool goes_on(const struct limits *limits, uint64_t done, double began)
{
    if (limits->schedules)
        return done < limits->schedules;
    return seconds_now() - began < limits->seconds;
}
