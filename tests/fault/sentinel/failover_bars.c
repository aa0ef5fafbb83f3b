/* failover_bars.c - how soon after a failover locks can be had again, and how soon a holder whose
 * grant was lost is told: many failovers of a watched primary and of a primary of a cluster
 * (G40, G41, G46).
 *
 * failover_bars [COUNT] [PATTERN]: so many failovers of each sort. */
#include "lib/cluster_setup.h"
#include "lib/loss_notes.h"
#include "lib/sentinel_setup.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRIMARIES = 3,
    TTL_MS = 90000, /* renewed later than any failover takes */
    LISTENING_US = 1200000,
    COUNT_MOST = 100,
    SERVED_MS = 100, /* the bars, for 95 of 100 failovers, */
    TOLD_MS = 100,
    JUDGED = 20, /* if there were so many */
    PATIENCE_MS = 60000,
    OLD_REPLY_NS = 50000000, /* a reply of the dead primary is read by then */
};

static struct watched watched;
static struct cluster_servers cluster;
static hf_client *client[3];
static unsigned clients, count = 2;
static _Atomic int64_t killed_at_ns; /* 0: not yet */

static int teardown(void **state)
{
    (void)state;
    while (clients)
        hf_close(client[--clients], 5000);
    servers_end();
    return 0;
}

#define FAILED_OVER(text, function)                                                                \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

/* ---- Both sorts of failover ---- */

/* A sort of failover. `begin` starts servers with a password and returns the URL; `cut` lets
 * replicas keep what they had; `fail_over` kills the primary of lock:job and returns the time when
 * the new one was announced, or promoted. */
struct sort {
    const char *name;
    void (*begin)(char *url, size_t size);
    void (*cut)(void);
    int64_t (*fail_over)(void);
};

static void begin_watched(char *url, size_t size)
{
    watched_start(&watched, &(struct watched_options){
                                .replicas = 2, .sentinels = WATCHED_MOST, .password = "secret"});
    watched_url(&watched, "", url, size);
}

static void cut_watched(void)
{
    watched_cut_replicas(&watched);
}

static int64_t fail_watched(void)
{
    watched_listen(&watched);
    server_kill9(watched.server[0]);
    killed_at_ns = now_ns();
    return watched_await_announcement();
}

static void begin_cluster(char *url, size_t size)
{
    cluster_start(&cluster, &(struct cluster_options){
                                .primaries = PRIMARIES, .replicas = 1, .password = "secret"});
    cluster_url(&cluster, "", url, size);
}

static void cut_cluster(void)
{
    unsigned primary = cluster_primary_of(&cluster, "lock:job");
    server_does(cluster.server[primary + PRIMARIES], "CONFIG SET masterauth wrong");
    server_does(cluster.server[primary], "CLIENT KILL TYPE replica");
    while (server_info_number(cluster.server[primary], "replication", "connected_slaves"))
        nap_us(1000);
}

static int64_t fail_cluster(void)
{
    unsigned primary = cluster_primary_of(&cluster, "lock:job");
    server_kill9(cluster.server[primary]);
    killed_at_ns = now_ns();
    cluster_await_promotion(&cluster, primary + PRIMARIES);
    return now_ns();
}

static const struct sort by_sentinels = {"sentinel", begin_watched, cut_watched, fail_watched};
static const struct sort of_cluster = {"cluster", begin_cluster, cut_cluster, fail_cluster};

