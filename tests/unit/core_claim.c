/* core_claim.c - tests of the claim's rules one by one: asking, queueing, leaving. */
#include "table_top.h"

#include "core/retry.h"

/* ---- Asking -------------------------------------------------------------------------------------------------- */

static void a_grant_is_good_from_the_request_that_was_executed_less_the_drift(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    expect_wake(&top, 5000);
    tell_good(&top, HF_N_GRANTED, 0, 400);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + TTL - DRIFT);
    assert_int_equal(top.claim.token, 9);
    assert_int_equal(top.claim.granted_at, epoch + HF_MS(400));
    assert_true(hf_claim_valid(&top.claim, epoch + TTL - DRIFT - 1));
    assert_false(hf_claim_valid(&top.claim, epoch + TTL - DRIFT));
}

static void a_grant_without_time_left_is_never_reported_but_asked_for_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell_good(&top, HF_N_GRANTED, 0, 988);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, 0);
    timer(&top, 1100);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 1100, 1101);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
}

static void a_grant_without_time_left_that_came_after_the_wait_is_given_back(void **state)
{
    (void)state;
    struct table_top top = asking(900);
    tell_good(&top, HF_N_GRANTED, 0, 988);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
    assert_true(top.move.doubt);
}

static void busy_is_an_answer_for_whoever_does_not_wait(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    expect_wake(&top, 100); /* two op_timeouts: the one ask gets the time for its answer */
    timer(&top, 0);
    expect(&top, HF_S_ASKING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 3);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_BUSY);
    expect_wake(&top, -1);
}

static void an_ask_without_wait_and_without_answer_leaves_after_two_op_timeouts(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    timer(&top, 100);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
}

static void busy_before_the_deadline_pauses_with_jitter_and_asks_again_until_the_deadline(void **state)
{
    (void)state;
    struct table_top top = asking(60);
    tell(&top, HF_N_BUSY, 1);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.wake_at, epoch + HF_MS(1) + hf_retry_pause(&top.claim.sheet->t, 0, 1u << 31));
    timer(&top, 40);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 50);
    expect_wake(&top, 60); /* the second pause would be longer */
    timer(&top, 60);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_TIMEOUT);
}

static void a_pause_ends_when_the_hold_ahead_ends_but_not_below_the_floor(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    struct hf_news busy = {.cue = HF_N_BUSY, .retry_at = epoch + HF_MS(8)};
    tell_full(&top, busy, 1);
    expect_wake(&top, 8);
    timer(&top, 8);
    tell_full(&top, busy, 9);
    expect_wake(&top, 10);
}

static void a_hint_ends_a_pause_and_one_that_crossed_the_answer_counts_too(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_BUSY, 1);
    tell(&top, HF_N_HINT, 2);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_HINT, 3);
    expect(&top, HF_S_ASKING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 4);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 5);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void no_answer_means_doubt_and_the_same_attempt_asks_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_CUT, 50);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
    timer(&top, 200);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 200, 201);
    wish(&top, HF_I_RELEASE, 300);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    assert_true(top.move.doubt); /* the first ask may still be under way */
}

static void no_answer_without_a_wait_is_in_doubt_and_taken_back_in_the_background(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    tell(&top, HF_N_CUT, 50);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_IN_DOUBT);
    assert_true(top.move.doubt);
    tell(&top, HF_N_CUT, 100);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
    expect_wake(&top, 150);
    timer(&top, 150);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_GONE, 151);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void busy_after_a_doubt_ends_the_call_but_not_the_ghost(void **state)
{
    (void)state;
    struct table_top top = asking(60);
    tell(&top, HF_N_CUT, 10);
    timer(&top, 59);
    tell(&top, HF_N_BUSY, 61);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
    assert_true(top.move.doubt);
}

static void a_refusal_that_may_pass_is_tried_again_and_one_that_cannot_ends_the_call(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_FAILED, 1);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
    timer(&top, 100);
    tell_full(&top, (struct hf_news){.cue = HF_N_FAILED, .status = HF_FULL}, 101);
    expect(&top, HF_S_PAUSED, HF_V_NONE, HF_R_NONE, HF_OK);
    timer(&top, 300);
    tell_full(&top, (struct hf_news){.cue = HF_N_FAILED, .status = HF_MISMATCH}, 301);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_MISMATCH);

    top = asking(0);
    tell(&top, HF_N_FAILED, 1);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_UNAVAILABLE);
}

