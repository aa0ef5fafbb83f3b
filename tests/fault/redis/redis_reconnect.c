/* redis_reconnect.c - what a client lives through: connections that drop, forgotten scripts,
 * pauses. Who waits goes on waiting until its own deadline, to the millisecond; who holds hears
 * soon of what is gone and keeps the rest; closing is bounded and says what it left (G32). What
 * servers forget is in redis_data_loss.c. */
#include "redis_reconnect_fixture.h"

#include <sys/socket.h>

enum {
    DROPS = 5,
    MANY = 1000,
};

/* ---- Who waits ---- */

/* One waits over a line that is spoilt; another one came later and has no trouble. Both get it, in
 * their order. */
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
    /* Who was cut off for longer than its turn lost its place; then it is the one who came back
     * first. */
    struct waiter *one = atomic_load(&first.over) ? &first : &second,
                  *other = one == &first ? &second : &first;
    end_wait(one);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# granted %lld ms after the release%s\n", (long long)took,
                  one == &first ? "" : ", out of order");
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
    server_does(scene.server, "FUNCTION FLUSH SYNC");
    assert_int_equal(server_info_number(scene.server, "memory", "number_of_libraries"), 0);
}

static void test_forgotten_scripts(void **state)
{
    (void)state;
    live_through(forget_scripts);
}

/* Longer than a request may take, and than a place in the queue lasts without a look: here the
 * order is not kept. */
static void test_paused_clients(void **state)
{
    (void)state;
    static struct waiter w;
    hf_lease *held = hold_before(&w, TTL_MS, NULL);
    int64_t from = now_ns();
    for (int i = 0; i < DROPS; i++)
        server_does(scene.server, "CLIENT PAUSE %d ALL",
                    3 * OP_MS); /* the next one is held up, too */
    assert_true(now_ns() - from > (DROPS - 1) * 2 * OP_MS * 1000000LL);
    assert_false(atomic_load(&w.over));
    give(held);
    end_wait(&w);
    give(w.lease);
    close_in_time(w.client);
}

/* ---- Deadlines ---- */

/* Every wait must last as long as it says; of a few tries the machine lets one be exact. */
static void check_deadline(hf_client *client, int64_t wait_ms, int64_t most_late_us,
                           hf_status status)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5 && best > most_late_us; i++) {
        struct waiter w = {.client = client, .name = "turn", .wait_ms = wait_ms};
        wait_there(&w);
        if (w.status != status)
            fail_msg("%s (%s) instead of %s", hf_status_name(w.status), w.words,
                     hf_status_name(status));
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
    give(hold(far, "warm", TTL_MS, NULL)); /* a wait is measured behind the greeting */
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
    give(hold(far, "warm", TTL_MS, NULL));
    check_deadline(far, 1, 5000, HF_TIMEOUT);
    proxy_freeze(proxy, true);
    struct waiter w = {.client = far, .name = "turn", .wait_ms = 337};
    wait_there(&w);
    print_message("# in a freeze a wait of 337 ms ends after %lld us: %s\n", (long long)w.took_us,
                  w.words);
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

/* Of three the record of one is gone. After a reconnect all are looked at, at once, whoever it was
 * that reconnected. */
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
    print_message("# %s: %s after %lld ms: %s\n", what, hf_status_name(status), (long long)took,
                  hf_error_text());
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
        struct hf_request request = request_of(&(struct want){
            .name = name, .ttl_ms = TTL_MS, .wait_ms = WAIT_MS, .flags = HF_AUTO_RENEW});
        request.on_lost = note_loss;
        request.lost_arg = &loss;
        assert_int_equal(hf_acquire_start(client, &request, count_grant, NULL, &leases[i]), HF_OK);
    }
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
         atomic_load(&granted) < MANY && now_ns() < end;)
        nap_us(1000);
    assert_int_equal(atomic_load(&granted), MANY);
    int64_t calls = server_calls(scene.server, "fcall");
    uint64_t sent = atomic_load(&sends);
    nap_us(2 * TTL_MS * 1000);
    calls = server_calls(scene.server, "fcall") - calls;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("who waits lives through connections that drop", test_cut_lines),
        PLAYED("who waits lives through being killed by the server's administrator",
               test_killed_clients),
        PLAYED("who waits lives through forgotten scripts", test_forgotten_scripts),
        PLAYED("who waits lives through a pause of the server", test_paused_clients),
        PLAYED("a wait ends when it says", test_deadlines),
        PLAYED("a wait ends soon after that when nobody answers", test_deadlines_in_a_freeze),
        PLAYED("a wait ends when it says without a server", test_deadlines_without_server),
        PLAYED("after a reconnect every hold is looked at", test_checked_after_reconnect),
        PLAYED("closing gives back what is held", test_closing_releases),
        PLAYED("closing sends home who waits", test_closing_sends_home),
        PLAYED("closing is bounded in a freeze, and says what it left", test_closing_in_a_freeze),
        PLAYED("closing is bounded without a server, and says what it left",
               test_closing_without_server),
        PLAYED("a thousand holds are renewed together", test_many_renewed_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
