/* cluster_access.c - who may use a cluster and by which address: TLS and a user with the rights of
 * docs/redis-operations.md, rights that are missing, nodes that name a plain port to TLS clients,
 * no address, or a host name. */
#include "lib/cluster_setup.h"
#include "lib/loss_notes.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* ---- Nodes that name somebody else ---- */

/* A port on which somebody listens, answers nothing, and notes what comes. */
struct eavesdropper {
    int door;
    uint16_t port;
    pthread_t thread;
    char heard[4096];
    _Atomic size_t len;
};

static void *listen_in(void *arg)
{
    struct eavesdropper *e = arg;
    for (int fd; (fd = accept(e->door, NULL, NULL)) >= 0;) {
        for (ssize_t got; e->len < sizeof e->heard &&
                          (got = recv(fd, e->heard + e->len, sizeof e->heard - e->len, 0)) > 0;)
            e->len += (size_t)got;
        close(fd);
    }
    return NULL;
}

static void eavesdrop(struct eavesdropper *e)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *e = (struct eavesdropper){.door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                               .port = free_port()};
    at.sin_port = htons(e->port);
    assert_int_equal(bind(e->door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(e->door, 8), 0);
    assert_int_equal(pthread_create(&e->thread, NULL, listen_in, e), 0);
}

static void eavesdrop_end(struct eavesdropper *e)
{
    shutdown(e->door, SHUT_RDWR);
    close(e->door);
    pthread_join(e->thread, NULL);
}

/* The node names another port as its own, and the others tell clients. */
static void announce_port(unsigned node, unsigned port)
{
    bool is_known = false;
    server_does(cluster.server[node], "CONFIG SET cluster-announce-tls-port %u", port);
    for (int i = 0; !is_known; i++) {
        redisReply *slots = server_cli(cluster.server[0], "CLUSTER SLOTS");
        for (size_t k = 0; k < slots->elements; k++)
            is_known |= slots->element[k]->element[2]->element[1]->integer == port;
        freeReplyObject(slots);
        assert_true(i < 500);
        nap_us(20000);
    }
}

static void refused_at(const char *name, hf_status wanted, const char *words)
{
    hf_lease *lease;
    hf_client *c = open_as("locker", "?connect_timeout=500ms");
    struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = TTL_MS});
    hf_status status = hf_acquire(c, &request, &lease);
    print_message("# %s\n", hf_error_text());
    assert_int_equal(status, wanted);
    if (!strstr(hf_error_text(), words))
        fail_msg("does not say: %s", words);
}

/* With rediss nothing is sent in plain text, and nothing to somebody with a foreign certificate. */
static void test_foreign_address(void **state)
{
    (void)state;
    static struct eavesdropper plain; /* a thread that is not joined outlives the test */
    char name[16], key[24];
    unsigned at = 0;
    start(&(struct cluster_options){.primaries = PRIMARIES, .tls = true});
    add_user("locker", NULL);
    for (int i = 0; at != PRIMARIES - 1; i++) {
        snprintf(name, sizeof name, "n%d", i);
        snprintf(key, sizeof key, "lock:%s", name);
        at = cluster_primary_of(&cluster, key);
    }

    eavesdrop(&plain);
    announce_port(PRIMARIES - 1, plain.port);
    refused_at(name, HF_UNAVAILABLE, "no connection within");
    eavesdrop_end(&plain);
    size_t len = plain.len;
    print_message("# whoever listens in plain text heard %zu bytes\n", len);
    assert_true(len > 5 && plain.heard[0] == 0x16 && plain.heard[1] == 0x03); /* TLS handshake */
    assert_null(memmem(plain.heard, len, "AUTH", 4));
    assert_null(memmem(plain.heard, len, "PASSWORD", 8));

    const char *const args[] = {"--tls-cert-file", "stranger.crt", "--tls-key-file", "stranger.key",
                                NULL};
    struct server *stranger = server_start(&(struct server_options){.tls = true, .args = args});
    announce_port(PRIMARIES - 1, server_port(stranger));
    refused_at(name, HF_CONFIG, "certificate");
    assert_int_equal(server_calls(stranger, "auth"), 0);
    assert_int_equal(server_calls(stranger, "fcall"), 0);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ACCESSED("TLS on clients and bus, and the user of the docs", test_tls_and_user),
        ACCESSED("a right that is missing is named, and nothing is done by half", test_rights),
        ACCESSED("nodes that name a plain port to TLS clients: the setting is named",
                 test_two_ports),
        ACCESSED("nodes that name a foreign address: no word in plain text, no foreign certificate",
                 test_foreign_address),
        ACCESSED("nodes that name no address, or a host name", test_endpoints),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests_name("cluster: access", tests, NULL, NULL);
}
