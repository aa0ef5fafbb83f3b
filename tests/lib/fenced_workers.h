/* fenced_workers.h - threads that take turns under one lock and write to a store that refuses older
 * tokens. What a failover loses shows as writes that were refused, as holders who believe at the
 * same time, and as losses that were reported. */
#pragma once
#include "actors.h"

struct worker_totals {
    unsigned writes, refused; /* number of accepted and of refused writes */
    unsigned most;            /* number of workers that believed at once, at most */
    unsigned lost;            /* number of leases that were reported lost */
    unsigned unserved;        /* number of workers that gave up, because they were not served */
    int64_t longest_ms;       /* longest time between two accepted writes */
};

enum { WORKERS_MOST = 8 };

/* One thread for each client. All ask for what `want` says, which must outlive them. */
void workers_begin(hf_client *const *client, unsigned count, const struct want *want);
/* Ends the threads and prints the totals. */
struct worker_totals workers_end(void);
