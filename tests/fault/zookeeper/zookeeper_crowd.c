/* zookeeper_crowd.c - many places below one name, on a real ZooKeeper.
 *
 *     zookeeper_crowd [COUNT]     so many waiters, and so many readers; 1000 unless told
 *
 * A name has 10,000 places at most. With a COUNT above that, the requests beyond it must be refused
 * as full, and only they. */
#include "lib/engines.h"
#include "lib/nap.h"
#include "lib/zookeeper_server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 10000, COUNT_MAX = 12000, TURNS = 25 };

static int count = 1000;
static struct zookeeper_server *server;
static char url[128];

/* ---- Requests ---- */

static hf_lease *lease[COUNT_MAX];
static atomic_int granted, full, others; /* numbers of outcomes */
static atomic_int newest = -1;           /* number of the newest grant */

static void note(hf_lease *one, hf_status outcome, void *number)
{
    (void)one;
    if (outcome == HF_OK) {
        atomic_store(&newest, (int)(intptr_t)number);
        atomic_fetch_add(&granted, 1);
    } else if (outcome == HF_FULL) {
        atomic_fetch_add(&full, 1);
    } else {
        atomic_fetch_add(&others, 1);
    }
}

static hf_client *open_here(void)
{
    hf_client *client;
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

static void start_all(hf_client *client, const struct hf_request *request)
{
    granted = full = others = 0;
    newest = -1;
    for (int i = 0; i < count; i++)
        if (hf_acquire_start(client, request, note, (void *)(intptr_t)i, &lease[i]) != HF_OK)
            fail_msg("%s", hf_error_text());
}

static void await(const char *what, int (*value)(void), int wanted)
{
    int tries = 0;
    while (value() < wanted && ++tries < 12000)
        nap_ms(10);
    if (value() < wanted)
        fail_msg("%s: %d of %d after two minutes", what, value(), wanted);
}

static int places(void)
{
    nap_ms(100);
    return (int)zookeeper_count(server, "ephemerals_count");
}

static int grants(void)
{
    return granted;
}

static int outcomes(void)
{
    return granted + full + others;
}

static int refusals(void)
{
    return full;
}

static void setup_server(const char *option, const char *root)
{
    zookeeper_needed();
    server = zookeeper_start_with("", option);
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%u/%s", zookeeper_port(server), root);
}

static int teardown(void **state)
{
    (void)state;
    zookeeper_servers_end();
    return 0;
}

/* ---- Tests ---- */

/* Z12. Each handoff fires one watch: that of the next waiter. */
static void test_waiters(void **state)
{
    (void)state;
    setup_server("-Dzookeeper.snapCount=1000000", "crowd");
    hf_client *client = open_here(), *first = open_here();
    struct hf_request want = {
        .size = sizeof want, .name = "c", .ttl_ms = 60000, .wait_ms = HF_FOREVER};
    hf_lease *held;
    assert_int_equal(hf_acquire(first, &want, &held), HF_OK);
    start_all(client, &want);
    int beyond = count + 1 > PLACES_MAX ? count + 1 - PLACES_MAX : 0;
    await("places", places, count + 1 - beyond);
    await("refusals", refusals, beyond);
    assert_int_equal(full, beyond);
    assert_int_equal(granted + others, 0);

    int64_t fired = zookeeper_count(server, "sum_node_deleted_watch_count");
    assert_int_equal(hf_release(held), HF_OK);
    hf_lease_free(held);
    for (int turn = 1; turn <= TURNS; turn++) {
        await("grants", grants, turn);
        if (turn < TURNS)
            assert_int_equal(hf_release(lease[newest]), HF_OK);
    }
    fired = zookeeper_count(server, "sum_node_deleted_watch_count") - fired;
    print_message("# %d waiters: %d handoffs fired %d watches\n", count, TURNS, (int)fired);
    assert_int_equal(fired, TURNS);
    assert_int_equal(granted, TURNS);
    assert_int_equal(zookeeper_count(server, "sum_node_children_watch_count"), 0);
    hf_close(client, 0);
    hf_close(first, 0);
}

/* Z14. A server that reads requests of 4 kB at most still sends lists that are longer. */
static void test_readers(void **state)
{
    (void)state;
    setup_server("-Djute.maxbuffer=4096", "readers");
    hf_client *client = open_here(), *other = open_here();
    struct hf_request want = {
        .size = sizeof want, .name = "r", .ttl_ms = 60000, .wait_ms = HF_FOREVER, .kind = HF_READ};
    start_all(client, &want);
    int beyond = count > PLACES_MAX ? count - PLACES_MAX : 0;
    await("outcomes", outcomes, count);
    assert_int_equal(full, beyond);
    assert_int_equal(granted, count - beyond);
    assert_int_equal(others, 0);

    want.kind = HF_WRITE;
    want.wait_ms = 0;
    hf_lease *writer;
    assert_int_equal(hf_acquire(other, &want, &writer), beyond ? HF_FULL : HF_BUSY);
    for (int i = 0; i < count; i++) {
        assert_true(hf_lease_ok(lease[i]) || i >= PLACES_MAX);
        hf_lease_free(lease[i]);
    }
    want.wait_ms = 120000;
    assert_int_equal(hf_acquire(other, &want, &writer), HF_OK);
    assert_int_equal(hf_release(writer), HF_OK);
    hf_lease_free(writer);
    hf_close(client, 0);
    hf_close(other, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        count = atoi(argv[1]);
    if (count < TURNS || count > COUNT_MAX)
        return 64;
    const struct CMUnitTest tests[] = {
        SENTENCE("a handoff among many waiters fires one watch", test_waiters),
        SENTENCE("many readers hold at once, whatever jute.maxbuffer says", test_readers),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
