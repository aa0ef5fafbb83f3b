/* late_reply_close.c - an engine that answers later, and callers that cannot wait for it as others
 * do: inside callbacks, without a background thread, with a lease that is only text, and on the way
 * out. */
#include "late_reply_callers.h"

#include <poll.h>

/* ---- Inside callbacks, and without a background thread ---- */

static void release_inside(hf_lease *lease, hf_status status, void *arg)
{
    struct told *told = arg;
    told->status = status;
    told->release =
        hf_release(lease); /* nobody answers, and this is the thread that has the timers */
    sem_post(&told->over);
}

static void test_release_in_callback(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.release = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, release_inside, &told, &lease), HF_OK);
    struct request asked = await_request(OP_ACQUIRE);
    reply(&asked, REPLY_GRANTED);
    await_told(&told);
    assert_int_equal(told.status, HF_OK);
    assert_int_equal(told.release, HF_IN_DOUBT);
    asked = await_request(OP_RELEASE);
    asked = await_request(OP_RELEASE);
    reply(&asked, REPLY_RELEASED);
    hf_lease_free(lease);
    close_at_once(client);
}

static void process_until(hf_client *client, sem_t *over)
{
    while (sem_trywait(over) != 0) {
        struct pollfd rung = {.fd = hf_fd(client), .events = POLLIN};
        int64_t timeout = hf_timeout_ms(client);
        if (poll(&rung, 1, timeout < 0 ? ACTOR_PATIENCE_MS : (int)timeout) < 0)
            fail_msg("poll");
        assert_int_equal(hf_process(client), HF_OK);
    }
}

static void *grant_later(void *arg)
{
    struct request asked = await_request(OP_ACQUIRE);
    (void)arg;
    nap_us(20000);
    reply(&asked, REPLY_GRANTED);
    return NULL;
}

static void *answer_release(void *arg)
{
    struct request asked = await_request(OP_RELEASE);
    (void)arg;
    nap_us(20000);
    reply(&asked, REPLY_RELEASED);
    return NULL;
}

static void test_no_thread(void **state)
{
    (void)state;
    hf_client *client = open_with_later(true);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    pthread_t server;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    assert_int_equal(pthread_create(&server, NULL, grant_later, NULL), 0);
    process_until(client, &told.over);
    pthread_join(server, NULL);
    assert_int_equal(told.status, HF_OK);
    assert_int_equal(hf_release(lease),
                     HF_IN_DOUBT); /* nobody answers, and nobody processes meanwhile */
    hf_lease_free(lease);
    await_request(OP_RELEASE);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    assert_int_equal(pthread_create(&server, NULL, grant_later, NULL), 0);
    process_until(client, &told.over);
    pthread_join(server, NULL);
    pthread_t servers[2]; /* the release that is still tried, and that of the hold */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&servers[i], NULL, answer_release, NULL), 0);
    assert_int_equal(hf_close(client, 5000), HF_OK);
    for (int i = 0; i < 2; i++)
        pthread_join(servers[i], NULL);
}

/* ---- Attaching ---- */

