/* redis_stopped.c - the server is stopped (SIGSTOP) while one holds and others wait. Longer than
 * the ttl: the holder hears of its loss in time, by its own clock (G13), nobody holds twice (G1),
 * and when the server goes on so does all the rest. Shorter: nothing is lost. */
#include "checker/history_recording.h"
#include "lib/loss_notes.h"
#include "redis_fixture.h"

#include <stdio.h>

enum {
    TTL_MS = 1000,
    LONG_TTL_MS = 6000,
    DRIFT_MS = 12, /* of the first: 1% and 2 ms */
    SLACK_MS = 60, /* for a thread to run */
    OTHERS = 3,
    ROUNDS = 2, /* that each of them holds */
    SOON_MS = 4000,
};

static struct recording *told;

/* ---- The holder ---- */

static hf_lease *hold(const char *name, int64_t ttl_ms, struct loss *loss)
{
    return hold_noting(scene_client(),
                       &(struct want){.name = name, .ttl_ms = ttl_ms, .flags = HF_AUTO_RENEW},
                       loss);
}

/* ---- Those who wait ---- */

/* Says ORDER_GO each time that it has held; the number is that of the round. */
static void take_turns(struct actor *me, void *arg)
{
    const struct want *want = arg;
    hf_client *client = scene_part_client();
    part_says(me, &(struct answer){.what = ORDER_START});
    for (int round = 0; round < ROUNDS; round++) {
        struct hf_request request = request_of(want);
        hf_lease *lease;
        part_must(hf_acquire(client, &request, &lease) == HF_OK);
        int64_t from = now_ns();
        nap_us(20000);
        record_hold(told, 0, lease, from);
        part_says(me, &(struct answer){
                          .what = ORDER_GO, .id = (uint32_t)round, .token = hf_lease_token(lease)});
        hf_release(lease); /* what came of it does not matter here */
        hf_lease_free(lease);
    }
    part_must(hf_close(client, 5000) == HF_OK);
}

static void start_others(struct actor *other[OTHERS], struct want *want)
{
    for (int i = 0; i < OTHERS; i++) {
        other[i] = actor_start_part(take_turns, want);
        actor_answer(other[i], ORDER_START, 0);
    }
}

static void must_be_silent(struct actor *other[OTHERS])
{
    for (int i = 0; i < OTHERS; i++)
        assert_true(actor_is_silent(other[i]));
}

/* All of them hold, as often as they want to. */
static void must_take_turns(struct actor *other[OTHERS], uint64_t *lowest)
{
    *lowest = UINT64_MAX;
    for (int i = 0; i < OTHERS; i++)
        for (uint32_t round = 0; round < ROUNDS; round++) {
            struct answer held = actor_answer(other[i], ORDER_GO, round);
            *lowest = held.token < *lowest ? held.token : *lowest;
        }
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(actor_await_end(other[i]), 0);
}

/* ---- Tests ---- */

/* One holds, the others wait. */
struct play {
    struct loss loss;
    struct actor *other[OTHERS];
    hf_lease *held;
    int64_t from_ns;
};

