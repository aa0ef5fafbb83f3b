/* cluster_failover.c - a primary of a cluster dies, hangs or is replaced by an operator: who keeps
 * its lock, who hears of a loss, and who comes next (G46). */
#include "lib/actors.h"
#include "lib/cluster_setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    WAITERS = 3,
    TTL_MS = 40000, /* longer than a failover takes on a slow machine */
    PATIENCE_MS = 60000,
    SHORT_TTL_MS = 4000, /* renewed meanwhile */
    CLIENTS_MOST = 8,
    PRIMARIES = 3
};

static struct cluster_servers cluster;
static hf_client *client[CLIENTS_MOST];
static unsigned clients;

static int teardown(void **state)
{
    (void)state;
    while (clients) {
        hf_status closed = hf_close(client[--clients], 5000);
        if (closed != HF_OK)
            print_message("# closing: %s\n", hf_error_text());
    }
    servers_end();
    return 0;
}

#define FAILED_OVER(text, function)                                                                \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

static void start(void)
{
    server_needed(SERVER_REDIS);
    cluster_start(&cluster, &(struct cluster_options){.primaries = PRIMARIES, .replicas = 1});
}

static hf_client *open_client(const char *query)
{
    char url[512];
    cluster_url(&cluster, query, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &client[clients]), HF_OK);
    return client[clients++];
}

/* ---- Waiters ---- */

static atomic_uint arrivals;

struct waiter {
    hf_client *client;
    pthread_t thread;
    hf_status status;
    int64_t at_ns;
    unsigned place; /* in the order of the grants, from 1 */
};

static void *wait_for_turn(void *arg)
{
    struct waiter *w = arg;
    hf_lease *lease;
    struct hf_request request = request_of(&(struct want){
        .name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS, .flags = HF_AUTO_RENEW});
    w->status = hf_acquire(w->client, &request, &lease);
    w->at_ns = now_ns();
    w->place = ++arrivals;
    nap_us(20000);
    if (w->status == HF_OK)
        must_release(lease);
    return NULL;
}

static void queue_waiters(struct waiter waiter[WAITERS])
{
    arrivals = 0;
    for (int i = 0; i < WAITERS; i++) {
        waiter[i] = (struct waiter){.client = open_client("")};
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, wait_for_turn, &waiter[i]), 0);
        await_sight(client[0], "job", 1, i + 1);
    }
}

/* ---- A primary is replaced ---- */

static void kill_primary(unsigned primary)
{
    server_kill9(cluster.server[primary]);
}

static void pause_primary(unsigned primary)
{
    server_pause(cluster.server[primary]);
}

static void ask_for_failover(unsigned primary)
{
    server_does(cluster.server[primary + PRIMARIES], "CLUSTER FAILOVER");
}

/* How soon each is served is measured in failover_bars.c. */
static void fail_over(void (*how)(unsigned primary), bool keeps_order)
{
    struct waiter waiter[WAITERS];
    start();
    hf_client *holder = open_client("");
    unsigned primary = cluster_primary_of(&cluster, "lock:job");
    hf_lease *lease = must_acquire(
        holder, &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    uint64_t token = hf_lease_token(lease);
    queue_waiters(waiter);
    cluster_await_replica(&cluster, primary, primary + PRIMARIES);

    int64_t began = now_ns();
    how(primary);
    cluster_await_promotion(&cluster, primary + PRIMARIES);
    int64_t promoted = now_ns();
    for (hf_status status = HF_UNAVAILABLE; status != HF_OK;) {
        status = hf_extend(lease, TTL_MS);
        assert_true(now_ns() - promoted < PATIENCE_MS * INT64_C(1000000));
    }
    int64_t reached = now_ns();
    assert_true(hf_lease_ok(lease) && hf_lease_token(lease) == token);
    must_release(lease);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiter[i].thread, NULL);
        assert_int_equal(waiter[i].status, HF_OK);
        if (keeps_order)
            assert_int_equal(waiter[i].place, i + 1);
    }
    print_message("# promoted after %lld ms; the holder was there %lld ms later; the next one held "
                  "%lld ms after the release\n",
                  (long long)(promoted - began) / 1000000,
                  (long long)(reached - promoted) / 1000000,
                  (long long)(waiter[0].at_ns - reached) / 1000000);
    if (!server_pid(cluster.server[primary]))
        return;
    server_continue(cluster.server[primary]);
    must_release(must_acquire(
        holder, &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS}));
}

static void test_killed(void **state)
{
    (void)state;
    fail_over(kill_primary, false);
}

static void test_hung(void **state)
{
    (void)state;
    fail_over(pause_primary, false);
}

static void test_operator(void **state)
{
    (void)state;
    fail_over(ask_for_failover, true);
}

/* ---- Without a replica ---- */

/* Locks of other primaries are not concerned, as far as the cluster serves them. */
static void test_no_replica(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    cluster_start(&cluster, &(struct cluster_options){.primaries = PRIMARIES});
    for (int i = 0; i < PRIMARIES; i++)
        server_does(cluster.server[i], "CONFIG SET cluster-require-full-coverage no");
    hf_client *c = open_client("?connect_timeout=300ms");
    char dead[16] = "", alive[16] = "";
    for (int i = 0; !dead[0] || !alive[0]; i++) {
        char name[16], key[24];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(key, sizeof key, "lock:%s", name);
        strcpy(cluster_primary_of(&cluster, key) == 0 ? dead : alive, name);
    }
    hf_lease *lease = must_acquire(
        c, &(struct want){.name = alive, .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW});
    must_release(must_acquire(c, &(struct want){.name = dead, .ttl_ms = TTL_MS}));
    server_kill9(cluster.server[0]);

    struct hf_request request = request_of(&(struct want){.name = dead, .ttl_ms = TTL_MS});
    hf_lease *none;
    for (int i = 0; i < 8; i++) {
        hf_status status = hf_acquire(c, &request, &none);
        if (i == 7)
            print_message("# %s\n", hf_error_text());
        assert_true(status == HF_UNAVAILABLE || status == HF_IN_DOUBT);
        nap_us(100000);
    }
    nap_us(SHORT_TTL_MS * 1000);
    assert_true(hf_lease_ok(lease));
    must_release(lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAILED_OVER("a primary is killed: its holder keeps the lock on the promoted replica",
                    test_killed),
        FAILED_OVER("a primary hangs: the same, and it is no primary when it goes on", test_hung),
        FAILED_OVER("an operator's failover: nothing is lost, and waiters keep their order",
                    test_operator),
        FAILED_OVER("a primary without a replica dies: its locks cannot be taken, others can",
                    test_no_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
