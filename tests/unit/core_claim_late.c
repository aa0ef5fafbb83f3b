/* core_claim_late.c - tests of the claim's rules for what comes late: grants for less than the ttl,
 * answers to requests that were overtaken, and the outcome of a wait in which the engine was away.
 */
#include "claim_fixture.h"

/* ---- Grants for less than the ttl ---- */

/* Handed over at `at_ms` for what is left of `good_ms` since the ask at 0. */
static struct table_top handed_over(struct claim_terms terms, int64_t good_ms, int64_t at_ms)
{
    struct table_top top = asking_for(terms, 60000);
    struct engine_reply granted = {
        .kind = REPLY_GRANTED, .good = NANOS_OF_MS(good_ms), .token = 9, .brief = true};
    granted.asked_at = epoch;
    tell(&top, REPLY_QUEUED, 1);
    tell_full(&top, granted, at_ms);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
    return top;
}

/* What is left of 700 ms less 9 of drift at 400, and when an eighth of that is over. */
enum { LEFT_MS = 291, EXTEND_AT_MS = 400 + LEFT_MS / 8 };

static void expect_wake_near(const struct table_top *top, int64_t at_ms)
{
    assert_in_range(top->move.wake_at, epoch + NANOS_OF_MS(at_ms - 4),
                    epoch + NANOS_OF_MS(at_ms + 4));
}

static void
a_brief_grant_is_extended_to_the_whole_ttl_after_an_eighth_of_what_is_left_even_without_auto_renewal(
    void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    expect_wake_near(&top, EXTEND_AT_MS);
    timer(&top, EXTEND_AT_MS + 2);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    tell_good(&top, REPLY_EXTENDED, 500, 501);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + NANOS_OF_MS(500) + TTL - DRIFT);
    assert_int_equal(top.move.wake_at, epoch + NANOS_OF_MS(500) + TTL / 3);
    timer(&top, 500 + 334); /* from here on it is as any hold: looked after, not renewed */
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
}

static void
an_extend_of_a_brief_grant_that_fails_is_tried_again_until_one_comes_through(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    timer(&top, 500);
    tell(&top, REPLY_UNKNOWN, 550);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    expect_wake_near(
        &top, 400 + LEFT_MS * 2 / 3); /* two thirds of what is left: nothing came through so far */
    timer(&top, 598);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_WARN, HF_OK);
    timer(&top, 600);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    struct table_top lost = top;
    tell_good(&top, REPLY_EXTENDED, 600, 601);
    assert_false(top.claim.brief);
    timer(&lost, 691);
    expect(&lost, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void a_brief_grant_that_is_released_before_is_not_extended(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    wish(&top, INPUT_RELEASE, 450);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_RELEASED, 451);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
}

static void
a_check_does_not_count_as_the_extend_of_a_brief_grant_and_a_second_grant_for_the_ttl_does(
    void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    tell(&top, REPLY_NOTIFY, 410);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
    struct engine_reply left = {.kind = REPLY_EXTENDED,
                                .asked_at = epoch + NANOS_OF_MS(410),
                                .good = NANOS_OF_MS(290),
                                .token = 9};
    tell_full(&top, left, 411);
    expect_wake_near(&top, EXTEND_AT_MS);
    assert_true(top.claim.brief);
    tell_good(&top, REPLY_GRANTED, 420,
              421); /* a refresh of the place that crossed the hand-over */
    assert_false(top.claim.brief);
    assert_int_equal(top.claim.valid_until, epoch + NANOS_OF_MS(420) + TTL - DRIFT);
}

static void an_extend_by_the_caller_of_a_brief_grant_asks_for_the_ttl_at_least(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    struct table_top longer = top;
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 300}, 410);
    assert_int_equal(top.move.ttl, TTL);
    send(&longer, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 3000}, 410);
    assert_int_equal(longer.move.ttl, NANOS_OF_MS(3000));
}

static void
a_brief_grant_with_hardly_any_time_left_is_extended_while_a_second_try_still_fits(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = true}, 700, 630);
    assert_true(top.claim.valid_until - (epoch + NANOS_OF_MS(630)) ==
                NANOS_OF_MS(61)); /* little more than an op_timeout of 50 */
    expect_wake_near(&top, 630 + 61 / 8);
}

