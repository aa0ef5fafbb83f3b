/* cluster_operator.c - what operators and networks do to a cluster: forced failovers under load,
 * slots moved by redis-cli, an interrupted move that is fixed, nodes that leave, join and change
 * their port, a primary whose bus is cut, and the death of most primaries (G44, G45, G46). */
#include "lib/cluster_setup.h"
#include "lib/fenced_workers.h"
#include "lib/loss_notes.h"
#include "lib/own_network.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRIMARIES = 3,
    CLIENTS_MOST = 8,
    WORKERS = 4,
    TTL_MS = 10000,
    SHORT_TTL_MS = 3000,
    CROWD_TTL_MS = 60000,
    HELD = 40,   /* leases that are held while their slots move */
    SLOTS = 400, /* that redis-cli moves at a time: 1 ms each, most of them empty */
    WAITERS = 6,
    PATIENCE_MS = 60000,
};

static struct cluster_servers cluster;
static hf_client *client[CLIENTS_MOST];
static unsigned clients;
static unsigned rounds; /* number of takeovers and of moves to and fro */
static const char *no_network;

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

#define OPERATED(text, function)                                                                   \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

static void start(unsigned replicas)
{
    server_needed(SERVER_REDIS);
    cluster_start(&cluster,
                  &(struct cluster_options){.primaries = PRIMARIES, .replicas = replicas});
}

static hf_client *open_client(const char *query)
{
    char url[512];
    cluster_url(&cluster, query, url, sizeof url);
    assert_true(clients < CLIENTS_MOST);
    assert_int_equal(hf_open(url, NULL, &client[clients]), HF_OK);
    return client[clients++];
}

static int64_t ms_since(int64_t from_ns)
{
    return (now_ns() - from_ns) / 1000000;
}

/* A name whose lock is on that primary, in one of its lowest `slots` slots. */
static void find_name(unsigned primary, unsigned slots, char *name, size_t size)
{
    static unsigned number;
    unsigned first = primary * CLUSTER_SLOT_COUNT / PRIMARIES;
    for (;;) {
        char key[40];
        snprintf(name, size, "n%u", number++);
        snprintf(key, sizeof key, "lock:%s", name);
        unsigned slot = cluster_slot_of(&cluster, key);
        if (slot >= first && slot < first + slots)
            return;
    }
}

/* ---- Failovers that do not ask the primary ---- */

static bool has_role(const struct server *s, const char *role, const char *link)
{
    redisReply *reply = server_cli(s, "ROLE");
    bool has = strcmp(reply->element[0]->str, role) == 0 &&
               (!link || strcmp(reply->element[3]->str, link) == 0);
    freeReplyObject(reply);
    return has;
}

/* A failover may be refused, or given up after 5 s: then it is asked for again. */
static void force(unsigned from, unsigned to, const char *command)
{
    int64_t began = now_ns(), asked = 0;
    while (!has_role(cluster.server[to], "master", NULL)) {
        assert_true(ms_since(began) < 2 * PATIENCE_MS);
        if (!asked || ms_since(asked) > 6000) {
            freeReplyObject(server_cli(cluster.server[to], command));
            asked = now_ns();
        }
        nap_us(20000);
    }
    while (!has_role(cluster.server[from], "slave", "connected")) {
        assert_true(ms_since(began) < 2 * PATIENCE_MS);
        nap_us(20000);
    }
}

/* A failover that the primary agreed to loses nothing; others may, and then the store refuses what
 * was lost, and its holder is told. */
static void force_under_load(const char *command, bool keeps_all, unsigned pairs)
{
    static const struct want want = {
        .name = "job", .ttl_ms = TTL_MS, .wait_ms = 2 * PATIENCE_MS, .flags = HF_AUTO_RENEW};
    start(1);
    unsigned primary = cluster_primary_of(&cluster, "lock:job"), other = primary + PRIMARIES;
    for (int i = 0; i < WORKERS; i++)
        open_client("");
    workers_begin(client, WORKERS, &want);
    nap_us(300000);
    for (unsigned i = 0; i < 2 * pairs; i++) {
        force(i % 2 ? other : primary, i % 2 ? primary : other, command);
        nap_us(200000);
    }
    struct worker_totals totals = workers_end();
    assert_int_equal(totals.unserved, 0);
    assert_true(totals.writes > 10);
    if (keeps_all) {
        assert_int_equal(totals.refused, 0);
        assert_int_equal(totals.most, 1);
        assert_int_equal(totals.lost, 0);
    }
}

