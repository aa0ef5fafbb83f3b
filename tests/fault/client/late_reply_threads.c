/* late_reply_threads.c - several threads in calls on one lease, while the engine answers later:
 * each gets its own answer. Usage: later_threads [CALLS]. */
#include "late_reply_callers.h"

static int calls = 400;

/* ---- One after the other ---- */

static void test_turns(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller first = {.call = CALL_EXTEND, .lease = lease}, second = first;
    begin_call(&first);
    struct request asked = await_request(OP_EXTEND);
    assert_false(asked.in_background);
    begin_call(&second);
    await_callers(lease, 2);
    assert_int_equal(submitted(OP_EXTEND), 1);
    reply(&asked, REPLY_FAILED);
    assert_int_equal(end_call(&first), HF_UNAVAILABLE);
    assert_non_null(strstr(first.words, "connection refused"));
    asked = await_request(OP_EXTEND);
    assert_false(asked.in_background);
    reply(&asked, REPLY_EXTENDED);
    assert_int_equal(end_call(&second), HF_OK);
    give(lease);
    close_at_once(client);
}

static void test_upgrade_behind_extend(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    c.request.kind = HF_READ;
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    reply(&asked, REPLY_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    struct caller extend = {.call = CALL_EXTEND, .lease = c.lease},
                  upgrade = {.call = CALL_UPGRADE, .lease = c.lease};
    begin_call(&extend);
    asked = await_request(OP_EXTEND);
    begin_call(&upgrade);
    await_callers(c.lease, 2);
    assert_int_equal(submitted(OP_UPGRADE), 0);
    reply(&asked, REPLY_EXTENDED);
    assert_int_equal(end_call(&extend), HF_OK);
    asked = await_request(OP_UPGRADE);
    reply(&asked, REPLY_BUSY);
    assert_int_equal(end_call(&upgrade), HF_BUSY);
    give(c.lease);
    close_at_once(client);
}

static void begin_extends(struct caller extend[THREADS], hf_lease *lease)
{
    for (int i = 0; i < THREADS; i++) {
        extend[i] = (struct caller){.call = CALL_EXTEND, .lease = lease};
        begin_call(&extend[i]);
    }
}

static void test_release_ends_extends(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS], release = {.call = CALL_RELEASE, .lease = lease};
    begin_extends(extend, lease);
    await_request(OP_EXTEND);
    await_callers(lease, THREADS);
    begin_call(&release);
    struct request asked = await_request(OP_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(end_call(&extend[i]), HF_NOT_HELD);
        assert_true(extend[i].took_ms < ACTOR_PATIENCE_MS / 2);
    }
    int meanwhile = 0;
    for (int i = 0; i < THREADS; i++)
        meanwhile += strstr(extend[i].words, "released meanwhile") != NULL;
    assert_true(meanwhile >= 1);
    assert_int_equal(submitted(OP_EXTEND), 1);
    assert_int_equal(hf_release(lease), HF_NOT_HELD); /* at once: nobody answers here */
    assert_non_null(strstr(hf_error_text(), "is being released"));
    reply(&asked, REPLY_RELEASED);
    assert_int_equal(end_call(&release), HF_OK);
    hf_lease_free(lease);
    close_at_once(client);
}

static void test_loss_ends_all(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS];
    begin_extends(extend, lease);
    struct request asked = await_request(OP_EXTEND);
    await_callers(lease, THREADS);
    reply(&asked, REPLY_NOT_HELD);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(end_call(&extend[i]), HF_LOST);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    assert_non_null(strstr(hf_error_text(), "ms ago"));
    hf_lease_free(lease);
    close_at_once(client);
}

/* No answer at all: every call ends when the time for an answer is over, and the belief goes on
 * until it ends by our own clock. */
