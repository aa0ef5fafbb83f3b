/* redis_partition.c - networks that lose what is sent, in one direction or in both, and tell
 * nobody: who is cut off knows by its own clock when it holds nothing any more, and others have it
 * after that and not before; what was carried out and not answered is given back; everybody is well
 * again when the network is.
 *
 * The whole test lives in a network of its own, with rules of nftables. One client, the far one,
 * reaches the server by another address than the rest; the rules concern that address alone. */
#include "checker/history_recording.h"
#include "lib/loss_notes.h"
#include "lib/own_network.h"
#include "redis_fixture.h"

#include <pthread.h>

enum {
    TTL_MS = 1000,
    LONG_TTL_MS = 20000,
    SHORT_MS = 400,
    LOSSY_MS = 2000,
    LOSSY_CLIENTS = 3,
    WAIT_MS = 8000,
    SOON_MS = 2500, /* TCP itself repeats what was lost after one second */
    SLACK_MS = 400, /* a machine with much else to do */
};

/* ---- The network ---- */

static const char *no_network; /* why there is none of our own; NULL: there is */

#define FAR "127.0.0.2"

enum way { REQUESTS = 1, ANSWERS = 2, BOTH = REQUESTS | ANSWERS };

/* What comes to the far address, or from it, meets this fate: "drop". */
static void rule(enum way ways, const char *match, const char *fate)
{
    char words[300];
    unsigned port = server_port(scene.server);
    snprintf(words, sizeof words,
             "add rule inet holdfast in ip daddr " FAR " tcp dport %u %s counter %s", port, match,
             fate);
    assert_true(!(ways & REQUESTS) || own_network_nft(words));
    snprintf(words, sizeof words,
             "add rule inet holdfast in ip saddr " FAR " tcp sport %u %s counter %s", port, match,
             fate);
    assert_true(!(ways & ANSWERS) || own_network_nft(words));
}

static void cut(enum way ways)
{
    rule(ways, "", "drop");
}

/* ---- The far client ---- */

static char far_url[128];
static hf_client *far;

static int setup(void **state)
{
    static const char *const addresses[] = {"--bind", "127.0.0.1", FAR, NULL};
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.args = addresses});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    snprintf(far_url, sizeof far_url, "redis://" FAR ":%u?retry_max=200ms",
             server_port(scene.server));
    return hf_open(far_url, NULL, &far) == HF_OK ? 0 : -1;
}

static int teardown(void **state)
{
    own_network_nft("flush chain inet holdfast in");
    hf_status closed = hf_close(far, 5000);
    if (closed != HF_OK)
        print_error("closing the far client: %s\n", hf_error_text());
    far = NULL;
    return scene_teardown(state) == 0 && closed == HF_OK ? 0 : -1;
}

static hf_lease *hold_far(const char *name, int64_t ttl_ms, struct loss *loss)
{
    return hold_noting(far, &(struct want){.name = name, .ttl_ms = ttl_ms, .flags = HF_AUTO_RENEW},
                       loss);
}