static void a_pause_after_a_failure_ends_when_the_way_may_be_open(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    for (int64_t at = 1; at < 2000; at += 250) { /* the pauses grow beyond that */
        struct hf_news news = {.cue = HF_N_FAILED, .status = HF_UNAVAILABLE, .retry_at = epoch + HF_MS(at + 40)};
        tell_full(&top, news, at);
        assert_true(top.move.wake_at <= news.retry_at);
        timer(&top, at + 40);
        expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    }
}

static void a_wait_that_ends_while_the_engine_is_away_says_that_rather_than_time_out(void **state)
{
    (void)state;
    struct table_top top = asking(20);
    tell(&top, HF_N_FAILED, 1);
    timer(&top, 20);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_UNAVAILABLE);
}

/* ---- Queueing ------------------------------------------------------------------------------------------------ */

static void a_place_in_the_queue_is_reported_once_and_refreshed_when_the_engine_says_so(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    struct hf_news queued = {.cue = HF_N_QUEUED, .retry_at = epoch + HF_MS(700), .place = 2};
    tell_full(&top, queued, 1);
    expect(&top, HF_S_QUEUED, HF_V_NONE, HF_R_QUEUED, HF_OK);
    expect_wake(&top, 700);
    timer(&top, 700);
    expect(&top, HF_S_ASKING, HF_V_ACQUIRE, HF_R_NONE, HF_OK);
    queued.retry_at = HF_NEVER;
    tell_full(&top, queued, 701);
    expect(&top, HF_S_QUEUED, HF_V_NONE, HF_R_NONE, HF_OK);
    expect_wake(&top, 5000);
    tell_good(&top, HF_N_GRANTED, 700, 900);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + HF_MS(700) + TTL - DRIFT);
}

static void a_wait_that_is_over_leaves_and_only_the_engine_says_whether_the_grant_came_first(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    tell(&top, HF_N_QUEUED, 1);
    timer(&top, 100);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_QUEUED, 101);
    tell(&top, HF_N_BUSY, 101);
    tell(&top, HF_N_HINT, 101);
    expect(&top, HF_S_LEAVING, HF_V_NONE, HF_R_NONE, HF_OK);
    struct table_top other = top;
    tell(&top, HF_N_RELEASED, 102);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_TIMEOUT);
    tell_good(&other, HF_N_GRANTED, 0, 102); /* the ask's own: what leaving makes of it is yet to be said */
    expect(&other, HF_S_LEAVING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_good(&other, HF_N_GRANTED, 100, 103);
    expect(&other, HF_S_HELD, HF_V_NONE, HF_R_GRANTED, HF_OK);
}

/* An engine whose leave gives back what was granted (replicas=K, a quorum). */
static void a_grant_that_is_read_after_the_leave_was_sent_is_none(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 0, 101);
    tell(&top, HF_N_RELEASED, 102);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_TIMEOUT);
}

static void a_cancelled_wait_gives_back_the_grant_that_came_first(void **state)
{
    (void)state;
    struct table_top top = asking(-1);
    expect_wake(&top, -1);
    tell(&top, HF_N_QUEUED, 1);
    wish(&top, HF_I_CANCEL, 50);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 50, 51);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_CANCELLED);
    tell(&top, HF_N_RELEASED, 52);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void a_cancel_during_a_time_out_changes_the_outcome_and_unwants_the_grant(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    wish(&top, HF_I_CANCEL, 101);
    expect(&top, HF_S_LEAVING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 100, 102);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_CANCELLED);
}

static void a_cancelled_pause_ends_at_once_unless_something_may_be_under_way(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_BUSY, 1);
    wish(&top, HF_I_CANCEL, 2);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_CANCELLED);

    top = asking(5000);
    tell(&top, HF_N_CUT, 1);
    wish(&top, HF_I_CANCEL, 2);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
    assert_true(top.move.doubt);

    top = asking(5000); /* a refused refresh leaves the place in the queue as it was */
    tell(&top, HF_N_QUEUED, 1);
    tell(&top, HF_N_FAILED, 2);
    wish(&top, HF_I_CANCEL, 3);
    expect(&top, HF_S_LEAVING, HF_V_LEAVE, HF_R_NONE, HF_OK);
}