static void a_leave_that_finds_a_brief_grant_holds_it_and_extends_it(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    tell(&top, REPLY_QUEUED, 1);
    timer(&top, 100);
    struct engine_reply granted = {
        .kind = REPLY_GRANTED, .good = NANOS_OF_MS(302), .token = 9, .brief = true};
    granted.asked_at = epoch + NANOS_OF_MS(100);
    tell_full(&top, granted, 110);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
    expect_wake_near(&top, 110 + (302 - 6 - 10) / 8);
}

/* ---- Answers to requests that were overtaken ---- */

static struct engine_reply answer_of(enum reply_kind kind, int64_t asked_ms)
{
    return (struct engine_reply){.kind = kind,
                                 .asked_at = epoch + NANOS_OF_MS(asked_ms),
                                 .status = HF_UNAVAILABLE,
                                 .retry_at = TIME_NEVER};
}

static void only_its_own_answer_ends_a_release_not_that_of_the_request_before(void **state)
{
    (void)state;
    static const enum reply_kind cues[] = {REPLY_NOT_HELD, REPLY_RELEASED, REPLY_UNKNOWN,
                                           REPLY_FAILED,   REPLY_EXTENDED, REPLY_BUSY};
    for (size_t i = 0; i < sizeof cues / sizeof *cues; i++) {
        struct table_top top = held();
        timer(&top, 334);
        wish(&top, INPUT_RELEASE, 335);
        nanos wake_at = top.move.wake_at;
        tell_full(&top, answer_of(cues[i], 334), 336);
        expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
        assert_int_equal(top.move.wake_at, wake_at);
        tell_full(&top, answer_of(REPLY_RELEASED, 335), 337);
        expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
    }
}

static void an_answer_of_the_same_nanosecond_counts_for_the_newer_request(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 10);
    wish(&top, INPUT_RELEASE, 10);
    tell_full(&top, answer_of(REPLY_RELEASED, 10), 11);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);

    top = held();
    wish(&top, INPUT_EXTEND, 10);
    struct engine_reply extended = {
        .kind = REPLY_EXTENDED, .asked_at = epoch + NANOS_OF_MS(10), .good = TTL, .token = 9};
    tell_full(&top, extended, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
}

/* ---- The outcome of a wait in which the engine was away ---- */

static void an_ask_in_flight_at_the_deadline_ends_with_the_failure_that_came_before(void **state)
{
    (void)state;
    struct table_top top = asking(200);
    tell(&top, REPLY_FAILED, 1);
    timer(&top, 100);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    timer(&top, 200);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_FAILED, 201);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_UNAVAILABLE);

    top = asking(200);
    tell(&top, REPLY_UNKNOWN, 50);
    timer(&top, 150);
    timer(&top, 200);
    tell(&top, REPLY_RELEASED, 201);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_IN_DOUBT);
}

static void a_failure_counts_no_more_once_the_engine_said_busy_or_queued(void **state)
{
    (void)state;
    static const enum reply_kind cues[] = {REPLY_BUSY, REPLY_QUEUED};
    for (size_t i = 0; i < 2; i++) {
        struct table_top top = asking(500);
        tell(&top, REPLY_FAILED, 1);
        timer(&top, 100);
        tell(&top, cues[i], 101);
        tell(&top, REPLY_NOTIFY, 102);
        expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
        timer(&top, 500);
        tell(&top, REPLY_RELEASED, 501);
        expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_TIMEOUT);
    }
}

static void who_had_a_place_in_the_queue_times_out_whatever_failed_behind_it(void **state)
{
    (void)state;
    struct table_top top = asking(200);
    tell(&top, REPLY_QUEUED, 1);
    tell(&top, REPLY_UNKNOWN, 50);
    timer(&top, 200);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_TIMEOUT);
}