static void detached_hold(hf_client *client, hf_lease **lease, char text[HF_EXPORT_MAX])
{
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    c.request.flags = HF_DETACHED;
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    reply(&asked, REPLY_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    assert_int_equal(hf_lease_export(c.lease, text, HF_EXPORT_MAX), HF_OK);
    *lease = c.lease;
}

static void test_attach(void **state)
{
    (void)state;
    static const struct {
        enum reply_kind kind;
        hf_status status;
    } rows[] = {{REPLY_EXTENDED, HF_OK},
                {REPLY_NOT_HELD, HF_LOST},
                {REPLY_UNKNOWN, HF_IN_DOUBT},
                {REPLY_FAILED, HF_UNAVAILABLE}};
    char text[HF_EXPORT_MAX];
    hf_client *client = open_with_later(false);
    hf_lease *lease;
    detached_hold(client, &lease, text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller c = {.call = CALL_ATTACH, .client = client, .text = text};
        unsigned forgotten = atomic_load(&later.forgotten),
                 unattended = atomic_load(&later.unattended);
        begin_call(&c);
        struct request asked = await_request(OP_CHECK);
        assert_false(asked.in_background);
        reply(&asked, rows[i].kind);
        assert_int_equal(end_call(&c), rows[i].status);
        assert_int_equal(atomic_load(&later.forgotten), forgotten + (rows[i].status != HF_OK));
        assert_int_equal(atomic_load(&later.unattended), unattended + (rows[i].status == HF_OK));
        hf_lease_free(c.lease);
    }
    struct caller c = {.call = CALL_ATTACH, .client = client, .text = text};
    begin_call(&c);
    await_request(OP_CHECK);
    assert_int_equal(end_call(&c), HF_UNAVAILABLE);
    assert_non_null(strstr(c.words, "no answer within 500 ms"));
    assert_in_range(c.took_ms, 500, 500 + SLACK_MS);
    hf_lease_free(lease);
    assert_int_equal(submitted(OP_RELEASE), 0);
    close_at_once(client);
}

/* Who leaves it to its text before it has its whole ttl asks for the rest on the way out. */
static void test_leave_brief_behind(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    char text[HF_EXPORT_MAX];
    c.request.flags = HF_DETACHED;
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    struct engine_reply granted = {
        .kind = REPLY_GRANTED, .good = NANOS_OF_MS(400), .token = 7, .brief = true};
    say(&asked, granted);
    assert_int_equal(end_call(&c), HF_OK);
    assert_int_equal(hf_lease_export(c.lease, text, sizeof text), HF_OK);
    unsigned forgotten = atomic_load(&later.forgotten);
    hf_lease_free(c.lease);
    assert_int_equal(atomic_load(&later.forgotten), forgotten + 1);
    assert_int_equal(await_request(OP_EXTEND).ttl_ms, TTL_MS);
    close_at_once(client);
    assert_int_equal(submitted(OP_RELEASE), 0);
}

/* ---- Closing ---- */

static void test_close_waits(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hold(client, "a");
    hf_lease *detached;
    char text[HF_EXPORT_MAX];
    detached_hold(client, &detached, text);
    struct caller waiter = {
        .call = CALL_ACQUIRE, .client = client, .request = ask_for("b", HF_FOREVER)};
    begin_call(&waiter);
    struct request asked = await_request(OP_ACQUIRE);
    reply(&asked, REPLY_QUEUED);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = 5000};
    begin_call(&close);
    struct request released = await_request(OP_RELEASE), left = await_request(OP_LEAVE);
    assert_true(released.in_background);
    assert_false(left.in_background);
    nap_us(50000);
    reply(&left, REPLY_RELEASED);
    assert_int_equal(end_call(&waiter), HF_CLOSED);
    nap_us(50000);
    reply(&released, REPLY_RELEASED);
    assert_int_equal(end_call(&close), HF_OK);
    assert_in_range(close.took_ms, 100, 100 + SLACK_MS);
    assert_int_equal(submitted(OP_RELEASE) + submitted(OP_CHECK),
                     1); /* the detached hold is left alone */
}

static void test_close_in_silence(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("b", HF_FOREVER);
    hf_lease *started;
    sem_init(&told.over, 0, 0);
    hold(client, "a");
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &started), HF_OK);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = OP_MS};
    begin_call(&close);
    await_request(OP_RELEASE);
    await_request(OP_LEAVE);
    assert_int_equal(end_call(&close), HF_IN_DOUBT);
    assert_non_null(strstr(close.words, "2 holds"));
    assert_in_range(close.took_ms, OP_MS, OP_MS + SLACK_MS);
    assert_int_equal(sem_trywait(&told.over), 0);
    assert_int_equal(told.status, HF_CLOSED);
}

/* Every round of the last callbacks is late before it begins. */
static void test_close_slowly(void **state)
{
    (void)state;
    hf_client *client = open_with_later(true);
    struct told told = {.status = HF_INTERNAL};
    hf_lease *started;
    sem_init(&told.over, 0, 0);
    for (const char *name = "abc"; *name; name++) {
        struct hf_request request = ask_for(name, HF_FOREVER);
        assert_int_equal(hf_acquire_start(client, &request, note, &told, &started), HF_OK);
    }
    atomic_store(&later.drags, true);
    assert_int_equal(hf_close(client, OP_MS), HF_IN_DOUBT);
    atomic_store(&later.drags, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sem_trywait(&told.over), 0);
    assert_int_equal(told.status, HF_CLOSED);
}

/* A wait without an end is cancelled while its caller sleeps: the caller must wake for the time
 * that is set then. */
static void test_silence_after_cancel(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller waiter = {
        .call = CALL_ACQUIRE, .client = client, .request = ask_for("b", HF_FOREVER)};
    begin_call(&waiter);
    await_request(OP_ACQUIRE);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = 5000};
    begin_call(&close);
    await_request(OP_LEAVE); /* is not answered */
    assert_int_equal(end_call(&waiter), HF_CLOSED);
    assert_true(waiter.took_ms < 2 * OP_MS + SLACK_MS);
    struct request released = await_request(OP_RELEASE);
    assert_true(released.may_be_in_flight);
    reply(&released, REPLY_NOT_HELD);
    assert_int_equal(end_call(&close), HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a release inside a callback does not sleep for ever", test_release_in_callback),
        SENTENCE("without a background thread calls end, callbacks run and closing waits",
                 test_no_thread),
        SENTENCE("attaching waits for its answer, for the time of one request and for connecting",
                 test_attach),
        SENTENCE("a brief grant that is left to its text gets its whole ttl",
                 test_leave_brief_behind),
        SENTENCE("closing waits for the answers, except for what stays", test_close_waits),
        SENTENCE("closing in silence takes the time that it was given, tells everybody and counts",
                 test_close_in_silence),
        SENTENCE(
            "closing without a background thread runs every callback, however slow the machine is",
            test_close_slowly),
        SENTENCE("a caller whose wait is cancelled does not sleep until the end of that wait",
                 test_silence_after_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
