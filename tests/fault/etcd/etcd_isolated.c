/* etcd_isolated.c - a node of etcd that is cut off from the others while its clients still reach
 * it, in a network of the test's own. Their watches and renewals move on to a node with a leader.
 */
#include "etcd_fixture.h"
#include "lib/own_network.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 8, TTL_MS = 12000, WAIT_MS = 60000 };

static struct etcd_server *node[ETCD_NODES];
static int cut; /* number of the node that is cut off */
static const char *obstacle;

static const char *enter(void)
{
    const char *why = own_network_enter();
    if (why || geteuid() != 0)
        return why ? why : "only root can tell the connections of a server apart";
    bool done =
        own_network_nft("add chain inet holdfast out { type filter hook output priority 0; }") &&
        own_network_nft("add rule inet holdfast out ct mark 2 accept");
    return done ? NULL : "nft cannot mark connections here";
}

/* From now on connections between that node and the others have a mark. */
static void mark_connections(int number)
{
    static const char group[] = "65534";
    char words[200];
    cut = number;
    for (int i = 0; i < ETCD_NODES; i++) {
        const char *from = i == cut ? "" : "meta skgid 65534 ";
        snprintf(words, sizeof words, "add rule inet holdfast out %stcp dport %u ct mark set 1",
                 from, etcd_peer_port(node[i]));
        assert_true(own_network_nft(words));
    }
    etcd_use_group(node[cut], group);
}

/* A client of the node that is cut off, if it may, and of another. Clients begin with the first. */
static hf_client *client_of(bool may_use_cut, int other)
{
    char url[128];
    int len = snprintf(url, sizeof url, "etcd://");
    if (may_use_cut)
        len += snprintf(url + len, sizeof url - (size_t)len, "127.0.0.1:%u,", etcd_port(node[cut]));
    snprintf(url + len, sizeof url - (size_t)len, "127.0.0.1:%u/isolated", etcd_port(node[other]));
    return etcd_client(url);
}

/* Number of connections that others have to that port. */
static int connections_to(uint16_t port)
{
    char line[256];
    int count = 0;
    FILE *table = fopen("/proc/net/tcp", "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table)) {
        unsigned local, remote, state;
        bool is_read = sscanf(line, " %*u: %*x:%x %*x:%x %x", &local, &remote, &state) == 3;
        count += is_read && remote == port && state == 1;
    }
    fclose(table);
    return count;
}

static hf_lease *hold(hf_client *client, const char *prefix, int number, struct loss *loss)
{
    char name[32];
    snprintf(name, sizeof name, "%s-%d", prefix, number);
    return hold_noting(
        client, &(struct want){.name = name, .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW}, loss);
}

/* Each client holds one lock and waits for another, which a client elsewhere then releases. */
static void test_isolated(void **state)
{
    (void)state;
    static struct loss loss[CLIENTS];
    static struct waiter waiter[CLIENTS];
    static char name[CLIENTS][32];
    hf_client *client[CLIENTS];
    hf_lease *lease[CLIENTS], *ahead[CLIENTS];
    etcd_cluster_start(node);
    int leader = etcd_leader(node);
    mark_connections((leader + 1) % ETCD_NODES);
    hf_client *elsewhere = client_of(false, leader);

    int before = connections_to(etcd_port(node[cut]));
    for (int i = 0; i < CLIENTS; i++) {
        ahead[i] = hold(elsewhere, "next", i, NULL);
        client[i] = client_of(true, leader);
        lease[i] = hold(client[i], "held", i, &loss[i]);
        snprintf(name[i], sizeof name[i], "next-%d", i);
        waiter[i] = (struct waiter){
            .client = client[i], .name = name[i], .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
        waiter_start(&waiter[i]);
        char keys[64];
        snprintf(keys, sizeof keys, "isolated/next-%d/", i);
        etcd_await_keys(node[leader], keys, 2);
    }
    int there = connections_to(etcd_port(node[cut])) - before;
    print_message("# %d connections to the node that is cut off\n", there);
    assert_true(there > 0); /* or nothing is tried */

    assert_true(own_network_drop("ct mark 1"));
    int64_t at = now_ns();
    for (int i = 0; i < CLIENTS; i++)
        must_release(ahead[i]);
    int64_t longest = 0;
    for (int i = 0; i < CLIENTS; i++) {
        waiter_must_hold(&waiter[i]);
        int64_t ms = (waiter[i].at_ns - at) / 1000000;
        longest = ms > longest ? ms : longest;
    }
    print_message("# the last waiter was granted after %lld ms\n", (long long)longest);

    nap_ms(TTL_MS * 3 / 2); /* holds are renewed elsewhere */
    own_network_heal();
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(atomic_load(&loss[i].times), 0);
        must_release(lease[i]);
        etcd_client_close(client[i]);
    }
    etcd_client_close(elsewhere);
}

static int enter_or_skip(void **state)
{
    (void)state;
    etcd_needed();
    if (obstacle) {
        print_message("# skipped: %s\n", obstacle);
        skip();
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    etcd_servers_end();
    return 0;
}

int main(void)
{
    obstacle = enter();
    const struct CMUnitTest tests[] = {
        {"a node is cut off: its clients' waiters are granted, and their holds live", test_isolated,
         enter_or_skip, teardown, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