static void open_clients(const struct sort *sort)
{
    char url[512];
    sort->begin(url, sizeof url);
    for (clients = 0; clients < sizeof client / sizeof *client; clients++)
        assert_int_equal(hf_open(url, NULL, &client[clients]), HF_OK);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds; a number below 0 is before the announcement. */
static int64_t sum_up(const struct sort *sort, const char *what, int64_t *took)
{
    qsort(took, count, sizeof *took, compare);
    int64_t p95 = took[(count * 95 + 99) / 100 - 1];
    print_message("# %s: %u failovers, %s: %.1f ms (median), %.1f ms (p95), %.1f ms (worst)\n",
                  sort->name, count, what, (double)took[count / 2] / 1e6, (double)p95 / 1e6,
                  (double)took[count - 1] / 1e6);
    return p95;
}

/* One failover beside other work says nothing of a bar. */
static void judge(int64_t p95, int64_t bar_ms)
{
    assert_true(count < JUDGED || p95 <= bar_ms * 1000000);
}

/* ---- The first grant ---- */

static struct seeker {
    pthread_t thread;
    _Atomic int64_t granted_at_ns; /* the first grant since the failover; 0: none yet */
    atomic_bool ends;
} seeker;

/* A client takes one lock after the other. It frees the handles, so that a release that meets the
 * failover goes on behind it. */
static void *seek(void *arg)
{
    hf_client *c = arg;
    for (unsigned i = 0; !seeker.ends; i++) {
        char name[24];
        hf_lease *lease;
        snprintf(name, sizeof name, "{job}%u", i);
        struct hf_request request =
            request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS});
        hf_status status = hf_acquire(c, &request, &lease);
        bool is_of_old = !killed_at_ns || now_ns() - killed_at_ns < OLD_REPLY_NS;
        if (status != HF_OK)
            continue;
        if (!is_of_old && !seeker.granted_at_ns)
            seeker.granted_at_ns = now_ns();
        hf_lease_free(lease);
        nap_us(2000);
    }
    return NULL;
}

static void first_grant(const struct sort *sort)
{
    int64_t took[COUNT_MOST];
    server_needed(SERVER_REDIS);
    for (unsigned i = 0; i < count; i++) {
        struct loss loss = {0};
        open_clients(sort);
        hf_lease *lease = hold_noting(
            client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW},
            &loss);
        killed_at_ns = seeker.granted_at_ns = 0;
        seeker.ends = false;
        assert_int_equal(pthread_create(&seeker.thread, NULL, seek, client[1]), 0);
        nap_us(LISTENING_US);

        int64_t announced = sort->fail_over();
        int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
        while (!seeker.granted_at_ns && now_ns() < end)
            nap_us(500);
        assert_true(seeker.granted_at_ns);
        took[i] = seeker.granted_at_ns - announced;
        nap_us(200000);
        assert_true(hf_lease_ok(lease));
        assert_int_equal(loss.times, 0);
        seeker.ends = true;
        pthread_join(seeker.thread, NULL);
        must_release(lease);
        teardown(NULL);
    }
    judge(sum_up(sort, "first grant after the switch", took), SERVED_MS);
}

/* ---- A loss is told ---- */

/* The holder does nothing: it does not ask, and its next renewal is half a minute away. */
static void loss_is_told(const struct sort *sort)
{
    int64_t took[COUNT_MOST];
    server_needed(SERVER_REDIS);
    for (unsigned i = 0; i < count; i++) {
        struct loss loss = {0};
        open_clients(sort);
        must_release(must_acquire(client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS}));
        nap_us(LISTENING_US);
        sort->cut();
        hf_lease *lease = hold_noting(
            client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW},
            &loss);

        int64_t announced = sort->fail_over();
        int64_t end = now_ns() + TTL_MS / 3 * INT64_C(1000000); /* a renewal would tell it, too */
        while (!loss.times && now_ns() < end)
            nap_us(500);
        assert_int_equal(loss.times, 1);
        assert_false(hf_lease_ok(lease));
        took[i] = loss.at_ns - announced;
        hf_lease_free(lease);
        teardown(NULL);
    }
    judge(sum_up(sort, "loss told after the switch", took), TOLD_MS);
}

static void test_sentinel_grant(void **state)
{
    (void)state;
    first_grant(&by_sentinels);
}

static void test_cluster_grant(void **state)
{
    (void)state;
    first_grant(&of_cluster);
}

static void test_sentinel_loss(void **state)
{
    (void)state;
    loss_is_told(&by_sentinels);
}

static void test_cluster_loss(void **state)
{
    (void)state;
    loss_is_told(&of_cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        FAILED_OVER("sentinels: a lock is granted as soon as the switch is announced",
                    test_sentinel_grant),
        FAILED_OVER("cluster: a lock is granted as soon as the replica is promoted",
                    test_cluster_grant),
        FAILED_OVER("sentinels: a loss is told as soon as the switch is announced",
                    test_sentinel_loss),
        FAILED_OVER("cluster: a loss is told as soon as the replica is promoted",
                    test_cluster_loss),
    };
    count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : count;
    count = count < 1 ? 1 : count > COUNT_MOST ? COUNT_MOST : count;
    cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests_name("failovers: bars", tests, NULL, NULL);
}
