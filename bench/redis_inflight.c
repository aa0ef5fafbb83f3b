/* redis_inflight.c - workloads through the library: many cycles in flight in one process, on one
 * connection. */
#include "library.h"
#include "redis_requests.h"
#include "span.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 256, MILLION = 1000000, MEMORY_DEPTH = 64 };

/* ---- Asynchronous, in one loop ---- */

struct pending {
    struct flight *flight;
    hf_lease *lease;
    int64_t asked_ns;
    char name[sizeof LOCK_NAME];
};

struct flight {
    hf_client *client;
    struct hf_request request;
    struct pending pending[DEPTH_MOST];
    int under_way;
    uint64_t granted, granted_most; /* no new cycles after granted_most */
    struct times times;
};

static void begin(struct pending *pending);

/* Releases without waiting for the reply, and begins the next cycle. */
static void granted(hf_lease *lease, hf_status outcome, void *arg)
{
    struct pending *pending = arg;
    struct flight *flight = pending->flight;

    library_must(outcome);
    times_note(&flight->times, now_ns() - pending->asked_ns);
    flight->granted++;
    flight->under_way--;
    hf_lease_free(lease);
    if (flight->granted + (uint64_t)flight->under_way < flight->granted_most)
        begin(pending);
}

static void begin(struct pending *pending)
{
    struct flight *flight = pending->flight;
    flight->request.name = pending->name;
    pending->asked_ns = now_ns();
    flight->under_way++;
    library_must(
        hf_acquire_start(flight->client, &flight->request, granted, pending, &pending->lease));
}

static void turn(struct flight *flight)
{
    struct pollfd wake_fd = {.fd = hf_fd(flight->client), .events = POLLIN};
    if (poll(&wake_fd, 1, (int)hf_timeout_ms(flight->client)) < 0 && errno != EINTR)
        bench_fail("poll: %s", strerror(errno));
    library_must(hf_process(flight->client));
}

static struct flight *take_off(const struct bench *b, int depth)
{
    struct flight *flight = calloc(1, sizeof *flight);
    bool valid = depth >= 1 && depth <= DEPTH_MOST;
    if (!flight || !valid)
        bench_fail("%d cycles in flight: must be from 1 to %d", depth, DEPTH_MOST);

    flight->client = library_open(b, true);
    flight->request = request_of(b);
    flight->granted_most = UINT64_MAX;

    for (int i = 0; i < depth; i++) {
        flight->pending[i].flight = flight;
        numbered_name(flight->pending[i].name, i);
        begin(&flight->pending[i]);
    }

    while (flight->granted < (uint64_t)depth)
        turn(flight);
    return flight;
}

static void land(struct flight *flight)
{
    flight->granted_most = 0;
    while (flight->under_way > 0)
        turn(flight);
    library_must(hf_close(flight->client, 5000));
    free(flight);
}

int run_inflight(const struct bench *b, int depth)
{
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    pin(b->cpu);
    struct flight *flight = take_off(b, depth);
    flight->times = (struct times){0};
    uint64_t before = flight->granted;
    struct span span = span_begin(b, library_commands);

    while (now_ns() - span.from_ns < (int64_t)(b->seconds * 1e9))
        turn(flight);
    span_end(&span, (double)(flight->granted - before), &result);
    result.workers = depth;
    result_times(&result, &flight->times);
    land(flight);
    result_print(&result);

    return 0;
}

/* Keeps many cycles in flight: one after the other they would take more than a minute. The first
 * tenth fills the pools. */
int run_memory_cycles(const struct bench *b)
{
    uint64_t cycles = b->workers > 0 ? (uint64_t)b->workers : MILLION;
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    char note[64];

    pin(b->cpu);
    struct flight *flight = take_off(b, MEMORY_DEPTH);
    while (flight->granted < cycles / 10)
        turn(flight);
    result.rss_before_kb = (double)rss_kb(0);
    uint64_t before = flight->granted;
    struct span span = span_begin(b, library_commands);

    while (flight->granted < cycles)
        turn(flight);
    span_end(&span, (double)(flight->granted - before), &result);
    result.bytes_each = (result.rss_kb - result.rss_before_kb) * 1024 / result.ops;
    result.workers = MEMORY_DEPTH;
    snprintf(note, sizeof note, "%llu cycles", (unsigned long long)cycles);
    result.note = note;
    land(flight);
    result_print(&result);

    return 0;
}

/* ---- Blocking threads on one client ---- */

struct thread {
    const struct bench *b;
    hf_client *client;
    int64_t until_ns;
    uint64_t count;
    char name[sizeof LOCK_NAME];
    pthread_t id;
    struct times times;
};

static void *take_and_give(void *arg)
{
    struct thread *me = arg;
    struct hf_request request = request_of(me->b);
    hf_lease *lease;
    int64_t now = now_ns(), before = now;

    request.name = me->name;
    while (now < me->until_ns) {
        library_must(hf_acquire(me->client, &request, &lease));
        library_must(hf_release(lease));
        hf_lease_free(lease);
        now = now_ns();
        times_note(&me->times, now - before);
        before = now;
        me->count++;
    }

    return NULL;
}

static double join_all(struct thread *thread, int threads, struct result *result)
{
    struct times *all = calloc(1, sizeof *all);
    uint64_t *counts = calloc((size_t)threads, sizeof *counts);
    double sum = 0;
    if (!all || !counts)
        bench_fail("no memory");

    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i].id, NULL);
        times_join(all, &thread[i].times);
        counts[i] = thread[i].count;
        sum += (double)thread[i].count;
    }

    result_times(result, all);
    result_shares(result, counts, threads);
    free(all);
    free(counts);

    return sum;
}

int run_threads(const struct bench *b, int threads)
{
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    struct thread *thread = calloc((size_t)threads, sizeof *thread);
    if (!thread)
        bench_fail("no memory");

    pin(b->cpu);
    hf_client *client = library_open(b, false);
    struct span span = span_begin(b, library_commands);

    for (int i = 0; i < threads; i++) {
        thread[i].b = b;
        thread[i].client = client;
        thread[i].until_ns = span.from_ns + (int64_t)(b->seconds * 1e9);
        numbered_name(thread[i].name, i);
        if (pthread_create(&thread[i].id, NULL, take_and_give, &thread[i]) != 0)
            bench_fail("no thread");
    }

    double sum = join_all(thread, threads, &result);
    span_end(&span, sum, &result);
    result.workers = threads;
    library_must(hf_close(client, 5000));
    free(thread);
    result_print(&result);

    return 0;
}
