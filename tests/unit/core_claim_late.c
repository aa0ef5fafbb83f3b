/* core_claim_late.c - tests of the claim's rules for what comes late: grants for less than the ttl, answers to requests
 * that were overtaken, and the outcome of a wait in which the engine was away. */
#include "table_top.h"

/* ---- Grants for less than the ttl ---------------------------------------------------------------------------- */

/* Handed over at `at_ms` for what is left of `good_ms` since the ask at 0. */
static struct table_top handed_over(struct hf_claim_terms terms, int64_t good_ms, int64_t at_ms)
{
    struct table_top top = asking_for(terms, 60000);
    struct hf_news granted = {.cue = HF_N_GRANTED, .good = HF_MS(good_ms), .token = 9, .brief = true};
    granted.asked_at = epoch;
    tell(&top, HF_N_QUEUED, 1);
    tell_full(&top, granted, at_ms);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
    return top;
}

/* What is left of 700 ms less 9 of drift at 400, and when a third of that is over. */
enum { LEFT_MS = 291, EXTEND_AT_MS = 400 + LEFT_MS / 3 };

static void expect_wake_near(const struct table_top *top, int64_t at_ms)
{
    assert_in_range(top->move.wake_at, epoch + HF_MS(at_ms - 4), epoch + HF_MS(at_ms + 4));
}

static void
a_brief_grant_is_extended_to_the_whole_ttl_after_a_third_of_what_is_left_even_without_auto_renewal(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    expect_wake_near(&top, EXTEND_AT_MS);
    timer(&top, EXTEND_AT_MS + 2);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    tell_good(&top, HF_N_EXTENDED, 500, 501);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + HF_MS(500) + TTL - DRIFT);
    assert_int_equal(top.move.wake_at, epoch + HF_MS(500) + TTL / 3);
    timer(&top, 500 + 334); /* from here on it is as any hold: looked after, not renewed */
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
}

static void an_extend_of_a_brief_grant_that_fails_is_tried_again_until_one_comes_through(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    timer(&top, 500);
    tell(&top, HF_N_CUT, 550);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    expect_wake_near(&top, 400 + LEFT_MS * 2 / 3); /* two thirds of what is left: nothing came through so far */
    timer(&top, 598);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_WARN, HF_OK);
    timer(&top, 600);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    struct table_top lost = top;
    tell_good(&top, HF_N_EXTENDED, 600, 601);
    assert_false(top.claim.brief);
    timer(&lost, 691);
    expect(&lost, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void a_brief_grant_that_is_released_before_is_not_extended(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    wish(&top, HF_I_RELEASE, 450);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_RELEASED, 451);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
}

static void a_check_does_not_count_as_the_extend_of_a_brief_grant_and_a_second_grant_for_the_ttl_does(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    tell(&top, HF_N_HINT, 410);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
    struct hf_news left = {.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(410), .good = HF_MS(290), .token = 9};
    tell_full(&top, left, 411);
    expect_wake_near(&top, EXTEND_AT_MS);
    assert_true(top.claim.brief);
    tell_good(&top, HF_N_GRANTED, 420, 421); /* a refresh of the place that crossed the hand-over */
    assert_false(top.claim.brief);
    assert_int_equal(top.claim.valid_until, epoch + HF_MS(420) + TTL - DRIFT);
}

static void an_extend_by_the_caller_of_a_brief_grant_asks_for_the_ttl_at_least(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    struct table_top longer = top;
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 300}, 410);
    assert_int_equal(top.move.ttl, TTL);
    send(&longer, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 3000}, 410);
    assert_int_equal(longer.move.ttl, HF_MS(3000));
}

static void a_brief_grant_with_hardly_any_time_left_is_extended_while_a_second_try_still_fits(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = true}, 700, 630);
    assert_true(top.claim.valid_until - (epoch + HF_MS(630)) == HF_MS(61)); /* little more than an op_timeout of 50 */
    expect_wake_near(&top, 630 + 20);
}

static void a_leave_that_finds_a_brief_grant_holds_it_and_extends_it(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    tell(&top, HF_N_QUEUED, 1);
    timer(&top, 100);
    struct hf_news granted = {.cue = HF_N_GRANTED, .good = HF_MS(302), .token = 9, .brief = true};
    granted.asked_at = epoch + HF_MS(100);
    tell_full(&top, granted, 110);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
    expect_wake_near(&top, 110 + (302 - 6 - 10) / 3);
}

/* ---- Answers to requests that were overtaken ----------------------------------------------------------------- */

static struct hf_news answer_of(enum hf_cue cue, int64_t asked_ms)
{
    return (struct hf_news){
        .cue = cue, .asked_at = epoch + HF_MS(asked_ms), .status = HF_UNAVAILABLE, .retry_at = HF_NEVER};
}

static void only_its_own_answer_ends_a_release_not_that_of_the_request_before(void **state)
{
    (void)state;
    static const enum hf_cue cues[] = {HF_N_GONE, HF_N_RELEASED, HF_N_CUT, HF_N_FAILED, HF_N_EXTENDED, HF_N_BUSY};
    for (size_t i = 0; i < sizeof cues / sizeof *cues; i++) {
        struct table_top top = held();
        timer(&top, 334);
        wish(&top, HF_I_RELEASE, 335);
        hf_nanos wake_at = top.move.wake_at;
        tell_full(&top, answer_of(cues[i], 334), 336);
        expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
        assert_int_equal(top.move.wake_at, wake_at);
        tell_full(&top, answer_of(HF_N_RELEASED, 335), 337);
        expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
    }
}

