/* bench.c - the verb `bench`: a short measurement on the engine at hand, so that people have a number of their own. */
#include "session.h"
#include "text.h"
#include "verbs.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MS 1000
#define LOOK_EVERY 64 /* cycles between two looks at the clock */
#define ROUNDS_MOST 5000
#define PATIENCE_MS 10000

static const struct option_spec OPTIONS[] = {
    {"duration", 'd', "DUR", STORE_DURATION, OPTION_FIELD(duration_ms), 10, 60000,
     "how long each of the two measurements lasts; default: 1s"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

#define SEEN_WITHIN_NS 20000000

struct bench {
    int64_t duration_ns;
    char name[64];
    double cycles_per_second;
    int64_t rounds, median_ns, worst_ns; /* of the hand-over */
};

/* Two clients that hand a lock to each other. */
struct side {
    const struct bench *bench;
    hf_client *client;
    atomic_int_fast64_t *released_ns; /* when the other side let go; 0: it has not yet */
    int64_t until_ns, *took_ns;
    size_t count;
    hf_status status;
    char words[256];
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static hf_status take(hf_client *client, const struct bench *bench, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request request = {
        .size = sizeof request, .name = bench->name, .wait_ms = wait_ms, .label = "holdfast bench"};
    return hf_acquire(client, &request, lease);
}

static hf_status measure_cycles(hf_client *client, struct bench *bench)
{
    hf_lease *lease;
    int64_t cycles = 0, from = now_ns(), now = from;
    hf_status status = HF_OK;
    while (status == HF_OK && now - from < bench->duration_ns) {
        for (int i = 0; i < LOOK_EVERY && status == HF_OK; i++) {
            status = take(client, bench, 0, &lease);
            if (status != HF_OK)
                break;
            status = hf_release(lease);
            hf_lease_free(lease);
            cycles++;
        }
        now = now_ns();
    }
    bench->cycles_per_second = (double)cycles * 1e9 / (double)(now - from);
    return status;
}

/* Takes turns: holds until the other side waits, notes the time, lets go, queues again. */
static hf_status take_turn(struct side *side, hf_lease **lease)
{
    hf_status status = take(side->client, side->bench, PATIENCE_MS, lease);
    int64_t now = now_ns(), released = atomic_exchange(side->released_ns, 0);
    if (status == HF_OK && released > 0 && side->count < ROUNDS_MOST)
        side->took_ns[side->count++] = now - released;
    return status;
}

static void count_waiters(void *arg, const struct hf_row *row)
{
    *(size_t *)arg += row->role == HF_WAITER;
}

/* Without somebody who waits a release hands nothing over. Where waiters are not to be seen (a quorum has no queue),
 * the other side has had the time to come. */
static hf_status wait_for_waiter(struct side *side)
{
    size_t waiters = 0;
    hf_status status = HF_OK;
    struct timespec pause = {.tv_nsec = 100000};
    int64_t end = now_ns() + SEEN_WITHIN_NS;
    end = end < side->until_ns ? end : side->until_ns;
    while (status == HF_OK && waiters == 0 && now_ns() < end) {
        status = hf_show(side->client, side->bench->name, count_waiters, &waiters);
        if (waiters == 0)
            nanosleep(&pause, NULL);
    }
    return status;
}

static void *play(void *arg)
{
    struct side *side = arg;
    hf_lease *lease;
    while (side->status == HF_OK && now_ns() < side->until_ns && side->count < ROUNDS_MOST) {
        side->status = take_turn(side, &lease);
        if (side->status != HF_OK)
            break;
        side->status = wait_for_waiter(side);
        if (side->status == HF_OK) {
            atomic_store(side->released_ns, now_ns());
            side->status = hf_release(lease);
        }
        hf_lease_free(lease);
    }
    if (side->status != HF_OK)
        snprintf(side->words, sizeof side->words, "%s", hf_error_text());
    return NULL;
}

static int by_size(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void summarise(struct bench *bench, struct side sides[2])
{
    int64_t *all = sides[0].took_ns;
    size_t count = sides[0].count + sides[1].count;
    memmove(all + sides[0].count, sides[1].took_ns, sides[1].count * sizeof *all);
    qsort(all, count, sizeof *all, by_size);
    bench->rounds = (int64_t)count;
    bench->median_ns = count ? all[count / 2] : 0;
    bench->worst_ns = count ? all[count - 1] : 0;
}

static int measure_handover(hf_client *first, hf_client *second, struct bench *bench)
{
    atomic_int_fast64_t released_ns = 0;
    int64_t *room = calloc(2 * ROUNDS_MOST, sizeof *room), until_ns = now_ns() + bench->duration_ns;
    struct side sides[2] = {{bench, first, &released_ns, until_ns, room, 0, HF_OK, ""},
                            {bench, second, &released_ns, until_ns, room ? room + ROUNDS_MOST : NULL, 0, HF_OK, ""}};
    pthread_t other;
    if (!room || pthread_create(&other, NULL, play, &sides[1]) != 0) {
        free(room);
        complain("no memory or no thread for the measurement");
        return EXIT_INTERNAL;
    }
    play(&sides[0]);
    pthread_join(other, NULL);
    summarise(bench, sides);
    free(room);
    for (int i = 0; i < 2; i++) {
        if (sides[i].status == HF_OK)
            continue;
        complain("%s", sides[i].words);
        return hf_status_exit_code(sides[i].status);
    }
    return 0;
}

static int print(const struct cli_options *options, const struct bench *bench)
{
    if (options->json)
        printf("{\"cycles_per_second\":%.0f,\"handovers\":%" PRId64
               ",\"handover_median_us\":%.1f,\"handover_worst_us\":%.1f}\n",
               bench->cycles_per_second, bench->rounds, (double)bench->median_ns / 1000,
               (double)bench->worst_ns / 1000);
    else
        printf("acquire and release, nobody competes: %.0f cycles a second\n"
               "hand-over to a waiter: median %.1f us, worst of %" PRId64 " %.1f us\n"
               "This is rough: one process, one moment, whatever else the machine does.\n",
               bench->cycles_per_second, (double)bench->median_ns / 1000, bench->rounds,
               (double)bench->worst_ns / 1000);
    return finish_stdout();
}

static int run_bench(const struct cli_options *options, int argc, char **argv)
{
    hf_client *first, *second;
    struct bench bench = {.duration_ns = (options->duration_ms ? options->duration_ms : DEFAULT_MS) * 1000000};
    snprintf(bench.name, sizeof bench.name, "holdfast-bench-%d", (int)getpid());
    int code = check_operands(&VERB_BENCH, argc, argv, 0, 0);
    if (code == 0)
        code = session_open(options, NULL, &first);
    if (code != 0)
        return code;
    hf_status status = measure_cycles(first, &bench);
    code = status == HF_OK ? session_open(options, NULL, &second) : fail_with(status);
    if (code == 0)
        code = session_close(second, measure_handover(first, second, &bench));
    code = session_close(first, code);
    return code == 0 ? print(options, &bench) : code;
}

const struct verb VERB_BENCH = {
    .name = "bench",
    .operands = "",
    .summary = "Measures this engine for two seconds: cycles a second, time to hand over. Rough.",
    .details =
        "With --json: one object with the keys cycles_per_second, handovers, handover_median_us, handover_worst_us.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_bench,
};
