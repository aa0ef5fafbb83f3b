/* clock.h - the clocks. Validity is counted on CLOCK_BOOTTIME, because a lease also expires while
 * the machine sleeps. Wall time is for display and tokens only. */
#pragma once
#include "holdfast.h"

int64_t clock_boot(void); /* nanoseconds */
/* Returns clock_boot() as of the kernel's last tick, at most 10 ms ago, at a quarter of the cost.
 * If the machine has slept since the last clock_tune(), the result is behind by that time; it is
 * never ahead. */
int64_t clock_boot_lately(void);
void clock_tune(void);
int64_t clock_thread_cpu(void);       /* nanoseconds that the calling thread has run */
int64_t clock_monotonic(void);        /* nanoseconds; for time-outs of system calls */
void clock_sleep_until(int64_t boot); /* on CLOCK_BOOTTIME; signals do not shorten it */
int64_t clock_wall_us(void);          /* microseconds since 1970 */
