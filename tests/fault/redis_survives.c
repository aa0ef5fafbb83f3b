/* redis_survives.c - what a client lives through: connections that drop, a server that starts again with and without
 * its data, forgotten scripts, pauses. Who waits goes on waiting until its own deadline, to the millisecond; who holds
 * hears soon of what is gone and keeps the rest; closing is bounded and says what it left (G32). */
#include "loss.h"
#include "proxy.h"
#include "redis_scene.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum {
    TTL_MS = 2000,
    LONG_TTL_MS = 30000,
    OP_MS = 100, /* what one request may take with the first of them */
    WAIT_MS = 9000,
    SOON_MS = 2000, /* for what happens at once, on a machine with much else to do */
    DROPS = 5,
    MANY = 1000,
};

/* ---- Company ---- */

static struct proxy *proxy;

static hf_client *open_at(uint16_t port)
{
    char url[128];
    hf_client *client;
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", port);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

/* Through the proxy. */
static hf_client *open_far(void)
{
    if (!proxy)
        proxy = proxy_start(server_port(scene.server));
    return open_at(proxy_port(proxy));
}

static int lasting_setup(void **state)
{
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.appendonly = true});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return 0;
}

static int teardown(void **state)
{
    if (proxy)
        proxy_end(proxy);
    proxy = NULL;
    return scene_teardown(state);
}

static void close_in_time(hf_client *client)
{
    if (hf_close(client, 5000) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* A wait on a thread of its own. */
struct waiter {
    pthread_t thread;
    hf_client *client;
    const char *name;
    int64_t wait_ms;
    hf_lease *lease;
    hf_status status;
    int64_t took_us;
    char words[256];
    _Atomic bool over;
};

static void *wait_there(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request =
        request_of(&(struct want){.name = w->name, .ttl_ms = TTL_MS, .wait_ms = w->wait_ms, .flags = HF_AUTO_RENEW});
    int64_t from = now_ns();
    w->status = hf_acquire(w->client, &request, &w->lease);
    w->took_us = (now_ns() - from) / 1000;
    snprintf(w->words, sizeof w->words, "%s", w->status == HF_OK ? "" : hf_error_text());
    atomic_store(&w->over, true);
    return NULL;
}

/* Begins, and stands in the queue when this returns. */
static void begin_wait(struct waiter *w, int64_t place)
{
    assert_int_equal(pthread_create(&w->thread, NULL, wait_there, w), 0);
    scene_await_queue(w->name, place);
}

static void end_wait(struct waiter *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    if (w->status != HF_OK)
        fail_msg("%s: %s", w->name, w->words);
}

static void give(hf_lease *lease)
{
    hf_status status = hf_release(lease);
    if (status != HF_OK && status != HF_IN_DOUBT) /* a connection that is gone may be noticed just now */
        fail_msg("%s", hf_error_text());
    hf_lease_free(lease);
}

static hf_lease *hold(hf_client *client, const char *name, int64_t ttl_ms, struct loss *loss)
{
    return hold_noting(client, &(struct want){.name = name, .ttl_ms = ttl_ms, .flags = HF_AUTO_RENEW}, loss);
}

/* A hold that another client waits for. A test that fails leaves it waiting. */
static hf_lease *hold_before(struct waiter *w, int64_t ttl_ms, struct loss *loss)
{
    hf_lease *held = hold(scene_client(), "turn", ttl_ms, loss);
    *w = (struct waiter){.client = open_at(server_port(scene.server)), .name = "turn", .wait_ms = WAIT_MS};
    begin_wait(w, 1);
    return held;
}

/* Within how many milliseconds it was told. */
static int64_t await_loss(const struct loss *loss, int64_t from_ns)
{
    while (!atomic_load(&loss->times)) {
        if (now_ns() - from_ns > ACTOR_PATIENCE_MS * 1000000LL)
            fail_msg("a loss is not told");
        nap_us(500);
    }
    return (atomic_load(&loss->at_ns) - from_ns) / 1000000;
}

/* ---- Who waits ---- */

/* One waits over a line that is spoilt; another one came later and has no trouble. Both get it, in their order. */
static void live_through(void (*trouble)(void))
{
    hf_client *far = open_far();
    hf_lease *held = hold(scene_client(), "turn", TTL_MS, NULL);
    static struct waiter first, second; /* a test that fails leaves them waiting */
    first = (struct waiter){.client = far, .name = "turn", .wait_ms = WAIT_MS};
    second = (struct waiter){.client = scene_client(), .name = "turn", .wait_ms = WAIT_MS};
    begin_wait(&first, 1);
    begin_wait(&second, 2);
    for (int i = 0; i < DROPS; i++) {
        trouble();
        nap_us(30000);
        assert_false(atomic_load(&first.over));
        assert_false(atomic_load(&second.over));
    }
    int64_t from = now_ns();
    give(held);
    while (!atomic_load(&first.over) && !atomic_load(&second.over))
        nap_us(1000);
    /* Who was cut off for longer than its turn lost its place; then it is the one who came back first. */
    struct waiter *one = atomic_load(&first.over) ? &first : &second, *other = one == &first ? &second : &first;
    end_wait(one);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# granted %lld ms after the release%s\n", (long long)took, one == &first ? "" : ", out of order");
    assert_in_range(took, 0, SOON_MS);
    assert_false(atomic_load(&other->over));
    uint64_t token = hf_lease_token(one->lease);
    give(one->lease);
    end_wait(other);
    assert_true(hf_lease_token(other->lease) > token);
    give(other->lease);
    close_in_time(far);
}

static void cut_lines(void)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; !proxy_open(proxy); nap_us(500))
        if (now_ns() > end)
            fail_msg("nobody comes back");
    assert_true(proxy_cut_all(proxy) >= 1);
}

