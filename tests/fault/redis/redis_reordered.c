/* redis_reordered.c - requests that were sent first and arrive last: connections overtake each
 * other on the way to a real server. The order in which they arrive counts; what arrives after its
 * attempt has ended becomes nothing; nobody waits for ever because its ear came late (G1, G2, G4,
 * G14, G16). The proxy holds back, and tells whether it was overtaken. */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <stdatomic.h>

enum {
    TTL_MS = 2000,       /* one request may take 100 ms */
    LONG_TTL_MS = 30000, /* one request may take as long as this test needs */
    WAIT_MS = 9000,
};

static struct proxy *proxy;

static int set_up(void **state)
{
    if (scene_setup(state) != 0)
        return -1;
    proxy = proxy_start(server_port(scene.server));
    return 0;
}

static int tear_down(void **state)
{
    if (proxy)
        proxy_end(proxy);
    proxy = NULL;
    return scene_teardown(state);
}

/* ---- Clients on the other side of the proxy ---- */

struct far {
    hf_client *client;
    uint32_t connection; /* the one that its requests take */
};

static struct far open_far(const char *settings)
{
    char url[128];
    struct far far = {.connection = proxy_connections(proxy) + 1};
    snprintf(url, sizeof url, "redis://127.0.0.1:%u?%s", proxy_port(proxy), settings);
    if (hf_open(url, NULL, &far.client) != HF_OK)
        fail_msg("%s", hf_error_text());
    must_release(must_acquire(far.client, &(struct want){.name = "warm", .ttl_ms = LONG_TTL_MS}));
    return far;
}

/* The next request of that client waits for others. */
static int hold_back_next(const struct far *far, uint64_t others)
{
    return proxy_plant_behind(proxy, far->connection,
                              proxy_bytes(proxy, far->connection, PROXY_REQUESTS), others);
}

/* It has waited for an answer in vain, and come back. */
static void await_another_connection(const struct far *far)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         proxy_connections(proxy) == far->connection; nap_us(500))
        if (now_ns() > end)
            fail_msg("nobody comes back");
}

static void close_far(struct far *far)
{
    if (hf_close(far->client, 5000) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* An ask whose outcome comes by itself. */
struct pending {
    hf_lease *lease;
    _Atomic bool over;
    hf_status outcome;
};

static void note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct pending *pending = arg;
    (void)lease;
    pending->outcome = outcome;
    atomic_store(&pending->over, true);
}

static void begin(struct pending *pending, hf_client *client, const struct want *want)
{
    struct hf_request request = request_of(want);
    *pending = (struct pending){0};
    if (hf_acquire_start(client, &request, note_outcome, pending, &pending->lease) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static hf_status await_outcome(struct pending *pending)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; !atomic_load(&pending->over);
         nap_us(500))
        if (now_ns() > end)
            fail_msg("an ask has no outcome");
    return pending->outcome;
}

/* ---- What the server has ---- */

static char *record_of(const char *name)
{
    redisReply *reply = server_cli(scene.server, "GET lock:%s", name);
    char *text = strdup(reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
    assert_non_null(text);
    return text;
}

/* What was held back arrives now, and changes nothing of the hold that is there. */
static void let_it_arrive_in_vain(int fault, hf_lease *holder)
{
    char *before = record_of("turn");
    assert_true(strlen(before) > 0);
    assert_true(proxy_overtaken(proxy, fault) > 0);
    int64_t scripts = server_calls(scene.server, "fcall");
    assert_true(proxy_go_on(proxy, fault) > 0);
    assert_true(server_calls(scene.server, "fcall") > scripts); /* the server is done with it */
    char *after = record_of("turn");
    assert_string_equal(after, before);
    assert_int_equal(hf_extend(holder, LONG_TTL_MS), HF_OK);
    free(before);
    free(after);
}

/* ---- Two clients ---- */

static void test_other_order(void **state)
{
    (void)state;
    static struct pending first;
    struct far a = open_far(""), b = open_far("");
    int fault = hold_back_next(&a, 1);
    begin(&first, a.client,
          &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS, .wait_ms = WAIT_MS});
    proxy_await(proxy, fault);
    hf_lease *held = must_acquire(b.client, &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS});
    scene_await_queue("turn", 1); /* it has arrived, and waits for who came later */
    assert_true(proxy_went_on(proxy, fault) && proxy_overtaken(proxy, fault) > 0);
    assert_false(atomic_load(&first.over));
    uint64_t token = hf_lease_token(held);
    must_release(held);
    assert_int_equal(await_outcome(&first), HF_OK);
    assert_true(hf_lease_token(first.lease) > token);
    must_release(first.lease);
    close_far(&a);
    close_far(&b);
}

/* Of two that wait, the one that asked first arrives last: it has the second place. */
static void test_queue_in_order_of_arrival(void **state)
{
    (void)state;
    static struct pending early, late;
    struct far a = open_far(""), b = open_far("");
    struct want want = {.name = "turn", .ttl_ms = LONG_TTL_MS, .wait_ms = WAIT_MS};
    hf_lease *held = must_acquire(scene_client(), &want);
    int fault = hold_back_next(&a, 1);
    begin(&late, a.client, &want);
    proxy_await(proxy, fault);
    begin(&early, b.client, &want);
    scene_await_queue("turn", 2);
    assert_true(proxy_went_on(proxy, fault) && proxy_overtaken(proxy, fault) > 0);
    must_release(held);
    assert_int_equal(await_outcome(&early), HF_OK);
    assert_false(atomic_load(&late.over));
    uint64_t token = hf_lease_token(early.lease);
    must_release(early.lease);
    assert_int_equal(await_outcome(&late), HF_OK);
    assert_true(hf_lease_token(late.lease) > token);
    must_release(late.lease);
    close_far(&a);
    close_far(&b);
}