/* Everybody gets what it asks for, and soon. */
static void must_be_well(const char *name)
{
    struct want want = {.name = name, .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    int64_t from = now_ns();
    must_release(must_acquire(far, &want));
    must_release(must_acquire(scene_client(), &want));
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# well again after %lld ms\n", (long long)took);
    assert_in_range(took, 0, SOON_MS);
}

/* ---- Who holds ---- */

/* The last moment in which it was good by its own clock. */
static int64_t believe_until_lost(const hf_lease *lease, const struct loss *loss)
{
    int64_t last = 0, end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    while (!atomic_load(&loss->times)) {
        int64_t now = now_ns();
        assert_true(now < end);
        if (hf_lease_left_ms(lease) > 0)
            last = now;
        nap_us(200);
    }
    return last;
}

static void cut_holder_off(enum way ways)
{
    static struct loss loss;
    loss = (struct loss){0};
    struct actor *near = scene_actor();
    hf_lease *held = hold_far("turn", TTL_MS, &loss);
    actor_acquire(near, 1, ORDER_ACQUIRE,
                  &(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    scene_await_queue("turn", 1);
    nap_us(TTL_MS * 700); /* it is renewed meanwhile */
    int64_t from = now_ns();
    cut(ways);
    int64_t last = believe_until_lost(held, &loss);
    struct answer granted = actor_answer(near, ORDER_ACQUIRE, 1);
    assert_int_equal(granted.status, HF_OK);
    print_message(
        "# lost %lld ms after the cut, good for the last time %lld ms before another one held\n",
        (long long)(atomic_load(&loss.at_ns) - from) / 1000000,
        (long long)(granted.at_ns - last) / 1000000);
    assert_true(granted.at_ns > last);
    assert_in_range((atomic_load(&loss.at_ns) - from) / 1000000, 0, TTL_MS + SLACK_MS);
    assert_true(granted.token > hf_lease_token(held));
    /* Unheard renewals may have come through: the end at the server is a ttl after the last of
     * them. */
    assert_in_range((granted.at_ns - from) / 1000000, 0, 2 * TTL_MS + SLACK_MS);
    own_network_heal();
    assert_int_equal(hf_release(held), HF_NOT_HELD);
    hf_lease_free(held);
    assert_int_equal(actor_does(near, ORDER_RELEASE, 1).status, HF_OK);
    must_be_well("turn");
    assert_int_equal(atomic_load(&loss.times), 1);
}

static void test_holder_both(void **state)
{
    (void)state;
    cut_holder_off(BOTH);
}

static void test_holder_requests(void **state)
{
    (void)state;
    cut_holder_off(REQUESTS);
}

static void test_holder_answers(void **state)
{
    (void)state;
    cut_holder_off(ANSWERS);
}

static void test_short(void **state)
{
    (void)state;
    static struct loss loss;
    loss = (struct loss){0};
    hf_lease *held = hold_far("turn", 3 * TTL_MS, &loss);
    for (enum way ways = REQUESTS; ways <= BOTH; ways++) {
        int64_t from = now_ns();
        cut(ways);
        while (own_network_lost() == 0) { /* the next renewal */
            assert_true(now_ns() - from < 2 * TTL_MS * 1000000LL);
            nap_us(20000);
        }
        nap_us(SHORT_MS * 1000);
        own_network_heal();
    }
    nap_us(2 * TTL_MS * 1000);
    assert_int_equal(atomic_load(&loss.times), 0);
    assert_true(hf_lease_ok(held) && hf_lease_left_ms(held) > 0);
    must_release(held);
    must_be_well("turn");
}

/* ---- Who asks ---- */

static void test_ghost(void **state)
{
    (void)state;
    must_be_well("ghost");
    struct hf_request request = request_of(&(struct want){.name = "ghost", .ttl_ms = LONG_TTL_MS});
    hf_lease *lease;
    cut(ANSWERS);
    int64_t from = now_ns();
    hf_status status = hf_acquire(far, &request, &lease);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# %s after %lld ms: %s\n", hf_status_name(status), (long long)took,
                  hf_error_text());
    assert_int_equal(status, HF_IN_DOUBT);
    assert_in_range(took, 0, 4 * 500 + SLACK_MS); /* a request may take 500 ms with that ttl */
    assert_int_equal(server_count(scene.server, "EXISTS lock:ghost"), 1);
    own_network_heal();
    must_be_well("ghost");
}

struct waiter {
    pthread_t thread;
    hf_status status;
    int64_t wait_ms, took_ms;
};

static void *wait_far(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request =
        request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = w->wait_ms});
    hf_lease *lease;
    int64_t from = now_ns();
    w->status = hf_acquire(far, &request, &lease);
    w->took_ms = (now_ns() - from) / 1000000;
    hf_lease_free(lease);
    return NULL;
}

/* It is handed the lock and does not hear of it: it costs the others a bounded time, and itself its
 * turn. */
