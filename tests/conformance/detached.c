/* detached.c - holds that live by their ttl alone, as text that goes from process to process; and
 * calls that are repeated with the same attempt. */
#include "lib/engines.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DETACHED(...) ASK(.name = "d", .flags = HF_DETACHED, __VA_ARGS__)

static void export_of(hf_lease *lease, char text[HF_EXPORT_MAX])
{
    if (hf_lease_export(lease, text, HF_EXPORT_MAX) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static hf_lease *attach(hf_client *client, const char *text)
{
    hf_lease *lease;
    if (hf_lease_attach(client, text, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    return lease;
}

static void test_outlives_its_client(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    hf_client *client = row_client(), *first = open_client(NULL, NULL);
    hf_lease *lease = take(first, DETACHED(.ttl_ms = 60000, .label = "job 7"));
    uint64_t token = hf_lease_token(lease);
    close_client(first);
    struct view seen = look_at(client, "d");
    assert_int_equal(seen.holders, 1);
    assert_true(seen.row[0].detached);
    assert_int_equal(seen.row[0].token, token);
    assert_string_equal(seen.row[0].label, "job 7");
    refuse(client, ASK(.name = "d"), HF_BUSY, "d");
}

static void test_outlives_its_process(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    struct actor *doomed = actor_here();
    struct answer held =
        actor_holds(doomed, 0, &(struct want){.name = "d", .ttl_ms = 1500, .flags = HF_DETACHED});
    actor_holds(doomed, 1, &(struct want){.name = "bound", .ttl_ms = 1500});
    actor_kill(doomed);
    hf_client *client = row_client();
    await_sight(client, "bound", 0, 0);
    if (engine()->notices_death)
        assert_int_equal(see(client, "d").token, held.token);
    hf_lease *next =
        take(client, ASK(.name = "d", .wait_ms = HF_FOREVER)); /* until its ttl is over */
    assert_true(hf_lease_token(next) > held.token);
    give(next);
}

/* ---- Export and attach ---- */

static void take_over(struct actor *me, void *arg)
{
    hf_client *client;
    hf_lease *lease;
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    struct answer said = {.what = ORDER_ACQUIRE, .status = hf_lease_attach(client, arg, &lease)};
    said.token = hf_lease_token(lease);
    said.number = hf_lease_left_ms(lease);
    part_says(me, &said);
    part_awaits_go(me);
    part_must(hf_extend(lease, 60000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_EXTEND, .number = hf_lease_left_ms(lease)});
    part_awaits_go(me);
    part_says(me, &(struct answer){.what = ORDER_RELEASE, .status = hf_release(lease)});
    hf_lease_free(lease);
}

static void test_another_process(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char *text = shared_page(HF_EXPORT_MAX);
    struct actor *heir = NULL;
    hf_client *client = row_client();
    hf_lease *lease = take(client, DETACHED(.ttl_ms = 20000));
    uint64_t token = hf_lease_token(lease);
    export_of(lease, text);
    hf_lease_free(lease); /* the hold belongs to the text */
    assert_int_equal(look_at(client, "d").holders, 1);
    heir = actor_start_part(take_over, text);
    struct answer attached = actor_answer(heir, ORDER_ACQUIRE, 0);
    assert_int_equal(attached.status, HF_OK);
    assert_int_equal(attached.token, token);
    assert_true(attached.number > 0 && attached.number <= 20000);
    actor_order(heir, ORDER_GO, 0);
    assert_true(actor_answer(heir, ORDER_EXTEND, 0).number > 50000);
    assert_int_equal(look_at(client, "d").row[0].token, token);
    actor_order(heir, ORDER_GO, 0);
    assert_int_equal(actor_answer(heir, ORDER_RELEASE, 0).status, HF_OK);
    hf_lease *gone;
    assert_refused(hf_lease_attach(client, text, &gone), HF_LOST, "d");
    assert_null(gone);
    give(take(client, ASK(.name = "d")));
}

static hf_lease *assume(hf_client *client, const char *text)
{
    hf_lease *lease;
    if (hf_lease_assume(client, text, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    return lease;
}

static void test_assumed(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char text[HF_EXPORT_MAX];
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *lease = take(client, DETACHED(.ttl_ms = 20000)), *assumed;
    export_of(lease, text);
    if (hf_lease_assume(other, text, &assumed) == HF_UNSUPPORTED) {
        assert_null(assumed);
        assert_string_not_equal(hf_client_engine(other), "redis");
        give(lease);
        close_client(other);
        return;
    }
    assert_int_equal(hf_lease_token(assumed), hf_lease_token(lease));
    assert_int_equal(hf_extend(assumed, 60000), HF_OK);
    assert_true(hf_lease_left_ms(assumed) > 50000);
    hf_lease_free(assumed); /* a handle less, not the hold */
    assert_int_equal(look_at(client, "d").holders, 1);
    hf_lease *first = assume(other, text), *second = assume(other, text);
    assert_int_equal(hf_release(first), HF_OK);
    assert_int_equal(look_at(client, "d").holders, 0);
    hf_lease *next = take(client, ASK(.name = "d"));
    assert_refused(hf_release(second), HF_NOT_HELD, "d");
    hf_lease *third = assume(other, text);
    assert_refused(hf_extend(third, 60000), HF_LOST, "d");
    assert_true(hf_lease_ok(next));
    hf_lease_free(first);
    hf_lease_free(second);
    hf_lease_free(third);
    hf_lease_free(lease);
    give(next);
    close_client(other);
}

/* The ttl of the text is a guess: the reply to the first extend replaces it. */
static void test_assumed_time(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char text[HF_EXPORT_MAX];
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *lease = take(client, DETACHED(.ttl_ms = 8000)), *assumed;
    export_of(lease, text);
    if (hf_lease_assume(other, text, &assumed) == HF_OK) {
        hf_lease_free(assumed);
        nap_ms(600);
        assumed = assume(other, text);
        assert_true(hf_lease_left_ms(assumed) > 7500);
        assert_int_equal(hf_extend(assumed, 1000), HF_OK);
        assert_true(hf_lease_left_ms(assumed) <= 7400 && hf_lease_left_ms(assumed) > 1000);
        hf_lease_free(assumed);
    }
    give(lease);
    close_client(other);
}

static void test_released_by_either(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char text[HF_EXPORT_MAX];
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *lease = take(client, DETACHED(.ttl_ms = 60000));
    export_of(lease, text);
    hf_lease *again = attach(other, text), *third = attach(other, text);
    hf_lease_free(third); /* a handle less, not the hold */
    assert_int_equal(look_at(client, "d").holders, 1);
    assert_int_equal(hf_release(again), HF_OK);
    assert_int_equal(look_at(client, "d").holders, 0);
    hf_lease *next = take(other, ASK(.name = "d"));
    assert_refused(hf_release(lease), HF_NOT_HELD, "d");
    assert_true(hf_lease_ok(next));
    hf_lease_free(lease);
    hf_lease_free(again);
    give(next);
    close_client(other);
}

static void extend_elsewhere(const char *text, int64_t ttl_ms)
{
    hf_client *client = open_client(NULL, NULL);
    hf_lease *lease = attach(client, text);
    assert_int_equal(hf_extend(lease, ttl_ms), HF_OK);
    hf_lease_free(lease);
    close_client(client);
}

/* G14 */
static void test_never_shortened(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char text[HF_EXPORT_MAX];
    hf_client *client = row_client();
    hf_lease *lease = take(client, DETACHED(.ttl_ms = 1000));
    export_of(lease, text);
    hf_lease_free(lease);
    extend_elsewhere(text, 20000);
    extend_elsewhere(text, 1000);
    hf_lease *looked = attach(client, text); /* which extends nothing */
    hf_lease_free(looked);
    usleep(3000 * 1000); /* what the shortest extend alone would give is over on every engine */
    refuse(client, ASK(.name = "d"), HF_BUSY, "d");
    give(attach(client, text));
}

/* Takes a hold of 1 s and keeps its handle. */
static void take_and_keep(struct actor *me, void *text)
{
    hf_client *client;
    hf_lease *lease;
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    struct hf_request want = *ASK(.name = "kept", .flags = HF_DETACHED, .ttl_ms = 1000);
    part_must(hf_acquire(client, &want, &lease) == HF_OK);
    part_must(hf_lease_export(lease, text, HF_EXPORT_MAX) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_ACQUIRE});
    part_awaits_go(me);
    part_must(hf_extend(lease, 1000) == HF_LOST);
    hf_lease_free(lease);
    hf_close(client, 1000);
    part_says(me, &(struct answer){.what = ORDER_GO});
}

/* The first handle may know only the end that it had itself. That end is not the hold's any more. A
 * process that was stopped meanwhile knows it on no engine. */
static void test_known_end_passes(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    char text[HF_EXPORT_MAX], *kept = shared_page(HF_EXPORT_MAX);
    struct actor *stopped = actor_start_part(take_and_keep, kept);
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *first = take(client, DETACHED(.ttl_ms = 1000));
    export_of(first, text);
    hf_lease *longer = attach(other, text);
    assert_int_equal(hf_extend(longer, 20000), HF_OK);
    actor_answer(stopped, ORDER_ACQUIRE, 0);
    actor_stop(stopped);
    hf_lease *also = attach(other, kept);
    assert_int_equal(hf_extend(also, 20000), HF_OK);
    usleep(3000 * 1000); /* what the first handle knows is over on every engine */
    actor_go_on(stopped);
    actor_order(stopped, ORDER_GO, 0);
    actor_answer(stopped, ORDER_GO, 0);
    hf_lease_free(first);
    assert_int_equal(hf_extend(longer, 20000), HF_OK);
    assert_int_equal(hf_extend(also, 20000), HF_OK);
    refuse(client, ASK(.name = "d"), HF_BUSY, "d");
    give(longer);
    give(also);
    close_client(other);
}

static void test_every_kind(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED) || !offers(NEED_SEMAPHORE) || !offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    const struct hf_request *requests[] = {
        ASK(.name = "a name with blanks", .flags = HF_DETACHED, .ttl_ms = 60000),
        ASK(.name = "s", .kind = HF_SEMAPHORE, .units = 3, .capacity = 5, .flags = HF_DETACHED,
            .ttl_ms = 60000),
        ASK(.name = "r", .kind = HF_READ, .flags = HF_DETACHED, .ttl_ms = 60000),
        ASK(.name = "w", .kind = HF_WRITE, .flags = HF_DETACHED, .ttl_ms = 60000),
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char text[HF_EXPORT_MAX];
        hf_lease *lease = take(client, requests[i]);
        export_of(lease, text);
        hf_lease *again = attach(other, text);
        assert_string_equal(hf_lease_name(again), requests[i]->name);
        assert_int_equal(hf_lease_token(again), hf_lease_token(lease));
        give(again);
        assert_int_equal(look_at(client, requests[i]->name).holders, 0);
        hf_lease_free(lease);
    }
    close_client(other);
}

static void test_bad_texts(void **state)
{
    (void)state;
    if (!offers(NEED_DETACHED))
        return;
    hf_client *client = row_client();
    char text[HF_EXPORT_MAX], doctored[HF_EXPORT_MAX];
    hf_lease *bound = take(client, ASK(.name = "bound")),
             *lease = take(client, DETACHED(.ttl_ms = 60000)), *none;
    assert_refused(hf_lease_export(bound, text, sizeof text), HF_INVALID, "bound");
    assert_refused(hf_lease_export(lease, text, 8), HF_FULL, "8 bytes");
    export_of(lease, text);
    for (size_t len = 0; len < strlen(text); len++) { /* cut at every byte */
        memcpy(doctored, text, len);
        doctored[len] = 0;
        assert_true(hf_lease_attach(client, doctored, &none) != HF_OK);
        assert_null(none);
        assert_true(hf_error_text()[0]);
        assert_null(strstr(hf_error_text(), text)); /* it is a secret */
    }
    memset(doctored, 'x', sizeof doctored - 1);
    doctored[sizeof doctored - 1] = 0;
    assert_refused(hf_lease_attach(client, doctored, &none), HF_INVALID, "text");
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_OK);
    assert_refused(hf_lease_export(lease, text, sizeof text), HF_NOT_HELD, "d");
    hf_lease_free(lease);
    give(bound);
}

/* ---- The same attempt again ---- */

static void test_same_attempt(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client(), *again = open_client(NULL, NULL);
    hf_lease *lease = take(client, ASK(.name = "t", .attempt = "try 1"));
    hf_lease *same = take(again, ASK(.name = "t", .attempt = "try 1"));
    assert_int_equal(hf_lease_token(same), hf_lease_token(lease));
    assert_int_equal(depth_of(client, "t"), 1);
    refuse(again, ASK(.name = "t", .attempt = "try 2"), HF_BUSY, "t");
    assert_int_equal(hf_release(same), HF_OK);
    assert_refused(hf_release(lease), HF_NOT_HELD, "t");
    hf_lease_free(lease);
    hf_lease_free(same);
    hf_lease *next =
        take(client, ASK(.name = "t", .attempt = "try 1")); /* over is over: a new grant */
    give(next);
    close_client(again);
}

static void test_same_attempt_of_a_permit(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER) || !offers(NEED_SEMAPHORE) || !offers(NEED_DETACHED))
        return;
    hf_client *client = row_client(), *again = open_client(NULL, NULL);
    struct hf_request *one = ASK(.name = "s", .kind = HF_SEMAPHORE, .units = 2, .capacity = 5,
                                 .attempt = "try 1", .ttl_ms = 60000, .flags = HF_DETACHED);
    hf_lease *lease = take(client, one), *same = take(again, one), *third = take(again, one);
    struct view seen = look_at(client, "s");
    assert_int_equal(seen.holders, 1);
    assert_int_equal(seen.row[0].used, 2);
    assert_int_equal(seen.row[0].depth, 1);
    assert_int_equal(hf_lease_token(third), hf_lease_token(lease));
    assert_int_equal(hf_release(third), HF_OK);
    assert_int_equal(look_at(client, "s").holders, 0);
    assert_refused(hf_release(same), HF_NOT_HELD, "s");
    assert_refused(hf_release(lease), HF_NOT_HELD, "s");
    hf_lease_free(lease);
    hf_lease_free(same);
    hf_lease_free(third);
    close_client(again);
}

/* A process that does not know whether it was granted died; another one asks with its attempt, and
 * has its grant. */
static void test_retry_after_death(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER) || !offers(NEED_DETACHED))
        return;
    struct hf_request *job =
        ASK(.name = "d", .attempt = "job 9", .flags = HF_DETACHED, .ttl_ms = 60000);
    struct actor *first = actor_asking(job);
    struct answer granted = actor_answer(first, ORDER_ACQUIRE, 0);
    assert_int_equal(granted.status, HF_OK);
    actor_kill(first);
    actor_await_end(first);
    hf_client *client = row_client();
    refuse(client, ASK(.name = "d"), HF_BUSY, "d");
    hf_lease *retried = take(client, job);
    assert_int_equal(hf_lease_token(retried), granted.token);
    assert_int_equal(depth_of(client, "d"), 1);
    give(retried);
    give(take(client, ASK(.name = "d")));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a detached hold outlives its client, and is shown as such", test_outlives_its_client),
        ROW("a detached hold outlives its process until its ttl is over; a bound one does not",
            test_outlives_its_process),
        ROW("another process attaches to the text, extends and releases", test_another_process),
        ROW("a text is believed until the engine replies; it extends and releases by one request",
            test_assumed),
        ROW("the time left of an assumed hold is that of the first reply", test_assumed_time),
        ROW("who has the text can release; freeing a handle of it releases nothing",
            test_released_by_either),
        ROW("a shorter extend by another client takes back nothing of a longer one",
            test_never_shortened),
        ROW("a handle that knows an earlier end takes nothing from one that extended the hold",
            test_known_end_passes),
        ROW("a hold of every kind goes through its text", test_every_kind),
        ROW("a text that is cut or foreign is refused, and never shown", test_bad_texts),
        ROW("the same attempt again is the same grant, and is released once", test_same_attempt),
        ROW("the same attempt for permits takes them once", test_same_attempt_of_a_permit),
        ROW("a retry after a death with the same attempt has the first try's grant",
            test_retry_after_death),
    };
    return JUDGE(rows);
}