static void a_leave_without_answer_ends_the_call_and_is_made_good_in_the_background(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    expect_wake(&top, 200);
    struct table_top other = top;
    tell(&top, HF_N_CUT, 150);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
    assert_true(top.move.doubt);
    timer(&other, 200);
    expect(&other, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
    timer(&other, 60200);
    expect(&other, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

/* ---- Everything at once, and from elsewhere ------------------------------------------------------------------ */

static void when_the_engines_state_is_gone_holds_are_lost_and_waits_denied(void **state)
{
    (void)state;
    struct hf_event gone = {.in = HF_I_LOST_ALL, .status = HF_DAMAGED};
    struct table_top top = held();
    send(&top, gone, 10);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_DAMAGED);
    top = asking(5000);
    tell(&top, HF_N_QUEUED, 1);
    send(&top, gone, 10);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_DAMAGED);
    top = asking(5000);
    wish(&top, HF_I_CANCEL, 1);
    send(&top, gone, 10);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_DENIED, HF_CANCELLED);
    top = held();
    wish(&top, HF_I_RELEASE, 1);
    send(&top, gone, 10);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_NOT_HELD);
}

static void an_adopted_hold_is_held_for_what_is_left_of_it(void **state)
{
    (void)state;
    struct table_top top = {0};
    struct hf_sheet sheet;
    struct hf_claim_terms terms = {.auto_renew = true, .deadline = HF_NEVER};
    hf_sheet_fill(&sheet, 1000, &limits, &(struct hf_timing_wishes){0});
    hf_claim_init(&top.claim, &terms, &sheet);
    hf_claim_adopt(&top.claim, epoch, epoch + HF_MS(500), 44);
    assert_int_equal(top.claim.token, 44);
    assert_true(hf_claim_valid(&top.claim, epoch + HF_MS(499)));
    timer(&top, 0);
    assert_in_range(top.move.wake_at, epoch + HF_MS(160), epoch + HF_MS(175)); /* a third of what is left */
    timer(&top, 180);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_is_good_from_the_request_that_was_executed_less_the_drift),
        cmocka_unit_test(a_grant_without_time_left_is_never_reported_but_asked_for_again),
        cmocka_unit_test(a_grant_without_time_left_that_came_after_the_wait_is_given_back),
        cmocka_unit_test(busy_is_an_answer_for_whoever_does_not_wait),
        cmocka_unit_test(an_ask_without_wait_and_without_answer_leaves_after_two_op_timeouts),
        cmocka_unit_test(busy_before_the_deadline_pauses_with_jitter_and_asks_again_until_the_deadline),
        cmocka_unit_test(a_pause_ends_when_the_hold_ahead_ends_but_not_below_the_floor),
        cmocka_unit_test(a_hint_ends_a_pause_and_one_that_crossed_the_answer_counts_too),
        cmocka_unit_test(no_answer_means_doubt_and_the_same_attempt_asks_again),
        cmocka_unit_test(no_answer_without_a_wait_is_in_doubt_and_taken_back_in_the_background),
        cmocka_unit_test(busy_after_a_doubt_ends_the_call_but_not_the_ghost),
        cmocka_unit_test(a_refusal_that_may_pass_is_tried_again_and_one_that_cannot_ends_the_call),
        cmocka_unit_test(a_pause_after_a_failure_ends_when_the_way_may_be_open),
        cmocka_unit_test(a_wait_that_ends_while_the_engine_is_away_says_that_rather_than_time_out),
        cmocka_unit_test(a_place_in_the_queue_is_reported_once_and_refreshed_when_the_engine_says_so),
        cmocka_unit_test(a_wait_that_is_over_leaves_and_only_the_engine_says_whether_the_grant_came_first),
        cmocka_unit_test(a_grant_that_is_read_after_the_leave_was_sent_is_none),
        cmocka_unit_test(a_cancelled_wait_gives_back_the_grant_that_came_first),
        cmocka_unit_test(a_cancel_during_a_time_out_changes_the_outcome_and_unwants_the_grant),
        cmocka_unit_test(a_cancelled_pause_ends_at_once_unless_something_may_be_under_way),
        cmocka_unit_test(a_leave_without_answer_ends_the_call_and_is_made_good_in_the_background),
        cmocka_unit_test(when_the_engines_state_is_gone_holds_are_lost_and_waits_denied),
        cmocka_unit_test(an_adopted_hold_is_held_for_what_is_left_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