static void an_answer_of_the_same_nanosecond_counts_for_the_newer_request(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_EXTEND, 10);
    wish(&top, HF_I_RELEASE, 10);
    tell_full(&top, answer_of(HF_N_RELEASED, 10), 11);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);

    top = held();
    wish(&top, HF_I_EXTEND, 10);
    struct hf_news extended = {.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(10), .good = TTL, .token = 9};
    tell_full(&top, extended, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
}

/* ---- The outcome of a wait in which the engine was away ------------------------------------------------------ */

static void an_ask_in_flight_at_the_deadline_ends_with_the_failure_that_came_before(void **state)
{
    (void)state;
    struct table_top top = asking(200);
    tell(&top, HF_N_FAILED, 1);
    timer(&top, 100);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    timer(&top, 200);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_FAILED, 201);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_UNAVAILABLE);

    top = asking(200);
    tell(&top, HF_N_CUT, 50);
    timer(&top, 150);
    timer(&top, 200);
    tell(&top, HF_N_RELEASED, 201);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_IN_DOUBT);
}

static void a_failure_counts_no_more_once_the_engine_said_busy_or_queued(void **state)
{
    (void)state;
    static const enum hf_cue cues[] = {HF_N_BUSY, HF_N_QUEUED};
    for (size_t i = 0; i < 2; i++) {
        struct table_top top = asking(500);
        tell(&top, HF_N_FAILED, 1);
        timer(&top, 100);
        tell(&top, cues[i], 101);
        tell(&top, HF_N_HINT, 102);
        expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
        timer(&top, 500);
        tell(&top, HF_N_RELEASED, 501);
        expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_TIMEOUT);
    }
}

static void who_had_a_place_in_the_queue_times_out_whatever_failed_behind_it(void **state)
{
    (void)state;
    struct table_top top = asking(200);
    tell(&top, HF_N_QUEUED, 1);
    tell(&top, HF_N_CUT, 50);
    timer(&top, 200);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
}

static void a_refusal_for_good_ends_a_wait_at_once_and_one_without_wait_is_its_outcome(void **state)
{
    (void)state;
    static const hf_status for_good[] = {HF_DENIED, HF_CONFIG, HF_MISMATCH, HF_INVALID, HF_TOO_BIG, HF_UNSUPPORTED};
    static const hf_status for_now[] = {HF_UNAVAILABLE, HF_FULL, HF_NO_QUORUM, HF_NOT_REPLICATED};
    for (size_t i = 0; i < sizeof for_good / sizeof *for_good; i++) {
        struct table_top top = asking(5000);
        tell_full(&top, (struct hf_news){.cue = HF_N_FAILED, .status = for_good[i]}, 1);
        expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, for_good[i]);
    }
    for (size_t i = 0; i < sizeof for_now / sizeof *for_now; i++) {
        struct table_top waits = asking(5000), top = asking(0);
        tell_full(&waits, (struct hf_news){.cue = HF_N_FAILED, .status = for_now[i]}, 1);
        expect(&waits, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
        tell_full(&top, (struct hf_news){.cue = HF_N_FAILED, .status = for_now[i]}, 1);
        expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, for_now[i]);
    }
}

/* A refresh and the message of the hand-over crossed: the caller has released by the time the refresh says that it is
 * ours. The release was sent behind it, and its answer is the caller's. */
static void a_grant_that_the_callers_release_has_overtaken_is_not_given_back_again(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct hf_claim_terms){.auto_renew = false}, 700, 400);
    wish(&top, HF_I_RELEASE, 410);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 399, 411);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_RELEASED, 412);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
}

/* Broken, while the look of a moment before was still under way: that got it a place in the queue. */
static void a_hold_that_had_waited_and_is_gone_gives_up_the_place_that_a_late_look_may_have_got_it(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_QUEUED, 1);
    tell_good(&top, HF_N_GRANTED, 2, 3);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
    tell(&top, HF_N_QUEUED, 4);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_GONE, 5);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_brief_grant_is_extended_to_the_whole_ttl_after_a_third_of_what_is_left_even_without_auto_renewal),
        cmocka_unit_test(an_extend_of_a_brief_grant_that_fails_is_tried_again_until_one_comes_through),
        cmocka_unit_test(a_brief_grant_that_is_released_before_is_not_extended),
        cmocka_unit_test(a_check_does_not_count_as_the_extend_of_a_brief_grant_and_a_second_grant_for_the_ttl_does),
        cmocka_unit_test(an_extend_by_the_caller_of_a_brief_grant_asks_for_the_ttl_at_least),
        cmocka_unit_test(a_brief_grant_with_hardly_any_time_left_is_extended_while_a_second_try_still_fits),
        cmocka_unit_test(a_leave_that_finds_a_brief_grant_holds_it_and_extends_it),
        cmocka_unit_test(only_its_own_answer_ends_a_release_not_that_of_the_request_before),
        cmocka_unit_test(an_answer_of_the_same_nanosecond_counts_for_the_newer_request),
        cmocka_unit_test(an_ask_in_flight_at_the_deadline_ends_with_the_failure_that_came_before),
        cmocka_unit_test(a_failure_counts_no_more_once_the_engine_said_busy_or_queued),
        cmocka_unit_test(who_had_a_place_in_the_queue_times_out_whatever_failed_behind_it),
        cmocka_unit_test(a_refusal_for_good_ends_a_wait_at_once_and_one_without_wait_is_its_outcome),
        cmocka_unit_test(a_grant_that_the_callers_release_has_overtaken_is_not_given_back_again),
        cmocka_unit_test(a_hold_that_had_waited_and_is_gone_gives_up_the_place_that_a_late_look_may_have_got_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