static void test_cut_lines(void **state)
{
    (void)state;
    live_through(cut_lines);
}

static void kill_clients(void)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; !scene_connections(0); nap_us(500))
        if (now_ns() > end)
            fail_msg("nobody comes back");
    assert_true(server_count(scene.server, "CLIENT KILL TYPE normal") >= 1);
}

static void test_killed_clients(void **state)
{
    (void)state;
    live_through(kill_clients);
}

static void forget_scripts(void)
{
    server_does(scene.server, "SCRIPT FLUSH SYNC");
    assert_int_equal(server_info_number(scene.server, "memory", "number_of_cached_scripts"), 0);
}

static void test_forgotten_scripts(void **state)
{
    (void)state;
    live_through(forget_scripts);
}

/* Longer than a request may take, and than a place in the queue lasts without a look: here the order is not kept. */
static void test_paused_clients(void **state)
{
    (void)state;
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, NULL);
    for (int i = 0; i < DROPS; i++)
        server_does(scene.server, "CLIENT PAUSE %d ALL", 3 * OP_MS); /* the next one is held up, too */
    assert_false(atomic_load(&w.over));
    give(held);
    end_wait(&w);
    give(w.lease);
    close_in_time(w.client);
}

/* ---- The server starts again ---- */

static void test_restart_with_data(void **state)
{
    (void)state;
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, &loss);
    uint64_t token = hf_lease_token(held);
    server_restart(scene.server, true);
    nap_us(TTL_MS * 1000 * 3 / 2); /* it is renewed meanwhile, or it would be over */
    assert_int_equal(atomic_load(&loss.times), 0);
    assert_true(hf_lease_ok(held) && hf_lease_left_ms(held) > 0);
    assert_int_equal(hf_lease_token(held), token);
    assert_false(atomic_load(&w.over));
    give(held);
    end_wait(&w);
    assert_true(hf_lease_token(w.lease) > token);
    give(w.lease);
    close_in_time(w.client);
}

/* The holder hears of it at its next renewal, long before its time is over; who waits has it at once. */
static void test_restart_without_data(void **state)
{
    (void)state;
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, 3 * TTL_MS, &loss);
    int64_t from = now_ns();
    server_restart(scene.server, false);
    end_wait(&w);
    int64_t lost_ms = await_loss(&loss, from);
    print_message("# granted after %lld ms, lost after %lld ms of %d\n", (long long)w.took_us / 1000,
                  (long long)lost_ms, 3 * TTL_MS);
    assert_in_range(lost_ms, 0, TTL_MS + SOON_MS);
    assert_false(hf_lease_ok(held));
    assert_int_equal(hf_release(held), HF_NOT_HELD);
    hf_lease_free(held);
    assert_true(hf_lease_ok(w.lease));
    give(w.lease);
    close_in_time(w.client);
}