static void test_waiter(void **state)
{
    (void)state;
    static struct waiter w;
    w = (struct waiter){.wait_ms = 2000};
    struct actor *next = scene_actor();
    struct want want = {.name = "turn", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS};
    hf_lease *held = must_acquire(scene_client(), &want);
    assert_int_equal(pthread_create(&w.thread, NULL, wait_far, &w), 0);
    scene_await_queue("turn", 1);
    want.flags = HF_AUTO_RENEW; /* it holds until the far one's wait is over */
    actor_acquire(next, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("turn", 2);
    cut(ANSWERS);
    int64_t from = now_ns();
    must_release(held);
    struct answer granted = actor_answer(next, ORDER_ACQUIRE, 1);
    int64_t took = (granted.at_ns - from) / 1000000;
    assert_int_equal(granted.status, HF_OK);
    print_message("# the next one held %lld ms after the release\n", (long long)took);
    assert_in_range(took, 0, 2 * TTL_MS + SLACK_MS);
    assert_int_equal(actor_does(next, ORDER_RELEASE, 1).status, HF_OK);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    print_message("# the wait of %lld ms ended after %lld: %s\n", (long long)w.wait_ms,
                  (long long)w.took_ms, hf_status_name(w.status));
    assert_true(w.status == HF_TIMEOUT || w.status == HF_IN_DOUBT || w.status == HF_UNAVAILABLE);
    assert_in_range(w.took_ms, w.wait_ms,
                    w.wait_ms + 4 * 50 + SLACK_MS); /* a request may take 50 ms */
    own_network_heal();
    must_be_well("turn");
}

/* A network that says no: a firewall's reset. */
static void test_rejected(void **state)
{
    (void)state;
    must_be_well("turn");
    struct hf_request request =
        request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = SHORT_MS});
    hf_lease *lease;
    rule(REQUESTS, "", "reject with tcp reset");
    int64_t from = now_ns();
    hf_status status = hf_acquire(far, &request, &lease);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# %s after %lld ms: %s\n", hf_status_name(status), (long long)took,
                  hf_error_text());
    assert_true(status == HF_UNAVAILABLE || status == HF_IN_DOUBT);
    assert_in_range(took, SHORT_MS, SHORT_MS + SLACK_MS);
    own_network_heal();
    must_be_well("turn");
}

/* ---- A bad line ---- */

static struct lossy {
    struct recording *held;
    _Atomic bool over;
    _Atomic unsigned holds;
} * lossy;

static void take_turns(struct actor *me, void *arg)
{
    (void)arg;
    hf_client *client;
    part_must(hf_open(far_url, NULL, &client) == HF_OK);
    struct hf_request request =
        request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = 1000});
    while (!atomic_load(&lossy->over)) {
        hf_lease *lease;
        if (hf_acquire(client, &request, &lease) != HF_OK)
            continue;
        int64_t from = now_ns();
        nap_us(3000);
        record_hold(lossy->held, 0, lease, from);
        atomic_fetch_add(&lossy->holds, 1);
        hf_release(lease); /* what came of it does not matter here */
        hf_lease_free(lease);
    }
    part_must(hf_close(client, 5000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_CLOSE});
}

static void test_lossy(void **state)
{
    (void)state;
    struct actor *actor[LOSSY_CLIENTS];
    lossy = scene_page(sizeof *lossy);
    lossy->held = recording_open(HOLDS);
    for (int i = 0; i < LOSSY_CLIENTS; i++)
        actor[i] = actor_start_part(take_turns, NULL);
    rule(BOTH, "numgen random mod 100 < 20", "drop");
    nap_us(LOSSY_MS * 1000);
    own_network_heal();
    unsigned holds = atomic_load(&lossy->holds);
    nap_us(1000000);
    print_message("# %u holds on the bad line, %u in a second after it\n", holds,
                  atomic_load(&lossy->holds) - holds);
    assert_true(holds > 0 && atomic_load(&lossy->holds) > holds + 10);
    atomic_store(&lossy->over, true);
    for (int i = 0; i < LOSSY_CLIENTS; i++)
        actor_answer(actor[i], ORDER_CLOSE, 0);
    assert_one_held(lossy->held);
    recording_close(lossy->held);
    must_be_well("turn");
}

/* ---- */

static void test_skipped(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    print_message("# %s\n", no_network);
    skip();
}

int main(void)
{
    static const struct CMUnitTest rows[] = {
        SENTENCE(
            "a holder that is cut off knows in time that it lost, and others have it after that",
            test_holder_both),
        SENTENCE("so does one whose requests are lost", test_holder_requests),
        SENTENCE("so does one whose answers are lost, though its renewals come through",
                 test_holder_answers),
        SENTENCE("a partition that is shorter than the ttl costs nothing", test_short),
        SENTENCE("what was granted and not answered is given back when the network is well",
                 test_ghost),
        SENTENCE("a waiter that does not hear of its turn costs the others a bounded time",
                 test_waiter),
        SENTENCE(
            "connections that are refused by a firewall are tried again until the wait is over",
            test_rejected),
        SENTENCE("on a line that loses a fifth of all packets there is one holder at a time",
                 test_lossy),
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct CMUnitTest tests[ROWS];
    no_network = own_network_enter();
    bool can = !no_network && !server_missing(SERVER_REDIS);
    for (int i = 0; i < ROWS; i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name,
                                       .test_func = can ? rows[i].test_func : test_skipped,
                                       .setup_func = can ? setup : NULL,
                                       .teardown_func = can ? teardown : NULL};
    return cmocka_run_group_tests_name("redis: partitions", tests, NULL, NULL);
}