static struct play *begin(int64_t ttl_ms)
{
    static struct play play;
    struct want want = {.name = "stopped", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    play = (struct play){0};
    told = recording_open(HOLDS);
    play.held = hold("stopped", ttl_ms, &play.loss);
    play.from_ns = now_ns();
    start_others(play.other, &want);
    scene_await_queue("stopped", OTHERS);
    return &play;
}

/* Its last renewal was answered before the stop: it may believe for a ttl from then on, and not a
 * moment longer. */
static void test_longer_than_ttl(void **state)
{
    (void)state;
    struct play *play = begin(TTL_MS);
    struct loss *loss = &play->loss;
    hf_lease *held = play->held;
    int64_t from = play->from_ns;
    nap_us(TTL_MS * 1000 / 2); /* a renewal or two */
    int64_t stopped = now_ns();
    server_pause(scene.server);
    for (; !atomic_load(&loss->times) && now_ns() - stopped < 2 * TTL_MS * 1000000LL; nap_us(500)) {
        record_hold(told, 0, held, from);
        from = now_ns();
    }
    int64_t lost_ms = (atomic_load(&loss->at_ns) - stopped) / 1000000;
    print_message("# lost %lld ms after the stop\n", (long long)lost_ms);
    assert_int_equal(atomic_load(&loss->times), 1);
    assert_in_range(lost_ms, TTL_MS / 2, TTL_MS - DRIFT_MS + SLACK_MS);
    assert_false(hf_lease_ok(held));
    assert_int_equal(hf_lease_left_ms(held), 0);
    nap_us(TTL_MS * 1000);
    must_be_silent(play->other);
    uint64_t token = hf_lease_token(held), lowest;
    server_continue(scene.server);
    int64_t went_on = now_ns();
    must_take_turns(play->other, &lowest);
    print_message("# all others have held %lld ms after the server went on\n",
                  (long long)(now_ns() - went_on) / 1000000);
    assert_in_range((now_ns() - went_on) / 1000000, 0, SOON_MS);
    assert_true(lowest > token);
    assert_one_held(told);
    recording_close(told);
    assert_int_equal(atomic_load(&loss->times), 1);
    assert_int_equal(hf_release(held), HF_NOT_HELD);
    hf_lease_free(held);
}

/* A hold that is longer than the stop: it is renewed afterwards, and nobody else had it. */
static void test_shorter_than_ttl(void **state)
{
    (void)state;
    struct play *play = begin(LONG_TTL_MS);
    hf_lease *held = play->held;
    server_pause(scene.server);
    nap_us(2 * TTL_MS * 1000);
    server_continue(scene.server);
    nap_us(TTL_MS * 1000);
    assert_true(hf_lease_ok(held) && hf_lease_left_ms(held) > LONG_TTL_MS / 3);
    assert_int_equal(atomic_load(&play->loss.times), 0);
    must_be_silent(play->other);
    record_hold(told, 0, held, play->from_ns);
    assert_int_equal(hf_release(held), HF_OK);
    uint64_t token = hf_lease_token(held), lowest;
    hf_lease_free(held);
    must_take_turns(play->other, &lowest);
    assert_true(lowest > token);
    assert_one_held(told);
    recording_close(told);
}

/* Asking while it stands still: an answer in time, and no hold. What was asked is carried out when
 * it goes on, and given back. */
static void test_asking_while_it_stands(void **state)
{
    (void)state;
    struct hf_request request = request_of(&(struct want){.name = "asked", .ttl_ms = LONG_TTL_MS});
    hf_lease *lease;
    struct loss none = {0};
    hf_lease_free(hold("warm-up", TTL_MS, &none));
    nap_us(50000);
    server_pause(scene.server);
    int64_t from = now_ns();
    hf_status status = hf_acquire(scene_client(), &request, &lease);
    int64_t took = (now_ns() - from) / 1000000;
    print_message("# %s after %lld ms: %s\n", hf_status_name(status), (long long)took,
                  hf_error_text());
    assert_int_equal(status, HF_IN_DOUBT);
    assert_in_range(took, 0, 4 * LONG_TTL_MS / 20 + SLACK_MS);
    server_continue(scene.server);
    from = now_ns();
    hf_client *other;
    assert_int_equal(hf_open(scene.url, NULL, &other), HF_OK);
    request.wait_ms = SOON_MS; /* less than the ttl of the ghost */
    assert_int_equal(hf_acquire(other, &request, &lease), HF_OK);
    print_message("# free %lld ms after the server went on\n",
                  (long long)(now_ns() - from) / 1000000);
    hf_lease_free(lease);
    assert_int_equal(hf_close(other, 5000), HF_OK);
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup,                            \
        .teardown_func = scene_teardown                                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("a server that stands still for longer than the ttl costs the hold, in time",
               test_longer_than_ttl),
        PLAYED("a server that stands still for less costs nothing", test_shorter_than_ttl),
        PLAYED("what is asked of a server that stands still is given back",
               test_asking_while_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