static void test_flushed(void **state)
{
    (void)state;
    struct loss loss = {0};
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, &loss);
    int64_t from = now_ns();
    server_does(scene.server, "FLUSHALL");
    int64_t lost_ms = await_loss(&loss, from);
    end_wait(&w);
    print_message("# lost after %lld ms, granted after %lld ms of %d\n", (long long)lost_ms,
                  (long long)(now_ns() - from) / 1000000, TTL_MS);
    assert_in_range(lost_ms, 0, TTL_MS / 3 + SOON_MS);
    hf_lease_free(held);
    assert_true(hf_lease_ok(w.lease));
    give(w.lease);
    close_in_time(w.client);
}

/* ---- Deadlines ---- */

/* Every wait must last as long as it says; of a few tries the machine lets one be exact. */
static void check_deadline(hf_client *client, int64_t wait_ms, int64_t most_late_us, hf_status status)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5 && best > most_late_us; i++) {
        struct waiter w = {.client = client, .name = "turn", .wait_ms = wait_ms};
        wait_there(&w);
        if (w.status != status)
            fail_msg("%s (%s) instead of %s", hf_status_name(w.status), w.words, hf_status_name(status));
        int64_t late = w.took_us - wait_ms * 1000;
        assert_true(late >= 0);
        best = late < best ? late : best;
    }
    print_message("# a wait of %lld ms: %lld us late\n", (long long)wait_ms, (long long)best);
    assert_in_range(best, 0, most_late_us);
}

static void test_deadlines(void **state)
{
    (void)state;
    hf_lease *held = hold(scene_client(), "turn", TTL_MS, NULL);
    hf_client *far = open_far();
    static const int64_t waits[] = {1, 2, 137, 999};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        check_deadline(far, waits[i], 5000, HF_TIMEOUT);
    scene_await_queue("turn", 0);
    give(held);
    close_in_time(far);
}

/* Nobody answers any more: one request's time, twice, for the last words. */
static void test_deadlines_in_a_freeze(void **state)
{
    (void)state;
    hf_lease *held = hold(scene_client(), "turn", TTL_MS, NULL);
    hf_client *far = open_far();
    check_deadline(far, 1, 5000, HF_TIMEOUT);
    proxy_freeze(proxy, true);
    struct waiter w = {.client = far, .name = "turn", .wait_ms = 337};
    wait_there(&w);
    print_message("# in a freeze a wait of 337 ms ends after %lld us: %s\n", (long long)w.took_us, w.words);
    assert_true(w.status == HF_IN_DOUBT || w.status == HF_UNAVAILABLE || w.status == HF_TIMEOUT);
    assert_in_range(w.took_us, 337000, 337000 + 2 * OP_MS * 1000 + 50000);
    assert_true(proxy_frozen(proxy) > 0);
    proxy_freeze(proxy, false);
    give(held);
    close_in_time(far);
}

static void test_deadlines_without_server(void **state)
{
    (void)state;
    hf_client *far = open_far();
    proxy_refuse(proxy, true);
    check_deadline(far, 137, 5000, HF_UNAVAILABLE);
    check_deadline(far, 1, 5000, HF_UNAVAILABLE);
    proxy_refuse(proxy, false);
    close_in_time(far);
}

/* ---- Who holds ---- */

