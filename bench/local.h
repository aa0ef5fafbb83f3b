/* local.h - what the programs that measure locks of one machine share: how pairs without company are timed, where
 * workers run, and how a crew's result is printed. */
#pragma once
#include "crew.h"
#include "requests.h"

#include <string.h>
#include <unistd.h>

/* A look at the clock costs several of the quickest pairs, so it is looked at once for each batch. */
enum { PAIRS_A_BATCH = 1000 };

/* Takes and gives for b->seconds; the times are those of one pair, averaged over a batch. `pair` is known where this is
 * called and becomes part of the loop: a call through a pointer would be a good part of the quickest pair. */
static inline __attribute__((always_inline)) void measure_pairs(const struct bench *b, struct result *r,
                                                                void (*pair)(void *), void *lock)
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

/* Workers take the CPUs by turns unless --cpu puts all on one: left to the scheduler, the same ring flips between one
 * CPU and two, and its speed by a factor of five. */
static inline void spread(const struct bench *b, int worker)
{
    if (b->cpu < 0)
        pin((int)(worker % sysconf(_SC_NPROCESSORS_ONLN)));
}

/* threads-N: N threads that sleep until one wakes them, and do nothing else (local_sleepers.c). */
int run_sleepers(const struct bench *b, const char *who);

/* local-handoff, or local-contended-N where --workers does not say how many. */
static inline int run_local_crew(const struct bench *b, const struct lock_kind *kind)
{
    struct result result;
    struct bench crew = *b;
    if (crew.workers == 0)
        crew.workers = workload_number(b->workload, "local-contended-");
    bool hands_over = strcmp(b->workload, "local-handoff") == 0;
    if (!hands_over && crew.workers < 2)
        bench_fail("%s: at least 2 workers", b->workload);
    int code = (hands_over ? crew_hand_over : crew_run)(&crew, kind, &result);
    if (code == 0)
        result_print(&result);
    return code;
}