static void test_agreed(void **state)
{
    (void)state;
    force_under_load("CLUSTER FAILOVER", true, 1);
}

static void test_forced(void **state)
{
    (void)state;
    force_under_load("CLUSTER FAILOVER FORCE", false, 1);
}

static void test_taken_over(void **state)
{
    (void)state;
    force_under_load("CLUSTER FAILOVER TAKEOVER", false, rounds);
}

/* ---- Slots moved by redis-cli ---- */

struct waiter {
    hf_client *client;
    const char *name;
    pthread_t thread;
    hf_status status;
    char text[300];
    uint64_t token;
};

static void *wait_for_turn(void *arg)
{
    struct waiter *w = arg;
    hf_lease *lease;
    struct hf_request request =
        request_of(&(struct want){.name = w->name, .ttl_ms = TTL_MS, .wait_ms = 60000});
    w->status = hf_acquire(w->client, &request, &lease);
    snprintf(w->text, sizeof w->text, "%s", w->status == HF_OK ? "" : hf_error_text());
    if (w->status != HF_OK)
        return NULL;
    w->token = hf_lease_token(lease);
    must_release(lease);
    return NULL;
}

static void waiter_join(struct waiter *w)
{
    pthread_join(w->thread, NULL);
    if (w->status != HF_OK)
        fail_msg("%s", w->text);
}

/* All waiters wait for the first name, one behind the other. */
static void test_reshard(void **state)
{
    (void)state;
    struct loss loss[HELD] = {0};
    static struct waiter waiter[WAITERS]; /* threads that are not joined outlive the test */
    char name[HELD][16];
    hf_lease *lease[HELD];
    uint64_t token[HELD];
    start(0);
    hf_client *holder = open_client(""), *other = open_client("");
    for (int i = 0; i < HELD; i++) {
        find_name(0, SLOTS, name[i], sizeof *name);
        lease[i] = hold_noting(
            holder, &(struct want){.name = name[i], .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW},
            &loss[i]);
        token[i] = hf_lease_token(lease[i]);
    }
    for (int i = 0; i < WAITERS; i++) {
        waiter[i] = (struct waiter){.client = other, .name = name[0]};
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, wait_for_turn, &waiter[i]), 0);
        await_sight(holder, name[0], 1, i + 1);
    }

    int64_t began = now_ns();
    for (unsigned i = 0; i < rounds; i++) {
        cluster_reshard(&cluster, 0, 1, SLOTS);
        cluster_reshard(&cluster, 1, 0, SLOTS); /* the lowest that it has: the same ones */
    }
    cluster_reshard(&cluster, 0, 2, SLOTS);
    char key[24];
    snprintf(key, sizeof key, "lock:%s", name[0]);
    assert_int_equal(cluster_primary_of(&cluster, key), 2);
    print_message("# redis-cli moved %u slots in %lld ms\n", (2 * rounds + 1) * SLOTS,
                  (long long)ms_since(began));

    for (int i = 0; i < HELD; i++) {
        assert_true(hf_lease_ok(lease[i]) && hf_lease_token(lease[i]) == token[i]);
        assert_int_equal(atomic_load(&loss[i].times), 0);
    }
    for (int i = 0; i < HELD; i++)
        must_release(lease[i]);
    uint64_t last = token[0];
    for (int i = 0; i < WAITERS; i++) {
        waiter_join(&waiter[i]);
        assert_true(waiter[i].token > last); /* in their order */
        last = waiter[i].token;
    }
}

static void test_fix(void **state)
{
    (void)state;
    struct loss loss = {0};
    char name[16], key[24];
    start(0);
    hf_client *c = open_client("?connect_timeout=300ms"), *other = open_client("");
    find_name(0, CLUSTER_SLOT_COUNT / PRIMARIES, name, sizeof name);
    snprintf(key, sizeof key, "lock:%s", name);
    struct want want = {.name = name, .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW};
    hf_lease *lease = hold_noting(c, &want, &loss);
    static struct waiter waiter; /* a thread that is not joined outlives the test */
    waiter = (struct waiter){.client = other, .name = name};
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_turn, &waiter), 0);
    await_sight(c, name, 1, 1);

    unsigned slot = cluster_slot_of(&cluster, key);
    cluster_move_begin(&cluster, slot, 0, 1);
    assert_int_equal(cluster_move_keys(&cluster, slot, 0, 1, 1), 1);
    nap_us(SHORT_TTL_MS * 1500);
    assert_true(hf_lease_ok(lease));                  /* renewed on either side */
    assert_int_equal(hf_release(lease), HF_IN_DOUBT); /* the client goes on trying */
    hf_lease_free(lease);
    cluster_fix(&cluster, 0);
    waiter_join(&waiter);
    assert_int_equal(atomic_load(&loss.times), 0);
}

