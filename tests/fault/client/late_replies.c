/* late_replies.c - an engine whose answers come later: who waits parks and hears them, what nobody
 * waits for comes by the bell, and nobody sleeps for ever when none comes. */
#include "late_reply_callers.h"

static void test_parks(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    unsigned parks = atomic_load(&later.parks), unattended = atomic_load(&later.unattended);
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    assert_false(asked.in_background);
    struct engine_reply queued = {
        .kind = REPLY_QUEUED, .retry_at = clock_boot() + NANOS_OF_MS(30), .place = 1};
    say(&asked, queued);
    asked = await_request(OP_ACQUIRE); /* the caller brings its own timer: it refreshes its place */
    assert_false(asked.in_background);
    assert_int_equal(atomic_load(&later.unattended), unattended);
    reply(&asked, REPLY_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    assert_true(atomic_load(&later.parks) > parks);
    assert_int_equal(atomic_load(&later.unattended), unattended + 1);
    assert_true(hf_lease_ok(c.lease));
    give(c.lease);
    close_at_once(client);
}

static void test_bell(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    request.flags = HF_AUTO_RENEW;
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    struct request asked = await_request(OP_ACQUIRE);
    assert_true(asked.in_background);
    reply(&asked, REPLY_GRANTED);
    await_told(&told);
    assert_int_equal(told.status, HF_OK);
    asked = await_request(OP_EXTEND); /* the keeper's renewal */
    assert_true(asked.in_background);
    reply(&asked, REPLY_EXTENDED);
    unsigned forgotten = atomic_load(&later.forgotten);
    hf_lease_free(lease);
    asked = await_request(OP_RELEASE);
    assert_true(asked.in_background);
    reply(&asked, REPLY_RELEASED);
    while (atomic_load(&later.forgotten) == forgotten)
        futex_wait(&later.changes, atomic_load(&later.changes), clock_boot() + NANOS_OF_MS(100));
    close_at_once(client);
}

static void test_several_news(void **state)
{
    (void)state;
    const struct engine_reply reply[] = {
        {.kind = REPLY_QUEUED, .retry_at = TIME_NEVER, .place = 2},
        {.kind = REPLY_QUEUED, .retry_at = TIME_NEVER, .place = 1},
        {.kind = REPLY_GRANTED, .good = NANOS_OF_MS(TTL_MS), .token = 8},
    };
    hf_client *client = open_with_later(false);
    struct hf_request request = ask_for("a", 5000);
    struct told told = {.status = HF_INTERNAL};
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = request};
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    struct request asked = await_request(OP_ACQUIRE);
    say_all(&asked, reply, 3);
    await_told(&told);
    assert_int_equal(hf_lease_token(lease), 8);
    give(lease);
    begin_call(&c);
    asked = await_request(OP_ACQUIRE);
    say_all(&asked, reply, 3);
    assert_int_equal(end_call(&c), HF_OK);
    give(c.lease);
    close_at_once(client);
}

static void test_left_to_the_bell(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 150)};
    begin_call(&c);
    await_request(OP_ACQUIRE);
    struct request left = await_request(OP_LEAVE); /* neither is answered */
    assert_false(left.in_background);
    assert_int_equal(end_call(&c), HF_IN_DOUBT);
    assert_in_range(c.took_ms, 150 + OP_MS, 150 + OP_MS + SLACK_MS);
    struct request released = await_request(OP_RELEASE);
    assert_true(released.may_be_in_flight);
    unsigned forgotten = atomic_load(&later.forgotten);
    reply(&released, REPLY_NOT_HELD);
    while (atomic_load(&later.forgotten) == forgotten)
        futex_wait(&later.changes, atomic_load(&later.changes), clock_boot() + NANOS_OF_MS(100));
    close_at_once(client);
}

static void test_brief(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    begin_call(&c);
    struct request asked = await_request(OP_ACQUIRE);
    struct engine_reply granted = {
        .kind = REPLY_GRANTED, .good = NANOS_OF_MS(400), .token = 7, .brief = true};
    say(&asked, granted);
    assert_int_equal(end_call(&c), HF_OK);
    assert_true(hf_lease_left_ms(c.lease) <= 400);
    struct request extend = await_request(OP_EXTEND);
    assert_true(extend.in_background);
    assert_int_equal(extend.ttl_ms, TTL_MS);
    assert_true(extend.at - asked.at < NANOS_OF_MS(300));
    reply(&extend, REPLY_EXTENDED);
    while (hf_lease_left_ms(c.lease) <= 400)
        nap_us(1000);
    give(c.lease);
    close_at_once(client);
}

static void test_unanswered_release(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_RELEASE, .lease = hold(client, "a")};
    begin_call(&c);
    await_request(OP_RELEASE);
    assert_int_equal(end_call(&c), HF_IN_DOUBT);
    assert_in_range(c.took_ms, 2 * OP_MS, 2 * OP_MS + SLACK_MS);
    assert_int_equal(hf_release(c.lease), HF_NOT_HELD);
    struct request again = await_request(OP_RELEASE);
    reply(&again, REPLY_RELEASED);
    hf_lease_free(c.lease);
    close_at_once(client);
}

static enum reply_kind refuse(const struct request *asked)
{
    (void)asked;
    return REPLY_FAILED;
}

static void test_engine_away(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct server server = {.answer = refuse};
    start_server(&server);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 500)};
    begin_call(&c);
    assert_int_equal(end_call(&c), HF_UNAVAILABLE);
    assert_in_range(c.took_ms, 500, 500 + SLACK_MS);
    assert_non_null(strstr(c.words, "connection refused"));
    assert_true(atomic_load(&server.answers) > 1);
    stop_server(&server);
    hf_close(client, 0);
}

static void test_recheck(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    nanos before = clock_boot();
    later.host->recheck(later.host->ctx); /* by a thread that is not the keeper */
    struct request asked = await_request(OP_CHECK);
    assert_true(asked.at - before <
                NANOS_OF_MS(TTL_MS / 6)); /* by itself it is checked after a third of the ttl */
    assert_true(asked.in_background);
    reply(&asked, REPLY_NOT_HELD);
    while (hf_lease_ok(lease))
        nap_us(100);
    hf_lease_free(lease);
    close_at_once(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a caller that waits parks, refreshes its place itself, and leaves the hold to "
                 "the bell",
                 test_parks),
        SENTENCE("what nobody waits for comes by the bell and goes out by itself", test_bell),
        SENTENCE("of several news that come at once all are heard", test_several_news),
        SENTENCE("a wait that ends unanswered leaves the rest to the background",
                 test_left_to_the_bell),
        SENTENCE("a grant for less than the ttl is extended without auto-renewal", test_brief),
        SENTENCE("a release without an answer is in doubt after two op_timeouts",
                 test_unanswered_release),
        SENTENCE("a wait that ends while the engine is away says so, and why", test_engine_away),
        SENTENCE("a recheck by any thread wakes the keeper", test_recheck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
