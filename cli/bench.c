/* bench.c - the verb `bench`: runs the workloads of the project's own bench for a second each on
 * the engine at hand. */
#include "output.h"
#include "verb_client.h"
#include "verbs.h"
#include "workload.h"
#include <inttypes.h>
#include <unistd.h>

#define DEFAULT_MS 1000
#define DEFAULT_WORKERS 10
#define PATIENCE_MS 10000

static const struct option_spec OPTIONS[] = {
    {"duration", 'd', "DUR", STORE_DURATION, OPTION_FIELD(duration_ms), 10, 60000,
     "how long each of the three measurements lasts; default: 1s"},
    {"workers", 0, "N", STORE_NUMBER, OPTION_FIELD(workers), 2, 1000,
     "number of processes that want one lock in the third measurement; default: 10"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

/* ---- The engine as a kind of lock ---- */

/* Each worker is a forked process with a client of its own. It inherits these from its parent. */
static const struct cli_options *given;
static char lock_name[64];

struct worker {
    hf_client *client;
    hf_lease *lease;
    bool alone;
};

static void *open_worker(const struct bench *b, int number)
{
    static struct worker worker;

    (void)number;
    worker.alone = b->workers == 1;
    int code = verb_client_open(given, NULL, &worker.client);
    if (code != 0)
        _exit(code);
    return &worker;
}

static void take(void *lock)
{
    struct worker *worker = lock;
    struct hf_request request = {
        .size = sizeof request, .name = lock_name, .label = "holdfast bench"};

    request.wait_ms = worker->alone ? 0 : PATIENCE_MS;
    hf_status status = hf_acquire(worker->client, &request, &worker->lease);
    if (status != HF_OK)
        _exit(fail_with(status));
}

static void give(void *lock)
{
    struct worker *worker = lock;
    hf_status status = hf_release(worker->lease);
    if (status != HF_OK)
        _exit(fail_with(status));
    hf_lease_free(worker->lease);
}

static void close_worker(void *lock)
{
    struct worker *worker = lock;
    int code = verb_client_close(worker->client, 0);
    if (code != 0)
        _exit(code);
}

static const struct lock_kind THE_ENGINE = {
    .who = "holdfast", .open = open_worker, .take = take, .give = give, .close = close_worker};

/* ---- The verb ---- */

struct measured {
    struct result alone, handoff, contended;
};

static double or_0(double number)
{
    return isnan(number) ? 0 : number;
}

static int measure(const struct cli_options *options, struct measured *m)
{
    int64_t ms = options->duration_ms ? options->duration_ms : DEFAULT_MS;
    struct bench b = {.workload = "bench", .seconds = (double)ms / 1000, .workers = 1, .cpu = -1};
    int code = workload_run(&b, &THE_ENGINE, &m->alone);

    if (code == 0) {
        b.workers = 2;
        code = workload_handoff(&b, &THE_ENGINE, &m->handoff);
    }
    if (code == 0) {
        b.workers = options->workers ? (int)options->workers : DEFAULT_WORKERS;
        code = workload_run(&b, &THE_ENGINE, &m->contended);
    }

    return code;
}

static void print_json(const struct measured *m)
{
    printf("{\"cyclesPerSecond\":%.0f,\"cycleMedianUs\":%.1f,\"handoffs\":%.0f,\"handoffMedianUs\":"
           "%.1f,\"handoffWorstUs\":%.1f,",
           m->alone.per_s, or_0(m->alone.p50_us), m->handoff.handoffs,
           or_0(m->handoff.handoff_p50_us), or_0(m->handoff.handoff_worst_us));
    printf("\"workers\":%d,\"acquisitionsPerSecond\":%.0f,\"fewest\":%.0f,\"most\":%.0f,"
           "\"fairness\":%.5f,\"overlaps\":%.0f}\n",
           m->contended.workers, m->contended.per_s, m->contended.least, m->contended.most,
           or_0(m->contended.jain), m->contended.overlaps);
}

static void print_text(const struct measured *m)
{
    printf("acquire and release, nobody competes: %.0f cycles a second, median %.1f us\n",
           m->alone.per_s, or_0(m->alone.p50_us));
    printf("handoff to a waiter: median %.1f us, worst of %.0f %.1f us\n",
           or_0(m->handoff.handoff_p50_us), m->handoff.handoffs, or_0(m->handoff.handoff_worst_us));
    printf("%d processes want one lock: %.0f acquisitions a second, from %.0f to %.0f each, "
           "fairness %.3f of 1, %.0f overlaps\n",
           m->contended.workers, m->contended.per_s, m->contended.least, m->contended.most,
           or_0(m->contended.jain), m->contended.overlaps);
    printf("These figures are rough: one machine, one moment, beside whatever else it does.\n");
}

static int run_bench(const struct cli_options *options, int argc, char **argv)
{
    struct measured measured;
    int code = check_operands(&VERB_BENCH, argc, argv, 0, 0);

    given = options;
    snprintf(lock_name, sizeof lock_name, "holdfast-bench-%d", (int)getpid());
    if (code == 0)
        code = measure(options, &measured);
    if (code != 0)
        return code;
    (options->json ? print_json : print_text)(&measured);
    return finish_stdout();
}

const struct verb VERB_BENCH = {
    .name = "bench",
    .operands = "",
    .summary =
        "Measures this engine for three seconds: alone, handing off, and under contention. Rough.",
    .details =
        "Each worker is a process of its own. Fairness is Jain's index: 1 when all got the lock "
        "equally\n"
        "often.\n"
        "Overlaps are acquisitions while another worker held the lock; there must be none.\n"
        "With --json: one object with the keys cyclesPerSecond, cycleMedianUs, handoffs,\n"
        "handoffMedianUs, handoffWorstUs, workers, acquisitionsPerSecond, fewest, most, "
        "fairness,\n"
        "overlaps.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_bench,
};