/* ---- Nodes that leave, join, and change their port ---- */

static int64_t connections_of_locks(const struct server *s)
{
    redisReply *list = server_cli(s, "CLIENT LIST");
    int64_t count = 0;
    for (const char *at = list->str; (at = strstr(at, "name=holdfast/")); at++)
        count++;
    freeReplyObject(list);
    return count;
}

static void forget(unsigned gone)
{
    for (unsigned i = 0; i < PRIMARIES; i++)
        if (i != gone)
            server_does(cluster.server[i], "CLUSTER FORGET %s", cluster.id[gone]);
    server_does(cluster.server[gone], "CLUSTER RESET HARD");
}

static void await_ok(const struct server *s)
{
    for (int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);; nap_us(20000)) {
        redisReply *info = server_cli(s, "CLUSTER INFO");
        bool is_ok = strstr(info->str, "cluster_state:ok") != NULL;
        freeReplyObject(info);
        if (is_ok)
            return;
        assert_true(now_ns() < end);
    }
}

static void cycle(hf_client *c, const char *name)
{
    must_release(
        must_acquire(c, &(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS}));
}

static void test_leave_and_join(void **state)
{
    (void)state;
    struct loss loss = {0};
    char name[16], key[24];
    start(0);
    hf_client *c = open_client("");
    find_name(2, CLUSTER_SLOT_COUNT / PRIMARIES, name, sizeof name);
    snprintf(key, sizeof key, "lock:%s", name);
    hf_lease *lease = hold_noting(
        c, &(struct want){.name = name, .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    uint64_t token = hf_lease_token(lease);
    assert_true(connections_of_locks(cluster.server[2]) > 0);

    cluster_reshard(&cluster, 2, 0, CLUSTER_SLOT_COUNT / PRIMARIES + 1);
    forget(2);
    assert_true(cluster_primary_of(&cluster, key) == 0);
    int64_t left = now_ns();
    while (connections_of_locks(cluster.server[2]) && ms_since(left) < PATIENCE_MS)
        nap_us(20000);
    print_message("# the connection to the node that left was closed after %lld ms\n",
                  (long long)ms_since(left));
    assert_int_equal(connections_of_locks(cluster.server[2]), 0);
    assert_true(hf_lease_ok(lease) && hf_lease_token(lease) == token);

    server_does(cluster.server[0], "CLUSTER MEET 127.0.0.1 %u", server_port(cluster.server[2]));
    redisReply *id = server_cli(cluster.server[2], "CLUSTER MYID");
    snprintf(cluster.id[2], sizeof cluster.id[2], "%s", id->str);
    freeReplyObject(id);
    await_ok(cluster.server[2]);
    nap_us(500000); /* the others know it too */
    cluster_move_slot(&cluster, cluster_slot_of(&cluster, key), 0, 2);
    nap_us(SHORT_TTL_MS * 1000);
    assert_true(hf_lease_ok(lease) && hf_lease_token(lease) == token);
    must_release(lease);
    cycle(c, name);
    assert_true(connections_of_locks(cluster.server[2]) > 0);
    assert_int_equal(atomic_load(&loss.times), 0);
}

/* The old port is closed at once; the bus tells the others of the new one. */
static void test_other_port(void **state)
{
    (void)state;
    struct loss loss = {0};
    char name[16];
    start(0);
    hf_client *c = open_client("");
    find_name(2, CLUSTER_SLOT_COUNT / PRIMARIES, name, sizeof name);
    hf_lease *lease = hold_noting(
        c, &(struct want){.name = name, .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    server_does(cluster.server[2], "CONFIG SET port %u", free_port());
    server_does(cluster.server[2], "CLIENT KILL TYPE normal");
    int64_t began = now_ns();
    for (hf_status status = HF_UNAVAILABLE; status != HF_OK; nap_us(20000)) {
        status = hf_extend(lease, TTL_MS);
        assert_true(ms_since(began) < TTL_MS);
    }
    print_message("# found on another port after %lld ms\n", (long long)ms_since(began));
    must_release(lease);
    assert_int_equal(atomic_load(&loss.times), 0);
}

/* ---- A primary whose bus is cut ---- */

/* Its replica is promoted; the primary itself stops to serve before that, because it sees no
 * majority. Clients reach all servers. */
static void test_bus_is_cut(void **state)
{
    (void)state;
    struct loss loss[2] = {0};
    struct want want = {.ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    char name[2][16], match[64];
    if (no_network) {
        print_message("# skipped: %s\n", no_network);
        skip();
    }
    server_needed(SERVER_REDIS);
    cluster_start(&cluster, &(struct cluster_options){
                                .primaries = PRIMARIES, .replicas = 1, .has_own_address = true});
    hf_client *c = open_client("");
    hf_lease *lease[2];
    for (unsigned i = 0; i < 2; i++) {
        find_name(i, CLUSTER_SLOT_COUNT / PRIMARIES, name[i], sizeof *name);
        want.name = name[i];
        lease[i] = hold_noting(c, &want, &loss[i]);
    }
    cluster_await_replica(&cluster, 0, PRIMARIES);
    unsigned bus = server_port(cluster.server[0]) + 10000U;
    int64_t cut = now_ns();
    assert_true(own_network_drop("ip saddr " CLUSTER_OWN_ADDRESS));
    assert_true(own_network_drop("ip daddr " CLUSTER_OWN_ADDRESS));
    snprintf(match, sizeof match, "tcp dport %u", bus);
    assert_true(own_network_drop(match));
    snprintf(match, sizeof match, "tcp sport %u", bus);
    assert_true(own_network_drop(match));

    cluster_await_promotion(&cluster, PRIMARIES);
    int64_t promoted = ms_since(cut);
    hf_status status = HF_UNAVAILABLE;
    while ((status = hf_extend(lease[0], TTL_MS)) != HF_OK && ms_since(cut) < TTL_MS)
        nap_us(20000);
    print_message("# promoted %lld ms after the cut, the holder was there after %lld ms\n",
                  (long long)promoted, (long long)ms_since(cut));
    assert_int_equal(status, HF_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&loss[i].times), 0);
        must_release(lease[i]);
        cycle(c, name[i]);
    }
    own_network_heal();
}

/* ---- Most primaries die ---- */

static void test_most_die(void **state)
{
    (void)state;
    struct loss loss = {0};
    char name[16];
    start(0);
    hf_client *c = open_client("?connect_timeout=300ms");
    find_name(0, CLUSTER_SLOT_COUNT / PRIMARIES, name, sizeof name);
    hf_lease *lease = hold_noting(
        c, &(struct want){.name = name, .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    server_kill9(cluster.server[1]);
    server_kill9(cluster.server[2]);
    for (int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);; nap_us(2000)) {
        redisReply *reply = server_cli(cluster.server[0], "SET lock:%s x NX", name);
        bool is_down = reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "CLUSTERDOWN");
        freeReplyObject(reply);
        if (is_down)
            break;
        assert_true(now_ns() < end);
    }
    assert_true(hf_lease_ok(lease)); /* nobody else can have it */
    int64_t soonest = now_ns() + (hf_lease_left_ms(lease) - 1) * INT64_C(1000000);
    int64_t latest = now_ns() + SHORT_TTL_MS * INT64_C(1000000); /* no renewal since then */

    struct hf_request request = request_of(&(struct want){.name = "other", .ttl_ms = TTL_MS});
    hf_lease *none;
    hf_status status = HF_OK;
    for (int i = 0; i < 5; i++)
        status = hf_acquire(c, &request, &none);
    print_message("# %s\n", hf_error_text());
    assert_int_equal(status, HF_UNAVAILABLE);
    int64_t asked;
    do {
        nap_us(1000);
        asked = now_ns();
    } while (hf_lease_ok(lease) && asked < latest);
    assert_true(asked < latest || !hf_lease_ok(lease)); /* not longer, */
    while (!atomic_load(&loss.times) && now_ns() < latest + PATIENCE_MS * INT64_C(1000000))
        nap_us(1000);
    print_message("# the loss was told %lld ms after the end of the ttl\n",
                  (long long)(loss.at_ns - soonest) / 1000000);
    assert_int_equal(atomic_load(&loss.times), 1);
    assert_true(loss.at_ns >= soonest); /* nor shorter */
    hf_lease_free(lease);
}

/* ---- Many wait ---- */

enum { CROWD = 10000, CONNECTIONS_MOST = 2 };

static _Atomic unsigned granted, refused;

static void give_back(hf_lease *lease, hf_status status, void *arg)
{
    (void)arg;
    bool has_one = status == HF_OK;
    granted += has_one;
    refused += !has_one;
    hf_lease_free(lease); /* which releases it */
}

static hf_lease *hold_one(hf_client *c, int number)
{
    char name[16];
    snprintf(name, sizeof name, "crowd%d", number);
    return must_acquire(
        c, &(struct want){.name = name, .ttl_ms = CROWD_TTL_MS, .flags = HF_AUTO_RENEW});
}

static void wait_for_one(hf_client *c, int number)
{
    char name[16];
    hf_lease *lease;
    snprintf(name, sizeof name, "crowd%d", number);
    struct hf_request request =
        request_of(&(struct want){.name = name, .ttl_ms = CROWD_TTL_MS, .wait_ms = 120000});
    assert_int_equal(hf_acquire_start(c, &request, give_back, NULL, &lease), HF_OK);
}

/* One client waits for locks in all slots; then a primary dies. All are served by the others and
 * by its replica, and no server sees more than two connections of a client. */
static void test_crowd(void **state)
{
    (void)state;
    static hf_lease *held[CROWD];
    start(1);
    hf_client *holder = open_client(""), *waiter = open_client("");
    granted = refused = 0;
    for (int i = 0; i < CROWD; i++)
        held[i] = hold_one(holder, i);
    for (int i = 0; i < CROWD; i++)
        wait_for_one(waiter, i);
    char last[16];
    snprintf(last, sizeof last, "crowd%d", CROWD - 1);
    await_sight(holder, last, 1, 1);
    for (unsigned i = 0; i < PRIMARIES; i++)
        assert_in_range(connections_of_locks(cluster.server[i]), 1, 2 * CONNECTIONS_MOST);
    cluster_await_replica(&cluster, 0, PRIMARIES);

    server_kill9(cluster.server[0]);
    cluster_await_promotion(&cluster, PRIMARIES);
    int64_t promoted = now_ns();
    unsigned unknown = 0;
    for (int i = 0; i < CROWD; i++) {
        assert_true(hf_lease_ok(held[i]));
        unknown += hf_release(held[i]) != HF_OK; /* those that met the end of the old primary */
        hf_lease_free(held[i]);
    }
    while (granted + refused < CROWD && ms_since(promoted) < 2 * PATIENCE_MS)
        nap_us(10000);
    print_message("# %u of %d waits served %lld ms after the promotion; %u releases unknown\n",
                  granted, CROWD, (long long)ms_since(promoted), unknown);
    assert_int_equal(granted, CROWD);
    for (unsigned i = 1; i <= PRIMARIES; i++)
        assert_in_range(connections_of_locks(cluster.server[i]), 1, 2 * CONNECTIONS_MOST);
}

/* Without an argument a part, within half a minute. With one all, and so many rounds of each. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        OPERATED("redis-cli ends an interrupted move: the waiter is served", test_fix),
        OPERATED("a node changes its port: its locks are found there", test_other_port),
        OPERATED("the bus of a primary is cut: its locks go on at its replica", test_bus_is_cut),
        OPERATED("most primaries die: a holder believes until its ttl is over, not less or more",
                 test_most_die),
    };
    const struct CMUnitTest more[] = {
        OPERATED("failovers that the primary agreed to lose nothing under load", test_agreed),
        OPERATED("forced failovers under load: all are served, the store refuses what was lost",
                 test_forced),
        OPERATED("the same without the votes of other primaries", test_taken_over),
        OPERATED("redis-cli moves slots with held locks to and fro: none is lost, order stays",
                 test_reshard),
        OPERATED("10,000 waits of one client over all slots, and a primary dies: all are served",
                 test_crowd),
        OPERATED("a node leaves and joins again: its locks are followed, its connection closed",
                 test_leave_and_join),
    };
    rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
    no_network = own_network_enter();
    int failed = cmocka_run_group_tests_name("cluster: operators", tests, NULL, NULL);
    if (rounds)
        failed += cmocka_run_group_tests_name("cluster: operators, for long", more, NULL, NULL);
    return failed;
}
