/* io_policy.h - a switch for each policy of the I/O driver.
 *
 * A policy makes the driver faster and changes no result: with every switch off, callers get the
 * same replies (tests/unit/io_policies.c). `bench/policies` measures each policy on and off, and
 * docs/benchmarks.md has the figures. A policy that gains less than 5 % in every workload goes. */
#pragma once
#include <stdbool.h>

struct io_policy {
    bool spin;      /* io_spin.c: check for a reply for a moment before sleeping */
    bool recv_wait; /* io_recv_wait.c: sleep in recv() instead of poll() */
    bool batch;     /* io_batch.c: callers woken together send their requests together */
    bool hand_on;   /* io_hand_on.c: a leaving driver prefers a parked caller as the next driver */
};

/* The policies of drivers that are opened from now on. All are on. Only tests and the bench write
 * here. */
extern struct io_policy io_policy;