/* ---- One client, which came back on another connection ---- */

/* The first ask is unanswered, the second is granted and given back; then the first one arrives. */
static void test_ask_behind_its_retry(void **state)
{
    (void)state;
    static struct pending ask;
    struct far a = open_far("");
    int fault = hold_back_next(&a, 0);
    begin(&ask, a.client, &(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    proxy_await(proxy, fault);
    assert_int_equal(await_outcome(&ask), HF_OK);
    await_another_connection(&a);
    assert_int_equal(hf_release(ask.lease), HF_OK);
    hf_lease_free(ask.lease);
    hf_lease *next =
        must_acquire(scene_client(), &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS});
    let_it_arrive_in_vain(fault, next);
    must_release(next);
    assert_int_equal(server_count(scene.server, "EXISTS lock:turn"), 0);
    close_far(&a);
}

/* It gave up, and said so on another connection, before its ask arrived: nobody holds. */
static void test_ask_behind_its_last_words(void **state)
{
    (void)state;
    static struct pending ask;
    struct far a = open_far("");
    int fault = hold_back_next(&a, 0);
    begin(&ask, a.client, &(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = 1});
    proxy_await(proxy, fault);
    hf_status outcome = await_outcome(&ask);
    assert_true(outcome == HF_IN_DOUBT || outcome == HF_TIMEOUT || outcome == HF_UNAVAILABLE);
    hf_lease_free(ask.lease);
    /* Its last words leave a tombstone, whenever the client has found a way to say them. */
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         server_count(scene.server, "HLEN {lock:turn}:w") == 0; nap_us(1000))
        if (now_ns() > end)
            fail_msg("nothing is said after an ask without answer");
    int64_t scripts = server_calls(scene.server, "fcall");
    assert_true(proxy_overtaken(proxy, fault) > 0);
    assert_true(proxy_go_on(proxy, fault) > 0);
    assert_true(server_calls(scene.server, "fcall") > scripts);
    assert_int_equal(server_count(scene.server, "EXISTS lock:turn"), 0);
    close_far(&a);
}

static void test_renewal_behind_the_release(void **state)
{
    (void)state;
    struct far a = open_far("");
    hf_lease *held = must_acquire(
        a.client, &(struct want){.name = "turn", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    int fault = hold_back_next(&a, 0);
    proxy_await(proxy, fault); /* a third of the ttl later */
    await_another_connection(&a);
    assert_int_equal(hf_release(held), HF_OK);
    hf_lease_free(held);
    hf_lease *next =
        must_acquire(scene_client(), &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS});
    let_it_arrive_in_vain(fault, next);
    must_release(next);
    close_far(&a);
}

/* The first words of the release are held back, the second ones are heard; the lock has gone on
 * when the first come. */
static void test_release_behind_the_next_hold(void **state)
{
    (void)state;
    struct far a = open_far("");
    hf_lease *held = must_acquire(a.client, &(struct want){.name = "turn", .ttl_ms = TTL_MS});
    int fault = hold_back_next(&a, 0);
    hf_status released = hf_release(held);
    assert_true(released == HF_OK || released == HF_IN_DOUBT);
    hf_lease_free(held);
    assert_true(proxy_happened(proxy, fault));
    hf_lease *next = must_acquire(
        scene_client(), &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS, .wait_ms = WAIT_MS});
    let_it_arrive_in_vain(fault, next);
    must_release(next);
    close_far(&a);
}

/* ---- One client on two connections ---- */

/* It asks on one, and listens on the other one, which the server hears of when the turn has long
 * come. */
static void check_late_ear(const char *settings)
{
    static struct pending ask;
    struct far a = open_far(settings);
    hf_lease *held =
        must_acquire(scene_client(), &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS});
    int fault = proxy_plant_behind(proxy, a.connection + 1, 0, 0);
    begin(&ask, a.client,
          &(struct want){.name = "turn", .ttl_ms = LONG_TTL_MS, .wait_ms = WAIT_MS});
    scene_await_queue("turn", 1);
    proxy_await(proxy, fault);
    int64_t from = now_ns();
    must_release(held);
    assert_int_equal(await_outcome(&ask), HF_OK);
    print_message("# %s: granted %lld ms after the release\n", settings,
                  (long long)(now_ns() - from) / 1000000);
    assert_true(proxy_overtaken(proxy, fault) > 0);
    must_release(ask.lease);
    close_far(&a);
}

static void test_late_inbox(void **state)
{
    (void)state;
    check_late_ear("wake=inbox");
}

static void test_late_subscription(void **state)
{
    (void)state;
    check_late_ear("wake=pubsub");
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = set_up, .teardown_func = tear_down      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("of two clients the one whose ask arrives first holds", test_other_order),
        PLAYED("the queue is in the order of arrival", test_queue_in_order_of_arrival),
        PLAYED("an ask that arrives behind its own retry and release becomes nothing",
               test_ask_behind_its_retry),
        PLAYED("an ask that arrives behind its client's last words becomes nothing",
               test_ask_behind_its_last_words),
        PLAYED("a renewal that arrives behind the release revives nothing",
               test_renewal_behind_the_release),
        PLAYED("a release that arrives behind the next hold takes nothing",
               test_release_behind_the_next_hold),
        PLAYED("who waits has its turn though its inbox is asked late", test_late_inbox),
        PLAYED("who waits has its turn though its subscription comes late", test_late_subscription),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
