/* redis_memory.c - workloads through the library: memory of a held lease in the client, and of a
 * waiter in the server. */
#include "library.h"
#include "redis_requests.h"
#include "redis_socket.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { AT_ONCE = 256 };
#define RENEWED_TTL_MS 30000
#define HELD_WITHIN_NS 30000000000

/* All leases that are held or requested; used by the callback. */
static struct {
    hf_client *client;
    struct hf_request request;
    hf_lease **lease;
    atomic_int under_way;
} all;

static void start_waiter(int number);

static void held(hf_lease *lease, hf_status outcome, void *arg)
{
    int number = (int)(intptr_t)arg;
    if (library_retries(outcome, 0)) { /* hold_all() ends the program if this takes too long */
        hf_lease_free(lease);
        start_waiter(number);
        return;
    }

    atomic_fetch_sub(&all.under_way, 1);
}

static void start_waiter(int number)
{
    char name[sizeof LOCK_NAME];
    struct hf_request request = all.request;
    numbered_name(name, number);
    request.name = name;
    library_must(
        hf_acquire_start(all.client, &request, held, (void *)(intptr_t)number, &all.lease[number]));
}

static void await_under_way(int most, int64_t end)
{
    for (; atomic_load(&all.under_way) > most; pass_ms(0.1))
        if (now_ns() > end)
            bench_fail("%d requests got no reply in time", atomic_load(&all.under_way));
}

static void hold_all(hf_client *client, struct hf_request request, int count, hf_lease **lease)
{
    int64_t end = now_ns() + HELD_WITHIN_NS;
    all.client = client;
    all.request = request;
    all.lease = lease;

    for (int i = 0; i < count; i++) {
        await_under_way(AT_ONCE - 1, end);
        atomic_fetch_add(&all.under_way, 1);
        start_waiter(i);
    }
    await_under_way(0, end);
}

static struct hf_counters counters_of(hf_client *client)
{
    struct hf_counters counters = {.size = sizeof counters};
    library_must(hf_client_counters(client, &counters));
    return counters;
}

/* Returns the number of renewals: on engine redis by the commands that the server counted, on other
 * engines the number that was due. */
static double renewals(const struct bench *b, hf_client *client, double commands, double seconds)
{
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    library_must(hf_explain(client, RENEWED_TTL_MS, &sheet));
    double counted = library_commands(b) - commands;
    return isnan(counted) ? b->workers * seconds * 1000 / (double)sheet.renew_ms : counted;
}

static void watch_renewals(const struct bench *b, hf_client *client, struct result *r)
{
    double commands = library_commands(b), client_us = cpu_us(0);
    double server_us = b->server_pid ? cpu_us(b->server_pid) : NAN;
    int64_t from = now_ns();

    pass_ms(b->seconds * 1000);
    int64_t ns = now_ns() - from;
    result_rate(r, renewals(b, client, commands, (double)ns / 1e9), ns);
    r->client_cpu_us = (cpu_us(0) - client_us) / r->ops;
    if (b->server_pid)
        r->server_cpu_us = (cpu_us(b->server_pid) - server_us) / r->ops;
    if (counters_of(client).lost)
        bench_fail("%llu leases were lost", (unsigned long long)counters_of(client).lost);
}

int run_renewals(const struct bench *b)
{
    struct hf_request request = request_of(b);
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    hf_lease **lease = calloc((size_t)b->workers, sizeof *lease);
    if (!lease || b->workers < 1)
        bench_fail("--workers: at least 1");

    pin(b->cpu);
    hf_client *client = library_open(b, false);
    request.ttl_ms = RENEWED_TTL_MS;
    request.flags = HF_AUTO_RENEW;
    request.wait_ms = 0;

    for (int i = 0; i < b->workers; i++)
        /* writes the array now, so that its pages are in the first measurement */
        lease[i] = (hf_lease *)client;
    result.rss_before_kb = (double)rss_kb(0);
    hold_all(client, request, b->workers, lease);
    result.rss_kb = (double)rss_kb(0);
    result.bytes_each = (result.rss_kb - result.rss_before_kb) * 1024 / b->workers;
    watch_renewals(b, client, &result);
    result.note = "operations are renewals";
    library_must(hf_close(client, 60000));
    result_print(&result);
    free(lease);

    return 0;
}

static void never(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease;
    (void)arg;
    if (outcome == HF_OK)
        bench_fail("a waiter got a lock that is held");
}

static double server_memory(const struct bench *b)
{
    struct redis_socket *conn = redis_socket_open(b->url);
    double bytes = redis_socket_info(conn, "memory", "used_memory:");
    redis_socket_close(conn);
    return bytes;
}

int run_waiter_memory(const struct bench *b)
{
    struct hf_request request = request_of(b);
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    hf_lease *lease, *waiter;
    hf_client *client = library_open(b, false);
    int64_t end = now_ns() + HELD_WITHIN_NS;

    pin(b->cpu);
    request.ttl_ms = 3 * HELD_WITHIN_NS / 1000000;
    library_must(hf_acquire(client, &request, &lease));
    request.wait_ms = HF_FOREVER;
    double before = server_memory(b);
    uint64_t queued = counters_of(client).queued;

    for (int i = 0; i < b->workers; i++) {
        library_must(hf_acquire_start(client, &request, never, NULL, &waiter));
        while (counters_of(client).queued - queued + AT_ONCE < (uint64_t)i && now_ns() < end)
            pass_ms(0.1);
    }

    while (counters_of(client).queued - queued < (uint64_t)b->workers && now_ns() < end)
        pass_ms(1);
    if (now_ns() >= end)
        bench_fail("only %llu requests are queued",
                   (unsigned long long)(counters_of(client).queued - queued));

    result.bytes_each = (server_memory(b) - before) / b->workers;
    library_must(hf_close(client, 60000));
    result_print(&result);
    return 0;
}