static void test_silence_ends_all(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS];
    begin_extends(extend, lease);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(end_call(&extend[i]), HF_IN_DOUBT);
        assert_true(extend[i].took_ms < TTL_MS);
    }
    assert_true(hf_lease_ok(lease));
    for (int64_t end = now_ns() + (TTL_MS + SLACK_MS) * 1000000LL; hf_lease_ok(lease); nap_us(200))
        assert_true(now_ns() < end);
    nap_us(20000);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    int ago = 0;
    const char *words = strstr(hf_error_text(), "ended ");
    assert_non_null(words);
    assert_int_equal(sscanf(words, "ended %d ms ago", &ago), 1);
    assert_in_range(ago, 20, SLACK_MS);
    hf_lease_free(lease);
    hf_close(client, 0);
}

/* ---- Everything at once ---- */

struct barrage {
    hf_client *client;
    _Atomic int wrong, held;
};

/* Mostly what was hoped for. */
static enum reply_kind answer_somehow(const struct request *asked)
{
    static uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    unsigned fate = random >> 24;
    bool keeps = asked->verb == OP_EXTEND || asked->verb == OP_CHECK;
    if (fate < 8)
        return REPLY_FAILED;
    if (fate < 12)
        return REPLY_UNKNOWN;
    if (keeps)
        return fate < 16 ? REPLY_NOT_HELD : REPLY_EXTENDED;
    return asked->verb == OP_ACQUIRE ? REPLY_GRANTED : REPLY_RELEASED;
}

static bool is_one_of(hf_status status, hf_status a, hf_status b, hf_status c)
{
    return status == HF_OK || status == a || status == b || status == c;
}

static void *extend_again_and_again(void *arg)
{
    hf_lease *lease = arg;
    hf_status status;
    do {
        status = hf_extend(lease, 0);
    } while (is_one_of(status, HF_UNAVAILABLE, HF_IN_DOUBT, HF_IN_DOUBT));
    return (void *)(uintptr_t)status;
}

static void one_life(struct barrage *b, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number % 7);
    struct hf_request request = ask_for(name, 5000);
    hf_lease *lease;
    pthread_t thread[2];
    if (hf_acquire(b->client, &request, &lease) != HF_OK) {
        atomic_fetch_add(&b->wrong, 1);
        return;
    }
    atomic_fetch_add(&b->held, 1);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, extend_again_and_again, lease);
    nap_us(number % 3 * 100);
    hf_status status = hf_release(lease);
    b->wrong += !is_one_of(status, HF_NOT_HELD, HF_IN_DOUBT, HF_IN_DOUBT);
    for (int i = 0; i < 2; i++) {
        void *ended;
        pthread_join(thread[i], &ended);
        b->wrong += (uintptr_t)ended != HF_NOT_HELD && (uintptr_t)ended != HF_LOST;
    }
    hf_lease_free(lease);
}

static void *live(void *arg)
{
    for (int i = 0; i < calls / THREADS; i++)
        one_life(arg, i);
    return NULL;
}

static void test_barrage(void **state)
{
    (void)state;
    struct barrage b = {.client = open_with_later(false)};
    struct server server = {.answer = answer_somehow};
    pthread_t user[THREADS];
    start_server(&server);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&user[i], NULL, live, &b), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(user[i], NULL);
    assert_int_equal(hf_close(b.client, 10000), HF_OK);
    stop_server(&server);
    assert_int_equal(atomic_load(&b.wrong), 0);
    assert_true(atomic_load(&b.held) == calls / THREADS * THREADS);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        calls = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        SENTENCE("extends of two threads wait for their turn and each has its own answer",
                 test_turns),
        SENTENCE("an upgrade behind another thread's extend hears its own outcome",
                 test_upgrade_behind_extend),
        SENTENCE(
            "a release ends the extends of other threads and a second release is refused at once",
            test_release_ends_extends),
        SENTENCE("a loss ends the calls of all threads", test_loss_ends_all),
        SENTENCE("without any answer the calls of all threads are in doubt, and the lease ends by "
                 "the clock",
                 test_silence_ends_all),
        SENTENCE("threads that extend and release at once all get an answer", test_barrage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