/* Of three the record of one is gone. After a reconnect all are looked at, at once, whoever it was that reconnected. */
static void test_checked_after_reconnect(void **state)
{
    (void)state;
    struct loss loss[3] = {0};
    hf_lease *held[3];
    static const char *const names[] = {"kept", "gone", "kept too"};
    hf_client *far = open_far();
    for (int i = 0; i < 3; i++)
        held[i] = hold(far, names[i], LONG_TTL_MS, &loss[i]);
    assert_int_equal(server_count(scene.server, "DEL lock:gone"), 1);
    int64_t from = now_ns();
    assert_true(proxy_cut_all(proxy) >= 1);
    struct waiter other = {.client = far, .name = "another", .wait_ms = WAIT_MS};
    wait_there(&other);
    assert_int_equal(other.status, HF_OK);
    int64_t lost_ms = await_loss(&loss[1], from);
    print_message("# lost after %lld ms of %d\n", (long long)lost_ms, LONG_TTL_MS);
    assert_in_range(lost_ms, 0, SOON_MS);
    nap_us(100000);
    assert_true(hf_lease_ok(held[0]) && !hf_lease_ok(held[1]) && hf_lease_ok(held[2]));
    assert_int_equal(atomic_load(&loss[0].times) + atomic_load(&loss[2].times), 0);
    assert_int_equal(atomic_load(&loss[1].times), 1);
    for (int i = 0; i < 3; i++)
        hf_lease_free(held[i]);
    hf_lease_free(other.lease);
    close_in_time(far);
}

/* Another run of the server, with the data or without them. */
static void check_another_run(bool keep_data)
{
    struct loss loss[2] = {0};
    hf_client *client = scene_client();
    hf_lease *held[2] = {hold(client, "one", LONG_TTL_MS, &loss[0]), hold(client, "two", LONG_TTL_MS, &loss[1])};
    server_restart(scene.server, keep_data);
    int64_t before = server_calls(scene.server, "evalsha"), from = now_ns();
    struct waiter other = {.client = client, .name = "another", .wait_ms = WAIT_MS};
    wait_there(&other);
    assert_int_equal(other.status, HF_OK);
    for (int i = 0; i < 2 && !keep_data; i++)
        assert_in_range(await_loss(&loss[i], from), 0, SOON_MS);
    while (server_calls(scene.server, "evalsha") < before + 3) { /* an ask, and a look at each */
        if (now_ns() - from > SOON_MS * 1000000LL)
            fail_msg("they are not looked at");
        nap_us(1000);
    }
    nap_us(50000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&loss[i].times), keep_data ? 0 : 1);
        assert_int_equal(hf_lease_ok(held[i]), keep_data);
        hf_lease_free(held[i]);
    }
    hf_lease_free(other.lease);
}

static void test_same_data(void **state)
{
    (void)state;
    check_another_run(true);
}

static void test_no_data(void **state)
{
    (void)state;
    check_another_run(false);
}

/* ---- Closing ---- */

static void test_closing_releases(void **state)
{
    (void)state;
    enum { HELD = 5 };
    hf_client *far = open_far();
    char name[16];
    for (int i = 0; i < HELD; i++) {
        snprintf(name, sizeof name, "held-%d", i);
        hold(far, name, LONG_TTL_MS, NULL);
    }
    assert_int_equal(server_count(scene.server, "EXISTS lock:held-0 lock:held-1 lock:held-4"), 3);
    int64_t from = now_ns();
    assert_int_equal(hf_close(far, 5000), HF_OK);
    assert_in_range((now_ns() - from) / 1000000, 0, SOON_MS);
    for (int i = 0; i < HELD; i++)
        assert_int_equal(server_count(scene.server, "EXISTS lock:held-%d", i), 0);
}

static void close_unheard(const char *what)
{
    enum { HELD = 7, PATIENCE_MS = 400 };
    hf_client *far = open_far();
    char name[16];
    for (int i = 0; i < HELD; i++) {
        snprintf(name, sizeof name, "held-%d", i);
        hold(far, name, LONG_TTL_MS, NULL);
    }
    if (strcmp(what, "frozen") == 0)
        proxy_freeze(proxy, true);
    else {
        proxy_refuse(proxy, true);
        assert_true(proxy_cut_all(proxy) >= 1);
    }
    int64_t from = now_ns();
    hf_status status = hf_close(far, PATIENCE_MS);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# %s: %s after %lld ms: %s\n", what, hf_status_name(status), (long long)took, hf_error_text());
    assert_int_equal(status, HF_IN_DOUBT);
    assert_non_null(strstr(hf_error_text(), "7 holds"));
    assert_in_range(took, PATIENCE_MS, PATIENCE_MS + SOON_MS);
    proxy_freeze(proxy, false);
    proxy_refuse(proxy, false);
}

