/* redis_slow.c - connections that are slow, and servers that hang: requests may take what the
 * connection takes, as far as the ttl allows, and every call ends within one op_timeout of its time
 * (G20). */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <stdio.h>

enum {
    LATE_MS = 80,    /* in each direction */
    SHORT_MS = 1000, /* a ttl of which a twentieth, 50 ms, is less than that */
    LONG_MS = 30000,
    OP_MS = 500,    /* of the long one */
    SLACK_MS = 150, /* for a thread to run */
};

static struct proxy *line;

/* Clients of the scene reach the server through a proxy from here on. */
static void begin_line(const char *query)
{
    line = proxy_start(server_port(scene.server));
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u%s", proxy_port(line), query);
}

static void end_line(void)
{
    assert_int_equal(hf_close(scene.client, 5000), HF_OK);
    scene.client = NULL;
    proxy_end(line);
}

static void make_late(int64_t ms)
{
    proxy_delay(line, PROXY_REQUESTS, ms);
    proxy_delay(line, PROXY_REPLIES, ms);
}

/* How long that took, in ms; what came of it stays in *status. */
static int64_t try_for(int64_t ttl_ms, int64_t wait_ms, hf_status *status)
{
    struct hf_request request =
        request_of(&(struct want){.name = "a", .ttl_ms = ttl_ms, .wait_ms = wait_ms});
    hf_lease *lease;
    int64_t from = now_ns();
    *status = hf_acquire(scene_client(), &request, &lease);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# wait %lld ms: %s after %lld ms (%s)\n", (long long)wait_ms,
                  hf_status_name(*status), (long long)took, *status ? hf_error_text() : "");
    hf_lease_free(lease);
    return took;
}

