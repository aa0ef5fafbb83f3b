/* clock.h - the clocks. Validity is counted on CLOCK_BOOTTIME, because a lease goes on ending while the machine sleeps;
 * wall time is for display and tokens only. */
#pragma once
#include "holdfast.h"

int64_t hf_clock_boot(void);       /* nanoseconds */
int64_t hf_clock_monotonic(void);  /* nanoseconds; for time-outs of system calls */
void hf_sleep_until(int64_t boot); /* on CLOCK_BOOTTIME; signals do not shorten it */
int64_t hf_clock_wall_us(void);    /* microseconds since 1970 */