static void test_closing_in_a_freeze(void **state)
{
    (void)state;
    close_unheard("frozen");
}

static void test_closing_without_server(void **state)
{
    (void)state;
    close_unheard("refused");
}

/* Who waits is sent home, and leaves the queue. */
static void test_closing_sends_home(void **state)
{
    (void)state;
    hf_lease *held = hold(scene_client(), "turn", TTL_MS, NULL);
    hf_client *far = open_far();
    struct waiter w = {.client = far, .name = "turn", .wait_ms = HF_FOREVER};
    begin_wait(&w, 1);
    assert_int_equal(hf_close(far, 5000), HF_OK);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_int_equal(w.status, HF_CLOSED);
    scene_await_queue("turn", 0);
    give(held);
}

/* ---- Many ---- */

static _Atomic uint64_t sends;

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_send(fd, bytes, len, flags);
}

static _Atomic int granted;

static void count_grant(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)arg;
    atomic_fetch_add(&granted, outcome == HF_OK);
}

static void test_many_renewed_together(void **state)
{
    (void)state;
    static struct loss loss;
    static hf_lease *leases[MANY];
    char name[16];
    hf_client *client = scene_client();
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        struct hf_request request =
            request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = WAIT_MS, .flags = HF_AUTO_RENEW});
        request.on_lost = note_loss;
        request.lost_arg = &loss;
        assert_int_equal(hf_acquire_start(client, &request, count_grant, NULL, &leases[i]), HF_OK);
    }
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; atomic_load(&granted) < MANY && now_ns() < end;)
        nap_us(1000);
    assert_int_equal(atomic_load(&granted), MANY);
    int64_t calls = server_calls(scene.server, "evalsha");
    uint64_t sent = atomic_load(&sends);
    nap_us(2 * TTL_MS * 1000);
    calls = server_calls(scene.server, "evalsha") - calls;
    sent = atomic_load(&sends) - sent;
    print_message("# %lld renewals, %llu sends\n", (long long)calls, (unsigned long long)sent);
    assert_int_equal(atomic_load(&loss.times), 0);
    assert_true(calls >= 5 * MANY); /* every third of the ttl */
    assert_true(sent * 4 < (uint64_t)calls);
    for (int i = 0; i < MANY; i++) {
        assert_true(hf_lease_ok(leases[i]));
        hf_lease_free(leases[i]);
    }
}

#define PLAYED(text, function)                                                                                         \
    {                                                                                                                  \
        .name = text, .test_func = function, .setup_func = scene_setup, .teardown_func = teardown                      \
    }
#define LASTING(text, function)                                                                                        \
    {                                                                                                                  \
        .name = text, .test_func = function, .setup_func = lasting_setup, .teardown_func = teardown                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("who waits lives through connections that drop", test_cut_lines),
        PLAYED("who waits lives through being killed by the server's administrator", test_killed_clients),
        PLAYED("who waits lives through forgotten scripts", test_forgotten_scripts),
        PLAYED("who waits lives through a pause of the server", test_paused_clients),
        LASTING("a server that starts again with its data has all as it was", test_restart_with_data),
        LASTING("of a server that starts again without them the holder hears soon", test_restart_without_data),
        PLAYED("all is flushed: the holder hears soon, and who waits has it", test_flushed),
        PLAYED("a wait ends when it says", test_deadlines),
        PLAYED("a wait ends soon after that when nobody answers", test_deadlines_in_a_freeze),
        PLAYED("a wait ends when it says without a server", test_deadlines_without_server),
        PLAYED("after a reconnect every hold is looked at", test_checked_after_reconnect),
        LASTING("in another run of the server with its data every hold goes on", test_same_data),
        LASTING("in another run of the server without its data every hold is lost at once", test_no_data),
        PLAYED("closing gives back what is held", test_closing_releases),
        PLAYED("closing sends home who waits", test_closing_sends_home),
        PLAYED("closing is bounded in a freeze, and says what it left", test_closing_in_a_freeze),
        PLAYED("closing is bounded without a server, and says what it left", test_closing_without_server),
        PLAYED("a thousand holds are renewed together", test_many_renewed_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
