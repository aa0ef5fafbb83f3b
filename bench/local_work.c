/* local_work.c - the workloads of one machine through the library. */
#include "library.h"
#include "local.h"
#include "span.h"

#include <stdlib.h>

struct alone {
    hf_client *client;
    struct hf_request request;
};

static void pair(void *lock)
{
    struct alone *alone = lock;
    hf_lease *lease;
    library_must(hf_acquire(alone->client, &alone->request, &lease));
    library_must(hf_release(lease));
    hf_lease_free(lease);
}

static int run_pairs(const struct bench *b)
{
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    pin(b->cpu);
    struct alone alone = {.client = library_open(b, false), .request = request_of(b)};
    measure_pairs(b, &result, pair, &alone);
    library_must(hf_close(alone.client, 1000));
    result_print(&result);

    return 0;
}

enum { MILLION = 1000000 };

/* Runs cycles one after the other. The first tenth fills the pools; after it memory must not
 * grow. */
static int run_cycles(const struct bench *b)
{
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    int cycles = b->workers > 0 ? b->workers : MILLION;

    pin(b->cpu);
    struct alone alone = {.client = library_open(b, false),
                          .request = request_of(&(struct bench){.workload = ""})};

    for (int i = 0; i < cycles / 10; i++)
        pair(&alone);
    result.rss_before_kb = (double)rss_kb(0);
    struct span span = span_begin(b, NULL);

    for (int i = 0; i < cycles; i++)
        pair(&alone);
    span_end(&span, cycles, &result);
    result.bytes_each = (result.rss_kb - result.rss_before_kb) * 1024 / cycles;
    result.workers = 1;
    library_must(hf_close(alone.client, 1000));
    result_print(&result);

    return 0;
}

static void *(*open_library)(const struct bench *b, int worker);

static void *open_spread(const struct bench *b, int worker)
{
    spread(b, worker);
    return open_library(b, worker);
}

static int run_workload(const struct bench *b)
{
    struct lock_kind kind = library_kind(b);
    open_library = kind.open;
    kind.open = open_spread;
    return run_local_workload(b, &kind);
}

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    if (!b.url)
        bench_fail("--url is missing");
    if (strcmp(b.workload, "local-uncontended") == 0)
        return run_pairs(&b);
    if (strcmp(b.workload, "memory-cycles") == 0)
        return run_cycles(&b);
    if (is_workload(b.workload, "renew-")) {
        b.workers = b.workers ? b.workers : workload_number(b.workload, "renew-");
        return run_renewals(&b);
    }
    if (is_workload(b.workload, "local-contended-") || strcmp(b.workload, "local-handoff") == 0)
        return run_workload(&b);

    bench_fail("%s: not a workload of one machine", b.workload);
}