/* Connects, without a hold that stays. */
static void connect_first(void)
{
    hf_lease *lease =
        must_acquire(scene_client(), &(struct want){.name = "warm-up", .wait_ms = 5000});
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* ---- A slow connection ---- */

static void test_short_ttl(void **state)
{
    (void)state;
    begin_line("");
    make_late(LATE_MS);
    for (int i = 0; i < 3; i++) { /* the first one connects */
        hf_lease *lease =
            must_acquire(scene_client(), &(struct want){.name = "a", .ttl_ms = SHORT_MS});
        assert_int_equal(hf_extend(lease, SHORT_MS), HF_OK);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
    }
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    assert_int_equal(hf_explain(scene_client(), SHORT_MS, &sheet), HF_OK);
    print_message("# op_timeout: %lld ms\n", (long long)sheet.op_timeout_ms);
    assert_in_range(sheet.op_timeout_ms, 2 * LATE_MS, SHORT_MS / 5);
    assert_true(proxy_delayed(line) > 0);
    end_line();
}

static void test_renewed(void **state)
{
    (void)state;
    begin_line("");
    make_late(LATE_MS);
    hf_lease *lease = must_acquire(
        scene_client(), &(struct want){.name = "a", .ttl_ms = SHORT_MS, .flags = HF_AUTO_RENEW});
    for (int64_t end = now_ns() + 4 * SHORT_MS * 1000000LL; now_ns() < end; nap_us(5000))
        assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(proxy_connections(line), 1); /* none was given up */
    end_line();
}

/* A handoff: the holder and the waiter are both far away. */
static void test_handed_over(void **state)
{
    (void)state;
    begin_line("");
    make_late(LATE_MS);
    const struct want want = {
        .name = "a", .ttl_ms = SHORT_MS, .wait_ms = 10000, .flags = HF_AUTO_RENEW};
    struct actor *one = scene_actor(), *other = scene_actor();
    actor_holds(one, 1, &want);
    actor_acquire(other, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("a", 1);
    assert_int_equal(actor_does(one, ORDER_RELEASE, 1).status, HF_OK);
    assert_int_equal(actor_answer(other, ORDER_ACQUIRE, 1).status, HF_OK);
    nap_us(2 * SHORT_MS * 1000);
    assert_int_equal(actor_does(other, ORDER_LOOK, 1).status, HF_OK);
    assert_int_equal(actor_does(other, ORDER_RELEASE, 1).status, HF_OK);
    actor_kill(one);
    actor_kill(other);
    actor_await_end(one);
    actor_await_end(other);
    end_line();
}

/* It becomes slow when the connection is there: one request may be lost to that, and the next
 * connection knows. */
static void test_becomes_slow(void **state)
{
    (void)state;
    begin_line("");
    connect_first();
    make_late(LATE_MS);
    hf_lease *lease = must_acquire(
        scene_client(), &(struct want){.name = "a", .ttl_ms = SHORT_MS, .wait_ms = 5000});
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    end_line();
}

/* Slower than the ttl allows: the words say which setting, and what bounds it. */
static void test_too_slow(void **state)
{
    (void)state;
    hf_status status;
    begin_line("");
    connect_first();
    proxy_delay(line, PROXY_REPLIES, 3 * SHORT_MS);
    try_for(SHORT_MS, 0, &status);
    assert_int_equal(status, HF_IN_DOUBT);
    assert_non_null(strstr(hf_error_text(), "op_timeout"));
    assert_non_null(strstr(hf_error_text(), "a fifth of the ttl"));
    proxy_delay(line, PROXY_REPLIES, 0);
    end_line();
}

/* ---- Calls end in time ---- */

/* The op_timeout that was set, or learned. */
static int64_t op_timeout_ms(int64_t ttl_ms)
{
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    assert_int_equal(hf_explain(scene_client(), ttl_ms, &sheet), HF_OK);
    return sheet.op_timeout_ms;
}

static void must_end_in_time(const char *what)
{
    static const int64_t waits[] = {0, 1, 100, 300, 700};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        hf_status status;
        int64_t took = try_for(LONG_MS, waits[i], &status);
        int64_t op_ms = op_timeout_ms(LONG_MS);
        if (status == HF_OK)
            continue; /* it came in time after all */
        if (took > waits[i] + op_ms + SLACK_MS)
            fail_msg("%s: a wait of %lld ms took %lld ms", what, (long long)waits[i],
                     (long long)took);
    }
}

static void test_dribble(void **state)
{
    (void)state;
    begin_line("");
    connect_first();
    proxy_dribble_every(line, PROXY_REPLIES, 100);
    must_end_in_time("a byte in 100 ms");
    proxy_dribble_every(line, PROXY_REPLIES, 0);
    assert_true(proxy_dribbled(line) > 0);
    assert_int_equal(op_timeout_ms(LONG_MS),
                     OP_MS); /* an answer that begins at once teaches no patience */
    end_line();
}

/* A holder's calls. The lease stays held meanwhile, and a later call is answered. */
static void test_dribble_holder(void **state)
{
    (void)state;
    begin_line("");
    hf_lease *lease = must_acquire(scene_client(),
                                   &(struct want){.name = "a", .kind = HF_READ, .ttl_ms = LONG_MS});
    proxy_dribble_every(line, PROXY_REPLIES, 100);

    for (int i = 0; i < 2; i++) {
        int64_t from = now_ns();
        hf_status status = i ? hf_upgrade(lease) : hf_extend(lease, LONG_MS);
        int64_t took = (now_ns() - from) / 1000000;
        print_message("# %s: %s after %lld ms\n", i ? "upgrade" : "extend", hf_status_name(status),
                      (long long)took);
        assert_in_range(took, 0, OP_MS + SLACK_MS);
        assert_true(status == HF_OK || status == HF_IN_DOUBT);
        assert_true(hf_lease_ok(lease));
    }

    proxy_dribble_every(line, PROXY_REPLIES, 0);
    for (hf_status status = HF_IN_DOUBT; status == HF_IN_DOUBT;) {
        status = hf_extend(lease, LONG_MS);
        assert_true(status == HF_OK || status == HF_IN_DOUBT || status == HF_UNAVAILABLE);
    }
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    end_line();
}

static void test_late_replies(void **state)
{
    (void)state;
    static const int64_t late_ms[] = {250, 3000};
    for (int i = 0; i < 2; i++) {
        begin_line("");
        connect_first();
        proxy_delay(line, PROXY_REPLIES, late_ms[i]);
        must_end_in_time(i ? "replies 3 s late" : "replies 250 ms late");
        proxy_delay(line, PROXY_REPLIES, 0);
        end_line();
    }
}

/* Connected before, and not yet connected. */
static void test_hung(void **state)
{
    (void)state;
    for (int connected = 0; connected < 2; connected++) {
        begin_line("");
        if (connected)
            connect_first();
        server_pause(scene.server);
        must_end_in_time(connected ? "a hung server" : "a hung server, not connected");
        server_continue(scene.server);
        end_line();
    }
}

/* One that is in the queue when the server begins to hang. */
static void test_hangs_while_waiting(void **state)
{
    (void)state;
    enum { WAIT_MS = 1500 };
    struct actor *one = scene_actor(), *other = scene_actor();
    actor_holds(one, 1, &(struct want){.name = "a", .ttl_ms = LONG_MS});
    int64_t from = now_ns();
    actor_acquire(other, 1, ORDER_ACQUIRE,
                  &(struct want){.name = "a", .ttl_ms = LONG_MS, .wait_ms = WAIT_MS});
    scene_await_queue("a", 1);
    server_pause(scene.server);
    struct answer ended = actor_answer(other, ORDER_ACQUIRE, 1);
    server_continue(scene.server);
    int64_t took = (ended.at_ns - from) / 1000000;
    print_message("# %s after %lld ms\n", hf_status_name(ended.status), (long long)took);
    assert_int_equal(ended.status, HF_TIMEOUT);
    assert_in_range(took, WAIT_MS, WAIT_MS + OP_MS + SLACK_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "a ttl of 1 s over 80 ms in each direction: acquire, extend and release",
         .test_func = test_short_ttl},
        {.name = "a lease of 1 s is renewed over 80 ms in each direction",
         .test_func = test_renewed},
        {.name = "a lock is handed over between two that are far away",
         .test_func = test_handed_over},
        {.name = "a connection that becomes slow is learned anew", .test_func = test_becomes_slow},
        {.name = "one that is slower than the ttl allows is named with its setting",
         .test_func = test_too_slow},
        {.name = "replies of one byte in 100 ms: calls end within op_timeout of their time",
         .test_func = test_dribble},
        {.name = "so do the calls of a holder, who keeps the lease",
         .test_func = test_dribble_holder},
        {.name = "late replies: calls end within op_timeout of their time",
         .test_func = test_late_replies},
        {.name = "a hung server: calls end within op_timeout of their time",
         .test_func = test_hung},
        {.name = "a server that hangs while one waits: the wait ends within op_timeout of its time",
         .test_func = test_hangs_while_waiting},
    };
    return SCENE_JUDGE(tests);
}
