/* postgres_cuts.c - the connection to a real server is cut at a byte of a request or of a reply
 * (P11): the request is lost, or carried out and not answered (also between its row and the end of
 * its commit), or carried out when its client has long asked again. Whatever the client is told,
 * nobody else holds beside it, tokens rise, and nothing is left behind (G1, G4, G10).
 *
 *     postgres_cuts [STRIDE]      1: every byte */
#include "holdfast.h"
#include "lib/postgres_servers.h"
#include "lib/proxy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 10000, AT_ONCE_MS = 3000, URL_TEXT = 100 };
enum act { ACQUIRING, EXTENDING, RELEASING };
enum fault { LOST, UNANSWERED, LATE, NO_FAULT };

static const char *const act_names[] = {"acquire", "extend", "release"};
static const char *const fault_names[] = {"lost", "not answered", "late"};

static struct postgres_server *server;
static struct proxy *proxy;
static hf_client *rival;
static uint64_t stride = 1;
static unsigned runs;

static hf_client *open_at(uint16_t port)
{
    char url[URL_TEXT];
    hf_client *client;
    /* a busy machine is no cut */
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%u/postgres?op_timeout=2s", port);
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    return client;
}

static hf_status take(hf_client *client, const char *name, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request want = {
        .size = sizeof want, .name = name, .ttl_ms = TTL_MS, .wait_ms = wait_ms};
    return hf_acquire(client, &want, lease);
}

static void give_back(hf_lease *lease)
{
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* Somebody else gets it within that time, with a higher token. */
static void assert_next_within(const char *name, int64_t ms, uint64_t token)
{
    hf_lease *lease;
    hf_status status = take(rival, name, ms, &lease);
    if (status != HF_OK)
        fail_msg("%s: not free after %" PRId64 " ms: %s", name, ms, hf_error_text());
    assert_true(hf_lease_token(lease) > token);
    give_back(lease);
}

static void assert_busy(const char *name)
{
    hf_lease *lease;
    assert_int_equal(take(rival, name, 0, &lease), HF_BUSY);
}

static enum proxy_way way_of(enum fault kind)
{
    return kind == UNANSWERED ? PROXY_REPLIES : PROXY_REQUESTS;
}

static hf_status do_act(hf_client *victim, enum act act, const char *name, hf_lease **lease)
{
    if (act == ACQUIRING)
        return take(victim, name, 8000, lease);
    return act == EXTENDING ? hf_extend(*lease, TTL_MS) : hf_release(*lease);
}

/* A proxy keeps what it was told, so there is a new one now and then. */
static void renew_proxy(void)
{
    enum { RUNS = 50 };
    if (runs % RUNS)
        return;
    proxy_end(proxy);
    proxy = proxy_start(postgres_port(server));
}

/* A client that has a connection with prepared statements, and a lease if the act is about one. */
static hf_client *open_victim(enum act act, const char *name, hf_lease **lease)
{
    renew_proxy();
    hf_client *victim = open_at(proxy_port(proxy));
    assert_int_equal(take(victim, "warm", 5000, lease), HF_OK);
    give_back(*lease);
    if (act != ACQUIRING)
        assert_int_equal(take(victim, name, 5000, lease), HF_OK);
    return victim;
}

/* Returns how many bytes the act takes in the direction of the fault. */
static uint64_t measure(enum act act, enum fault kind)
{
    char name[32];
    hf_lease *lease;
    snprintf(name, sizeof name, "cut%u", ++runs);
    hf_client *victim = open_victim(act, name, &lease);
    uint32_t connection = proxy_connections(proxy);
    uint64_t before = proxy_bytes(proxy, connection, way_of(kind));
    assert_int_equal(do_act(victim, act, name, &lease), HF_OK);
    uint64_t bytes = proxy_bytes(proxy, connection, way_of(kind)) - before;
    if (act != RELEASING)
        assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(hf_close(victim, 1000), HF_OK);
    return bytes;
}

/* What the victim was told is true, and others get the lock when it is over. A late request arrives
 * behind the release. */
static void judge(enum act act, hf_status status, const char *name, hf_lease *lease, int late)
{
    bool is_without = act == ACQUIRING && status != HF_OK;
    /* The server has a statement without its end, so the old connection keeps the row until the
     * proxy ends it. */
    if (is_without)
        print_message("# %s: %s\n", name, hf_error_text());
    if (is_without && status != HF_UNAVAILABLE)
        assert_int_equal(status, HF_IN_DOUBT);
    uint64_t token = is_without ? 0 : hf_lease_token(lease);
    if (act != RELEASING && status == HF_OK) {
        assert_busy(name);
        status = hf_release(lease);
        assert_int_equal(status, HF_OK);
    }
    if (!is_without)
        hf_lease_free(lease);
    if (late >= 0)
        proxy_deliver(proxy, late);
    assert_next_within(name, status == HF_OK ? AT_ONCE_MS : TTL_MS + AT_ONCE_MS, token);
}

/* The connection fails at a byte of the act. */
static void run(enum act act, enum fault kind, uint64_t byte)
{
    char name[32];
    hf_lease *lease;
    snprintf(name, sizeof name, "cut%u", ++runs);
    hf_client *victim = open_victim(act, name, &lease);
    uint32_t connection = proxy_connections(proxy);
    struct proxy_fault wanted = {.kind = kind == LATE ? PROXY_LATE : PROXY_CUT,
                                 .way = way_of(kind),
                                 .connection = connection,
                                 .after = proxy_bytes(proxy, connection, way_of(kind)) + byte};
    int fault = proxy_plant(proxy, &wanted);
    hf_status status = do_act(victim, act, name, &lease);
    proxy_await(proxy, fault);
    judge(act, status, name, lease, kind == LATE ? fault : -1);
    assert_int_equal(hf_close(victim, 5000), HF_OK);
}

static void cut_act(enum act act)
{
    for (enum fault kind = LOST; kind < NO_FAULT; kind++) {
        uint64_t bytes = measure(act, kind), count = 0;
        for (uint64_t byte = runs % stride; byte < bytes; byte += stride, count++)
            run(act, kind, byte);
        print_message("# %s, %s: %" PRIu64 " cuts in %" PRIu64 " bytes\n", act_names[act],
                      fault_names[kind], count, bytes);
        assert_true(count > 0);
    }
}

/* ---- Tests ---- */

static void test_acquire(void **state)
{
    (void)state;
    cut_act(ACQUIRING);
}

static void test_extend(void **state)
{
    (void)state;
    cut_act(EXTENDING);
}

static void test_release(void **state)
{
    (void)state;
    cut_act(RELEASING);
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    assert_int_equal(postgres_number(server, "SELECT count(*) FROM holdfast.lock WHERE used > 0 "
                                             "OR waiting > 0"),
                     0);
    assert_int_equal(postgres_number(server, "SELECT count(*) FROM holdfast.waiter"), 0);
}

static int open_server(void **state)
{
    (void)state;
    postgres_needed();
    server = postgres_start(NULL);
    proxy = proxy_start(postgres_port(server));
    rival = open_at(postgres_port(server));
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    hf_status status = hf_close(rival, 1000);
    proxy_end(proxy);
    postgres_servers_end();
    return status == HF_OK ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        stride = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        SENTENCE("an acquire that is cut holds alone, and leaves nothing", test_acquire),
        SENTENCE("an extend that is cut holds alone, and leaves nothing", test_extend),
        SENTENCE("a release that is cut leaves nothing", test_release),
        SENTENCE("nothing is left in the tables", test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
