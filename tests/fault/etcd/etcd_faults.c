/* etcd_faults.c - one real etcd: leases that are revoked, replies that are lost, requests that come
 * late, compaction under waiters, a full database, data that is gone, names that look alike. */
#include "etcd_fixture.h"
#include "lib/proxy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 6000, WAIT_MS = 30000, TOLD_MS = 300, CROWD = 20 };

static struct etcd_server *server;

static const char *server_url(uint16_t port)
{
    static char url[128];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%u/fault", port);
    return url;
}

static hf_client *direct_client(void)
{
    return etcd_client(server_url(etcd_port(server)));
}

static int setup(void **state)
{
    (void)state;
    etcd_needed();
    server = etcd_start(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    etcd_servers_end();
    return 0;
}

static hf_lease *hold(hf_client *client, const char *name, uint32_t flags, struct loss *loss)
{
    return hold_noting(client, &(struct want){.name = name, .ttl_ms = TTL_MS, .flags = flags},
                       loss);
}

static int64_t await_loss(const struct loss *loss, int64_t since_ns)
{
    while (!atomic_load(&loss->times)) {
        if (ms_since(since_ns) > ACTOR_PATIENCE_MS)
            fail_msg("nobody told of the loss");
        nap_ms(1);
    }
    return (atomic_load(&loss->at_ns) - since_ns) / 1000000;
}

/* ---- Leases that are revoked ---- */

static void test_revoked_holder(void **state)
{
    (void)state;
    struct loss loss = {0};
    hf_client *client = direct_client();
    hf_lease *lease = hold(client, "h", HF_AUTO_RENEW, &loss);
    nap_ms(TTL_MS / 3 + 500); /* renewed once: from then on its key is watched */
    assert_true(hf_lease_ok(lease));
    struct etcd_keys keys = etcd_keys(server, "fault/h/");
    assert_int_equal(keys.count, 1);
    int64_t at = now_ns();
    etcd_revoke(server, keys.lease[0]);
    int64_t took = await_loss(&loss, at);
    print_message("# told %lld ms after the revoke began\n", (long long)took);
    assert_true(took <= TOLD_MS);
    assert_int_equal(atomic_load(&loss.times), 1);
    assert_false(hf_lease_ok(lease));
    hf_lease_free(lease);
    etcd_client_close(client);
}

static void test_revoked_waiter(void **state)
{
    (void)state;
    hf_client *holder = direct_client(), *other = direct_client();
    hf_lease *lease = hold(holder, "w", 0, NULL);
    struct waiter waiter = {.client = other, .name = "w", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    waiter_start(&waiter);
    etcd_await_keys(server, "fault/w/", 2);
    struct etcd_keys before = etcd_keys(server, "fault/w/");
    etcd_revoke(server, before.lease[1]);
    etcd_await_keys(server, "fault/w/", 2); /* it asked again */
    struct etcd_keys after = etcd_keys(server, "fault/w/");
    assert_true(after.created[1] > before.created[1]);
    assert_false(atomic_load(&waiter.is_over));
    must_release(lease);
    waiter_must_hold(&waiter);
    etcd_client_close(holder);
    etcd_client_close(other);
}

/* The lease ends under requests that are in flight on it, again and again. */
static void test_revoked_under_load(void **state)
{
    (void)state;
    enum { THREADS = 6, MS = 3000 };
    hf_client *client[THREADS];
    struct waiter waiter[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        client[i] = direct_client();
        waiter[i] =
            (struct waiter){.client = client[i], .name = "l", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
        waiter_start(&waiter[i]);
    }
    int turns = 0, revoked = 0;
    for (int64_t begin = now_ns(); ms_since(begin) < MS;) {
        struct etcd_keys keys = etcd_keys(server, "fault/l/");
        if (keys.count > 1 && ++revoked)
            etcd_revoke(server, keys.lease[keys.count - 1]);
        for (int i = 0; i < THREADS; i++) {
            if (!atomic_load(&waiter[i].is_over))
                continue;
            waiter_join(&waiter[i]);
            assert_int_equal(waiter[i].status, HF_OK);
            turns++;
            hf_release(waiter[i].lease); /* its lease may be the one that was revoked */
            hf_lease_free(waiter[i].lease);
            waiter[i] = (struct waiter){
                .client = client[i], .name = "l", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
            waiter_start(&waiter[i]);
        }
    }
    for (int i = 0; i < THREADS; i++) { /* in any order: whoever holds lets the next one in */
        for (int j = 0; j < THREADS; j++)
            if (waiter[j].client && atomic_load(&waiter[j].is_over)) {
                waiter_join(&waiter[j]);
                hf_release(waiter[j].lease);
                hf_lease_free(waiter[j].lease);
                waiter[j].client = NULL;
            }
        nap_ms(200);
    }
    for (int i = 0; i < THREADS; i++)
        if (waiter[i].client)
            waiter_must_hold(&waiter[i]);
    print_message("# %d turns, %d leases revoked\n", turns, revoked);
    assert_true(turns > THREADS && revoked > THREADS);
    for (int i = 0; i < THREADS; i++)
        etcd_client_close(client[i]);
}

/* ---- lock_delay ---- */

static hf_client *delaying_client(void)
{
    char url[160];
    snprintf(url, sizeof url, "%s?lock_delay=2s", server_url(etcd_port(server)));
    return etcd_client(url);
}

static void test_lock_delay(void **state)
{
    (void)state;
    enum { DELAY_MS = 2000 };
    hf_client *holder = delaying_client(), *next = delaying_client(), *third = delaying_client();
    hf_lease *lease = hold(holder, "d", 0, NULL), *none = NULL;
    struct waiter waiter = {.client = next, .name = "d", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    waiter_start(&waiter);
    etcd_await_keys(server, "fault/d/", 2);
    char words[256];
    snprintf(words, sizeof words, "del %s", etcd_keys(server, "fault/d/").key[0]);
    int64_t at = now_ns();
    etcdctl(server, words);
    waiter_join(&waiter);
    assert_int_equal(waiter.status, HF_OK);
    int64_t took = (waiter.at_ns - at) / 1000000;
    print_message("# the next one came %lld ms after the key was deleted\n", (long long)took);
    assert_true(took >= DELAY_MS && took < 3 * DELAY_MS);
    hf_lease_free(lease);

    struct waiter last = {.client = third, .name = "d", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    waiter_start(&last);
    etcd_await_keys(server, "fault/d/", 2);
    at = now_ns();
    must_release(waiter.lease);
    waiter_join(&last);
    assert_int_equal(last.status, HF_OK);
    assert_true(last.at_ns - at < INT64_C(1000000000)); /* a release delays nobody */

    snprintf(words, sizeof words, "del %s", etcd_keys(server, "fault/d/").key[0]);
    etcdctl(server, words);
    struct hf_request request = request_of(&(struct want){.name = "d", .ttl_ms = TTL_MS});
    assert_int_equal(hf_acquire(next, &request, &none), HF_BUSY);
    hf_lease_free(none);
    hf_lease_free(last.lease);
    nap_ms(DELAY_MS + 1500); /* nobody waits: the cluster itself ends the delay */
    must_release(hold(next, "d", 0, NULL));
    assert_int_equal(etcd_keys(server, "fault/.d/").count, 0);
    etcd_client_close(holder);
    etcd_client_close(next);
    etcd_client_close(third);
}

/* ---- Compaction, and watches that break ---- */

static void compact(void)
{
    struct etcd_keys keys = etcd_keys(server, "fault/c/");
    char words[64];
    uint64_t newest = keys.count ? keys.created[keys.count - 1] : 0;
    etcdctl(server, "put other x");
    if (newest > 1) {
        snprintf(words, sizeof words, "compact %llu", (unsigned long long)newest);
        char command[200];
        snprintf(command, sizeof command,
                 "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%u %s >/dev/null 2>&1",
                 etcd_port(server), words);
        assert_true(system(command) >= 0); /* that revision may be compacted already */
    }
    etcdctl(server, "defrag");
}

static void test_compaction(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(etcd_port(server));
    hf_client *client[CROWD];
    struct waiter waiter[CROWD] = {0};
    hf_client *holder = direct_client();
    hf_lease *lease = hold(holder, "c", HF_AUTO_RENEW, NULL);
    for (int i = 0; i < CROWD; i++) {
        client[i] = etcd_client(server_url(proxy_port(proxy)));
        waiter[i] =
            (struct waiter){.client = client[i], .name = "c", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
        waiter_start(&waiter[i]);
        etcd_await_keys(server, "fault/c/", i + 2);
    }
    compact();
    assert_true(proxy_cut_all(proxy) > 0);
    must_release(lease);
    int64_t last = 0;
    for (int i = 0; i < CROWD; i++) { /* in the order in which they came */
        if (i % 5 == 2)
            compact();
        if (i % 5 == 4)
            proxy_cut_all(proxy);
        waiter_join(&waiter[i]);
        if (waiter[i].status != HF_OK)
            fail_msg("waiter %d: %s", i, waiter[i].text);
        assert_true(waiter[i].at_ns > last);
        last = waiter[i].at_ns;
        hf_release(waiter[i].lease);
        hf_lease_free(waiter[i].lease);
    }
    for (int i = 0; i < CROWD; i++)
        etcd_client_close(client[i]);
    etcd_client_close(holder);
    proxy_end(proxy);
}

/* ---- Replies that are lost ---- */

/* A cut at that byte of the first connection. Whatever the caller was told, nothing stays behind,
 * and the next one gets the lock. Returns whether the cut happened. */
static bool cut_at(struct proxy *proxy, hf_client *witness, enum proxy_way way, uint64_t after,
                   unsigned *granted)
{
    hf_client *client = etcd_client(server_url(proxy_port(proxy)));
    uint32_t next = proxy_connections(proxy) + 1;
    int fault = proxy_plant(
        proxy,
        &(struct proxy_fault){.kind = PROXY_RESET, .way = way, .connection = next, .after = after});
    struct hf_request request =
        request_of(&(struct want){.name = "x", .ttl_ms = TTL_MS, .wait_ms = 3000});
    hf_lease *lease = NULL;
    hf_status status = hf_acquire(client, &request, &lease);
    bool happened = proxy_happened(proxy, fault);
    bool expected = status == HF_OK || status == HF_IN_DOUBT || status == HF_UNAVAILABLE ||
                    status == HF_TIMEOUT;
    if (!expected)
        fail_msg("cut after %llu: %s", (unsigned long long)after, hf_error_text());
    *granted += status == HF_OK;
    if (lease)
        hf_lease_free(lease);
    hf_close(client, 5000);

    request.wait_ms = 4000; /* shorter than any lease: what is gone was taken back */
    if (hf_acquire(witness, &request, &lease) != HF_OK)
        fail_msg("after a cut of %s behind byte %llu: %s",
                 way == PROXY_REQUESTS ? "requests" : "replies", (unsigned long long)after,
                 hf_error_text());
    must_release(lease);
    return happened || proxy_happened(proxy, fault);
}

static void test_cuts(void **state)
{
    (void)state;
    enum { STEP = 23, MOST = 4000 };
    hf_client *witness = direct_client();
    for (int way = PROXY_REQUESTS; way <= PROXY_REPLIES; way++) {
        unsigned cuts = 0, granted = 0;
        struct proxy *proxy = proxy_start(etcd_port(server));
        for (uint64_t after = 0; after < MOST; after += STEP) {
            if (!cut_at(proxy, witness, (enum proxy_way)way, after, &granted))
                break; /* behind the last byte */
            cuts++;
        }
        print_message("# %u cuts of %s, %u granted all the same\n", cuts,
                      way == PROXY_REQUESTS ? "requests" : "replies", granted);
        assert_true(cuts > 10);
        proxy_end(proxy);
    }
    etcd_client_close(witness);
}

/* The request leaves, stalls on its way, its caller gives up, and then it arrives. */
static void test_late_request(void **state)
{
    (void)state;
    hf_client *witness = direct_client();
    uint64_t arrived = 0;
    for (uint64_t after = 100; after < 1500; after += 100) {
        struct proxy *proxy = proxy_start(etcd_port(server));
        hf_client *client = etcd_client(server_url(proxy_port(proxy)));
        int fault = proxy_plant(
            proxy, &(struct proxy_fault){
                       .kind = PROXY_LATE, .way = PROXY_REQUESTS, .connection = 1, .after = after});
        struct hf_request request =
            request_of(&(struct want){.name = "late", .ttl_ms = TTL_MS, .wait_ms = 2000});
        hf_lease *lease = NULL;
        if (hf_acquire(client, &request, &lease) == HF_OK)
            hf_release(lease);
        if (lease)
            hf_lease_free(lease);
        hf_close(client, 5000);
        if (proxy_happened(proxy, fault))
            arrived += proxy_deliver(proxy, fault);
        request.wait_ms = 0;
        if (hf_acquire(witness, &request, &lease) != HF_OK)
            fail_msg("a request that came late took the lock (after byte %llu): %s",
                     (unsigned long long)after, hf_error_text());
        must_release(lease);
        proxy_end(proxy);
    }
    print_message("# %llu bytes came late\n", (unsigned long long)arrived);
    assert_true(arrived > 500);
    etcd_client_close(witness);
}

/* ---- Restarts ---- */

static void test_stopped_politely(void **state)
{
    (void)state;
    struct loss loss = {0};
    hf_client *client = direct_client();
    hf_lease *lease = hold(client, "t", HF_AUTO_RENEW, &loss);
    etcd_stop(server); /* says GOAWAY */
    nap_ms(300);
    etcd_restart(server, true);
    nap_ms(TTL_MS);
    assert_true(hf_lease_ok(lease));
    assert_int_equal(atomic_load(&loss.times), 0);
    must_release(lease);
    etcd_client_close(client);
}

static void test_data_lost(void **state)
{
    (void)state;
    struct loss loss = {0};
    hf_client *client = direct_client(), *other = direct_client();
    for (int i = 0; i < 30; i++) /* revisions that the empty server does not have */
        must_release(hold(client, "g", 0, NULL));
    hf_lease *lease = hold(client, "g", HF_AUTO_RENEW, &loss);
    struct waiter waiter = {.client = other, .name = "g", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    waiter_start(&waiter);
    etcd_await_keys(server, "fault/g/", 2);
    nap_ms(TTL_MS / 3 + 300);
    etcd_restart(server, false);
    int64_t at = now_ns();
    int64_t took = await_loss(&loss, at);
    print_message("# told %lld ms after the empty server was up\n", (long long)took);
    hf_lease_free(lease);
    waiter_must_hold(&waiter);
    must_release(hold(client, "g", 0, NULL));
    etcd_client_close(client);
    etcd_client_close(other);
}

/* ---- Renewals ---- */

/* Calls of that method that the server has received so far. */
static long calls_of(const char *method)
{
    char command[200], line[400];
    long calls = 0;
    snprintf(command, sizeof command, "curl -s http://127.0.0.1:%u/metrics", etcd_port(server));
    FILE *metrics = popen(command, "r");
    assert_non_null(metrics);
    while (fgets(line, sizeof line, metrics)) {
        bool is_received = strncmp(line, "grpc_server_msg_received_total{", 31) == 0;
        const char *value = strchr(line, '}');
        if (is_received && value && strstr(line, method))
            calls += atol(value + 1);
    }
    assert_int_equal(pclose(metrics), 0);
    return calls;
}

/* A round has one keepalive and a transaction for each 100 holds, and there are three in a ttl. */
static void test_shared_renewals(void **state)
{
    (void)state;
    enum { HOLDS = 250, ROUNDS = 6, PROOFS = 3 };
    static hf_lease *lease[HOLDS];
    static struct loss loss[HOLDS];
    hf_client *client = direct_client();
    for (int i = 0; i < HOLDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "kept-%d", i);
        lease[i] = hold(client, name, HF_AUTO_RENEW, &loss[i]);
    }

    nap_ms(TTL_MS); /* until each hold is in its session, and watched */
    long kept = calls_of("\"LeaseKeepAlive\""), read = calls_of("\"Txn\"");
    nap_ms(2 * TTL_MS);
    kept = calls_of("\"LeaseKeepAlive\"") - kept;
    read = calls_of("\"Txn\"") - read;
    print_message("# %d holds in two ttls: %ld keepalives, %ld transactions\n", HOLDS, kept, read);
    assert_in_range(kept, 3, ROUNDS + 1);
    assert_in_range(read, 3, (ROUNDS + 1) * PROOFS);

    /* A proof that finds a key gone tells its holder and no other. */
    int64_t at = now_ns();
    etcdctl(server, "del --prefix fault/kept-7/");
    await_loss(&loss[7], at);
    for (int i = 0; i < HOLDS; i++) {
        assert_int_equal(atomic_load(&loss[i].times), i == 7);
        if (i == 7)
            hf_lease_free(lease[i]);
        else
            must_release(lease[i]);
    }
    etcd_client_close(client);
}

/* ---- Names ---- */

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "a/b", "a%2Fb", ".s", ".d/a", "a/", "%"};
    enum { NAMES = sizeof names / sizeof *names };
    hf_client *client = direct_client();
    hf_lease *lease[NAMES];
    etcdctl(server, "put fault/a/0123/x foreign"); /* below the name, and no entry of it */
    for (int i = 0; i < NAMES; i++)
        lease[i] = hold(client, names[i], 0, NULL);
    for (int i = 0; i < NAMES; i++) {
        struct sight sight = see(client, names[i]);
        assert_int_equal(sight.holders, 1);
        assert_int_equal(sight.token, hf_lease_token(lease[i]));
    }
    for (int i = 0; i < NAMES; i++)
        must_release(lease[i]);
    etcd_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a holder whose lease is revoked is told at once", test_revoked_holder),
        SENTENCE("a waiter whose lease is revoked asks again and is never granted by mistake",
                 test_revoked_waiter),
        SENTENCE("leases that end under requests in flight cost a place, and nothing else",
                 test_revoked_under_load),
        SENTENCE("lock_delay: after a deleted key the next one waits, after a release it does not",
                 test_lock_delay),
        SENTENCE("compaction and broken watches cost no waiter its turn", test_compaction),
        SENTENCE("a connection cut at any byte leaves nothing behind", test_cuts),
        SENTENCE("a request that arrives after its caller gave up takes nothing",
                 test_late_request),
        SENTENCE("a server that is stopped and comes back keeps the hold", test_stopped_politely),
        SENTENCE("a server that comes back empty: the holder is told, and the waiter is next",
                 test_data_lost),
        SENTENCE("250 holds are renewed by three keepalives and nine reads in a ttl",
                 test_shared_renewals),
        SENTENCE("names that look alike share nothing", test_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
