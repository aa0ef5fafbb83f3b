/* local.h - shared by the programs that measure locks of one machine: timing of uncontended pairs
 * of acquire and release, the CPUs of workers, and the result of a workload. */
#pragma once
#include "redis_requests.h"
#include "workload.h"

#include <string.h>
#include <unistd.h>

/* Reading the clock takes as long as several of the fastest pairs, so it is read once for each
 * batch. */
enum { PAIRS_A_BATCH = 1000 };

/* Acquires and releases for b->seconds. Times are those of one pair, averaged over a batch. `pair`
 * is a constant at every call and is inlined, because a call through a pointer would be a
 * considerable part of the fastest pair. */
static inline __attribute__((always_inline)) void
measure_pairs(const struct bench *b, struct result *r, void (*pair)(void *), void *lock)
{
    struct times batches = {0};
    uint64_t count = 0;

    for (int i = 0; i < PAIRS_A_BATCH; i++)
        pair(lock);
    double used = cpu_us(0);
    int64_t from = now_ns(), at = from, end = from + (int64_t)(b->seconds * 1e9);

    while (at < end) {
        int64_t began = at;
        for (int i = 0; i < PAIRS_A_BATCH; i++)
            pair(lock);
        at = now_ns();
        times_note(&batches, at - began);
        count++;
    }

    result_rate(r, (double)count * PAIRS_A_BATCH, at - from);
    r->client_cpu_us = (cpu_us(0) - used) / r->ops;
    r->p50_us = times_us(&batches, 0.5) / PAIRS_A_BATCH;
    r->p99_us = times_us(&batches, 0.99) / PAIRS_A_BATCH;
    r->p999_us = times_us(&batches, 0.999) / PAIRS_A_BATCH;
    r->rss_kb = (double)rss_kb(0);
}

/* Spreads the workers over the CPUs in turn, unless --cpu puts all of them on one. Otherwise the
 * scheduler moves the same ring between one CPU and two, and its speed changes by a factor of
 * five. */
static inline void spread(const struct bench *b, int worker)
{
    if (b->cpu < 0)
        pin((int)(worker % sysconf(_SC_NPROCESSORS_ONLN)));
}

/* Runs threads-N: N threads that sleep until another thread wakes them (local_sleepers.c). */
int run_sleepers(const struct bench *b, const char *who);

/* Runs local-handoff, or local-contended-N, where --workers overrides N. */
static inline int run_local_workload(const struct bench *b, const struct lock_kind *kind)
{
    struct result result;
    struct bench workload = *b;

    if (workload.workers == 0)
        workload.workers = workload_number(b->workload, "local-contended-");
    bool hands_over = strcmp(b->workload, "local-handoff") == 0;
    if (!hands_over && workload.workers < 2)
        bench_fail("%s: needs at least 2 workers", b->workload);

    int code = (hands_over ? workload_handoff : workload_run)(&workload, kind, &result);
    if (code == 0)
        result_print(&result);
    return code;
}