static void a_refusal_for_good_ends_a_wait_at_once_and_one_without_wait_is_its_outcome(void **state)
{
    (void)state;
    static const hf_status for_good[] = {HF_DENIED,  HF_CONFIG,  HF_MISMATCH,
                                         HF_INVALID, HF_TOO_BIG, HF_UNSUPPORTED};
    static const hf_status for_now[] = {HF_UNAVAILABLE, HF_FULL, HF_NO_QUORUM, HF_NOT_REPLICATED};
    for (size_t i = 0; i < sizeof for_good / sizeof *for_good; i++) {
        struct table_top top = asking(5000);
        tell_full(&top, (struct engine_reply){.kind = REPLY_FAILED, .status = for_good[i]}, 1);
        expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, for_good[i]);
    }
    for (size_t i = 0; i < sizeof for_now / sizeof *for_now; i++) {
        struct table_top waits = asking(5000), top = asking(0);
        tell_full(&waits, (struct engine_reply){.kind = REPLY_FAILED, .status = for_now[i]}, 1);
        expect(&waits, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
        tell_full(&top, (struct engine_reply){.kind = REPLY_FAILED, .status = for_now[i]}, 1);
        expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, for_now[i]);
    }
}

/* What was done of it is taken back; it is not asked for again, also where that would make sense
 * after a refusal. */
static void an_ask_that_failed_half_way_ends_and_is_taken_back_with_a_tombstone(void **state)
{
    (void)state;
    static const hf_status why[] = {HF_DENIED, HF_FULL, HF_UNAVAILABLE, HF_INTERNAL};
    for (size_t i = 0; i < sizeof why / sizeof *why; i++) {
        struct table_top top = asking(5000), paused = asking(5000);
        struct engine_reply reply = {
            .kind = REPLY_FAILED, .status = why[i], .outcome_unknown = true, .asked_at = epoch};
        tell_full(&top, reply, 1);
        expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, why[i]);
        assert_true(top.move.may_be_in_flight);
        tell(&paused, REPLY_BUSY, 1);
        expect(&paused, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
        tell_full(&paused, reply, 2);
        expect(&paused, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, why[i]);
    }
}

/* A refresh and the message of the hand-over crossed: the caller has released by the time the
 * refresh says that it is ours. The release was sent behind it, and its answer is the caller's. */
static void a_grant_that_the_callers_release_has_overtaken_is_not_given_back_again(void **state)
{
    (void)state;
    struct table_top top = handed_over((struct claim_terms){.auto_renew = false}, 700, 400);
    wish(&top, INPUT_RELEASE, 410);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 399, 411);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_RELEASED, 412);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
}

/* Broken, while the look of a moment before was still under way: that got it a place in the queue.
 */
static void
a_hold_that_had_waited_and_is_gone_gives_up_the_place_that_a_late_look_may_have_got_it(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_QUEUED, 1);
    tell_good(&top, REPLY_GRANTED, 2, 3);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
    tell(&top, REPLY_QUEUED, 4);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_NOT_HELD, 5);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_brief_grant_is_extended_to_the_whole_ttl_after_an_eighth_of_what_is_left_even_without_auto_renewal),
        cmocka_unit_test(
            an_extend_of_a_brief_grant_that_fails_is_tried_again_until_one_comes_through),
        cmocka_unit_test(an_ask_that_failed_half_way_ends_and_is_taken_back_with_a_tombstone),
        cmocka_unit_test(a_brief_grant_that_is_released_before_is_not_extended),
        cmocka_unit_test(
            a_check_does_not_count_as_the_extend_of_a_brief_grant_and_a_second_grant_for_the_ttl_does),
        cmocka_unit_test(an_extend_by_the_caller_of_a_brief_grant_asks_for_the_ttl_at_least),
        cmocka_unit_test(
            a_brief_grant_with_hardly_any_time_left_is_extended_while_a_second_try_still_fits),
        cmocka_unit_test(a_leave_that_finds_a_brief_grant_holds_it_and_extends_it),
        cmocka_unit_test(only_its_own_answer_ends_a_release_not_that_of_the_request_before),
        cmocka_unit_test(an_answer_of_the_same_nanosecond_counts_for_the_newer_request),
        cmocka_unit_test(an_ask_in_flight_at_the_deadline_ends_with_the_failure_that_came_before),
        cmocka_unit_test(a_failure_counts_no_more_once_the_engine_said_busy_or_queued),
        cmocka_unit_test(who_had_a_place_in_the_queue_times_out_whatever_failed_behind_it),
        cmocka_unit_test(
            a_refusal_for_good_ends_a_wait_at_once_and_one_without_wait_is_its_outcome),
        cmocka_unit_test(a_grant_that_the_callers_release_has_overtaken_is_not_given_back_again),
        cmocka_unit_test(
            a_hold_that_had_waited_and_is_gone_gives_up_the_place_that_a_late_look_may_have_got_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
