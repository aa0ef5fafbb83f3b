/* cluster_access.c - who may use a cluster and by which address: TLS and a user with the rights of
 * docs/redis-operations.md, rights that are missing, nodes that name a plain port to TLS clients,
 * no address, or a host name. */
#include "lib/cluster_setup.h"
#include "lib/loss_notes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PRIMARIES = 3, TTL_MS = 5000 };

static struct cluster_servers cluster;
static hf_client *client[4];
static unsigned clients;

static int teardown(void **state)
{
    (void)state;
    while (clients)
        hf_close(client[--clients], 1000);
    servers_end();
    return 0;
}

#define ACCESSED(text, function)                                                                   \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

static void start(const struct cluster_options *options)
{
    server_needed(SERVER_REDIS);
    cluster_start(&cluster, options);
}

static hf_client *open_as(const char *user, const char *query)
{
    char url[1500];
    const char *files = cluster.options.tls ? cluster_tls(&cluster) : "";
    int len = snprintf(url, sizeof url, "redis%s+cluster://%s%s127.0.0.1:%u/%s",
                       cluster.options.tls ? "s" : "", user, user[0] ? ":PASSWORD@" : "",
                       server_port(cluster.server[0]), query);
    if (cluster.options.tls)
        snprintf(url + len, sizeof url - (size_t)len,
                 "%cca=%s/ca.crt&cert=%s/client.crt&key=%s/client.key", query[0] ? '&' : '?', files,
                 files, files);
    assert_int_equal(hf_open(url, NULL, &client[clients]), HF_OK);
    return client[clients++];
}

static void *wait_for_turn(void *arg)
{
    must_release(
        must_acquire(arg, &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = 2 * TTL_MS}));
    return NULL;
}

/* Locks on all primaries; one lock is waited for, moved with its slot, and handed over. */
static void use(hf_client *holder, hf_client *other)
{
    struct loss loss = {0};
    pthread_t waiter;
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        must_release(must_acquire(holder, &(struct want){.name = name, .ttl_ms = TTL_MS}));
    }
    hf_lease *lease = hold_noting(
        holder, &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_turn, other), 0);
    await_sight(holder, "job", 1, 1);
    if (!cluster.options.tls) { /* MIGRATE speaks no TLS on its own */
        unsigned from = cluster_primary_of(&cluster, "lock:job"), to = (from + 1) % PRIMARIES;
        cluster_move_slot(&cluster, cluster_slot_of(&cluster, "lock:job"), from, to);
    }
    nap_us(TTL_MS * 500);
    assert_true(hf_lease_ok(lease));
    must_release(lease);
    pthread_join(waiter, NULL);
    assert_int_equal(atomic_load(&loss.times), 0);
}

/* ---- TLS and rights ---- */

static const char *const rights[] = {"+spublish", "+ssubscribe", "+sunsubscribe", "+asking",
                                     "+cluster|slots"};
enum { RIGHTS = sizeof rights / sizeof *rights };

/* The user of the docs for a cluster, on all servers. */
static void add_user(const char *name, const char *without)
{
    for (unsigned i = 0; i < cluster.count; i++) {
        server_add_locker(cluster.server[i], name, NULL);
        server_does(cluster.server[i], "ACL SETUSER %s -blmpop -rpush -subscribe -publish", name);
        for (int k = 0; k < RIGHTS; k++)
            if (!without || strcmp(without, rights[k]) != 0)
                server_does(cluster.server[i], "ACL SETUSER %s %s", name, rights[k]);
    }
}

static void test_tls_and_user(void **state)
{
    (void)state;
    start(&(struct cluster_options){.primaries = PRIMARIES, .tls = true});
    add_user("locker", NULL);
    use(open_as("locker", ""), open_as("locker", ""));
}

static void test_rights(void **state)
{
    (void)state;
    static const char *const needed[] = {"+spublish", "+ssubscribe", "+cluster|slots"};
    start(&(struct cluster_options){.primaries = PRIMARIES});
    add_user("locker", NULL);
    use(open_as("locker", ""), open_as("locker", ""));
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char user[16];
        hf_lease *held, *lease;
        snprintf(user, sizeof user, "lacks%zu", i);
        add_user(user, needed[i]);
        held = must_acquire(client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS});
        hf_client *c = open_as(user, "");
        struct hf_request request =
            request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = 1000});
        hf_status status = hf_acquire(c, &request, &lease);
        print_message("# without %s: %s\n", needed[i], hf_error_text());
        assert_int_equal(status, HF_DENIED);
        assert_non_null(strstr(hf_error_text(), needed[i] + 1));
        hf_close(client[--clients], 1000);
        must_release(held); /* nothing was done by half */
        must_release(must_acquire(client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS}));
    }
}

/* ---- Addresses ---- */

/* Redis 7.0 names the plain port, unless tls-cluster is set. Nothing is sent there in plain text.
 */
static void test_two_ports(void **state)
{
    (void)state;
    hf_lease *lease;
    start(&(struct cluster_options){.primaries = PRIMARIES, .tls = true, .two_ports = true});
    add_user("locker", NULL);
    hf_client *c = open_as("locker", "?connect_timeout=500ms");
    struct hf_request request = request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS});
    hf_status status = hf_acquire(c, &request, &lease);
    print_message("# %s\n", hf_error_text());
    if (status == HF_OK) { /* Valkey names the port for TLS */
        must_release(lease);
        return;
    }
    assert_int_equal(status, HF_UNAVAILABLE);
    assert_non_null(strstr(hf_error_text(), "tls-cluster"));
}

static void prefer(const char *type)
{
    for (unsigned i = 0; i < cluster.count; i++)
        server_does(cluster.server[i], "CONFIG SET cluster-preferred-endpoint-type %s", type);
}

static void test_endpoints(void **state)
{
    (void)state;
    start(&(struct cluster_options){.primaries = PRIMARIES});
    prefer("unknown-endpoint");
    use(open_as("", ""), open_as("", ""));
    while (clients)
        assert_int_equal(hf_close(client[--clients], 1000), HF_OK);

    for (unsigned i = 0; i < cluster.count; i++)
        server_does(cluster.server[i], "CONFIG SET cluster-announce-hostname localhost");
    prefer("hostname");
    nap_us(1500000); /* the bus tells the names */
    redisReply *slots = server_cli(cluster.server[0], "CLUSTER SLOTS");
    assert_string_equal(slots->element[0]->element[2]->element[0]->str, "localhost");
    freeReplyObject(slots);
    must_release(must_acquire(open_as("", ""), &(struct want){.name = "job", .ttl_ms = TTL_MS}));
    must_release(must_acquire(open_as("", ""), &(struct want){.name = "n1", .ttl_ms = TTL_MS}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ACCESSED("TLS on clients and bus, and the user of the docs", test_tls_and_user),
        ACCESSED("a right that is missing is named, and nothing is done by half", test_rights),
        ACCESSED("nodes that name a plain port to TLS clients: the setting is named",
                 test_two_ports),
        ACCESSED("nodes that name no address, or a host name", test_endpoints),
    };
    return cmocka_run_group_tests_name("cluster: access", tests, NULL, NULL);
}
