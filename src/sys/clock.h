/* clock.h - the clocks. Validity is counted on CLOCK_BOOTTIME, because a lease goes on ending while the machine sleeps;
 * wall time is for display and tokens only. */
#pragma once
#include "holdfast.h"

int64_t hf_clock_boot(void); /* nanoseconds */
/* The same as of the kernel's last tick, at most 10 ms ago, for a fourth of the price. When the machine has slept since
 * the last hf_clock_tune() it is behind by as much, never ahead. */
int64_t hf_clock_boot_lately(void);
void hf_clock_tune(void);
int64_t hf_clock_monotonic(void);  /* nanoseconds; for time-outs of system calls */
void hf_sleep_until(int64_t boot); /* on CLOCK_BOOTTIME; signals do not shorten it */
int64_t hf_clock_wall_us(void);    /* microseconds since 1970 */
