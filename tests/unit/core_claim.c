/* core_claim.c - tests of the claim's rules one by one: asking, queueing, leaving. */
#include "claim_fixture.h"

#include "core/backoff.h"

/* ---- Asking ---- */

static void a_grant_is_good_from_the_request_that_was_executed_less_the_drift(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    expect_wake(&top, 5000);
    tell_good(&top, REPLY_GRANTED, 0, 400);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + TTL - DRIFT);
    assert_int_equal(top.claim.token, 9);
    assert_int_equal(top.claim.granted_at, epoch + NANOS_OF_MS(400));
    assert_true(claim_valid(&top.claim, epoch + TTL - DRIFT - 1));
    assert_false(claim_valid(&top.claim, epoch + TTL - DRIFT));
}

static void a_grant_without_time_left_is_never_reported_but_asked_for_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell_good(&top, REPLY_GRANTED, 0, 988);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, 0);
    timer(&top, 1100);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 1100, 1101);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
}

static void a_grant_without_time_left_that_came_after_the_wait_is_given_back(void **state)
{
    (void)state;
    struct table_top top = asking(900);
    tell_good(&top, REPLY_GRANTED, 0, 988);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_TIMEOUT);
    assert_true(top.move.may_be_in_flight);
}

static void busy_is_an_answer_for_whoever_does_not_wait(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    expect_wake(&top, 500); /* the one ask gets the time for its answer, connecting included */
    timer(&top, 0);
    expect(&top, CLAIM_ACQUIRING, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 3);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_BUSY);
    expect_wake(&top, -1);
}

static void an_ask_without_wait_hears_only_what_the_engine_says_at_once_to_its_leave(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    timer(&top, 500);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    expect_wake(&top, 500);
    timer(&top, 500);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    assert_true(top.move.may_be_in_flight);
}

/* A connection is slower than was thought when the claim began: its sheet follows. */
static void a_claim_follows_what_requests_take(void **state)
{
    (void)state;
    struct timing_sheet sheet;
    struct claim_terms terms = {.deadline = epoch + NANOS_OF_MS(100)};
    struct table_top top;
    timing_sheet_fill(&sheet, TTL / MS, &limits, &(struct timing_overrides){0});
    claim_init(&top.claim, &terms, &sheet);
    wish(&top, INPUT_START, 0);
    timing_sheet_adapt(&sheet, TTL / MS, &(struct timing_overrides){.takes = NANOS_OF_MS(120)});
    timer(&top, 100);
    expect_wake(&top, 220);
    timing_sheet_adapt(&sheet, TTL / MS, &(struct timing_overrides){.takes = NANOS_OF_MS(900)});
    timer(&top, 220);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    expect_wake(&top, 620); /* a fifth of the ttl is the most, and a release has two */
}

static void
busy_before_the_deadline_pauses_with_jitter_and_asks_again_until_the_deadline(void **state)
{
    (void)state;
    struct table_top top = asking(60);
    tell(&top, REPLY_BUSY, 1);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.wake_at,
                     epoch + NANOS_OF_MS(1) + backoff_pause(&top.claim.sheet->t, 0, 1u << 31));
    timer(&top, 40);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 50);
    expect_wake(&top, 60); /* the second pause would be longer */
    timer(&top, 60);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_TIMEOUT);
}

static void a_pause_ends_when_the_hold_ahead_ends_but_not_below_the_floor(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    struct engine_reply busy = {.kind = REPLY_BUSY, .retry_at = epoch + NANOS_OF_MS(8)};
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
    tell(&top, REPLY_BUSY, 1);
    tell(&top, REPLY_NOTIFY, 2);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_NOTIFY, 3);
    expect(&top, CLAIM_ACQUIRING, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 4);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 5);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
}

static void no_answer_means_doubt_and_the_same_attempt_asks_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_UNKNOWN, 50);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
    timer(&top, 200);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 200, 201);
    wish(&top, INPUT_RELEASE, 300);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    assert_true(top.move.may_be_in_flight); /* the first ask may still be under way */
}

static void no_answer_without_a_wait_is_in_doubt_and_taken_back_in_the_background(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    tell(&top, REPLY_UNKNOWN, 50);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    assert_true(top.move.may_be_in_flight);
    tell(&top, REPLY_UNKNOWN, 100);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
    expect_wake(&top, 150);
    timer(&top, 150);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_NOT_HELD, 151);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

static void busy_after_a_doubt_ends_the_call_but_not_the_ghost(void **state)
{
    (void)state;
    struct table_top top = asking(60);
    tell(&top, REPLY_UNKNOWN, 10);
    timer(&top, 59);
    tell(&top, REPLY_BUSY, 61);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_TIMEOUT);
    assert_true(top.move.may_be_in_flight);
}

static void a_refusal_that_may_pass_is_tried_again_and_one_that_cannot_ends_the_call(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_FAILED, 1);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
    timer(&top, 100);
    tell_full(&top, (struct engine_reply){.kind = REPLY_FAILED, .status = HF_FULL}, 101);
    expect(&top, CLAIM_PAUSED, OP_NONE, REPORT_NONE, HF_OK);
    timer(&top, 300);
    tell_full(&top, (struct engine_reply){.kind = REPLY_FAILED, .status = HF_MISMATCH}, 301);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_MISMATCH);

    top = asking(0);
    tell(&top, REPLY_FAILED, 1);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_UNAVAILABLE);
}

static void a_pause_after_a_failure_ends_when_the_way_may_be_open(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    for (int64_t at = 1; at < 2000; at += 250) { /* the pauses grow beyond that */
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .status = HF_UNAVAILABLE,
                                     .retry_at = epoch + NANOS_OF_MS(at + 40)};
        tell_full(&top, reply, at);
        assert_true(top.move.wake_at <= reply.retry_at);
        timer(&top, at + 40);
        expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    }
}

static void a_wait_that_ends_while_the_engine_is_away_says_that_rather_than_time_out(void **state)
{
    (void)state;
    struct table_top top = asking(20);
    tell(&top, REPLY_FAILED, 1);
    timer(&top, 20);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_UNAVAILABLE);
}

/* ---- Queueing ---- */

static void
a_place_in_the_queue_is_reported_once_and_refreshed_when_the_engine_says_so(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    struct engine_reply queued = {
        .kind = REPLY_QUEUED, .retry_at = epoch + NANOS_OF_MS(700), .place = 2};
    tell_full(&top, queued, 1);
    expect(&top, CLAIM_QUEUED, OP_NONE, REPORT_QUEUED, HF_OK);
    expect_wake(&top, 700);
    timer(&top, 700);
    expect(&top, CLAIM_ACQUIRING, OP_ACQUIRE, REPORT_NONE, HF_OK);
    queued.retry_at = TIME_NEVER;
    tell_full(&top, queued, 701);
    expect(&top, CLAIM_QUEUED, OP_NONE, REPORT_NONE, HF_OK);
    expect_wake(&top, 5000);
    tell_good(&top, REPLY_GRANTED, 700, 900);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + NANOS_OF_MS(700) + TTL - DRIFT);
}

static void
a_wait_that_is_over_leaves_and_only_the_engine_says_whether_the_grant_came_first(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    tell(&top, REPLY_QUEUED, 1);
    timer(&top, 100);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_QUEUED, 101);
    tell(&top, REPLY_BUSY, 101);
    tell(&top, REPLY_NOTIFY, 101);
    expect(&top, CLAIM_LEAVING, OP_NONE, REPORT_NONE, HF_OK);
    struct table_top other = top;
    tell(&top, REPLY_RELEASED, 102);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_TIMEOUT);
    tell_good(&other, REPLY_GRANTED, 0,
              102); /* the ask's own: what leaving makes of it is yet to be said */
    expect(&other, CLAIM_LEAVING, OP_NONE, REPORT_NONE, HF_OK);
    tell_good(&other, REPLY_GRANTED, 100, 103);
    expect(&other, CLAIM_HELD, OP_NONE, REPORT_GRANTED, HF_OK);
}

/* An engine whose leave gives back what was granted (replicas=K, a quorum). */
static void a_grant_that_is_read_after_the_leave_was_sent_is_none(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 0, 101);
    tell(&top, REPLY_RELEASED, 102);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_TIMEOUT);
}

static void a_cancelled_wait_gives_back_the_grant_that_came_first(void **state)
{
    (void)state;
    struct table_top top = asking(-1);
    expect_wake(&top, -1);
    tell(&top, REPLY_QUEUED, 1);
    wish(&top, INPUT_CANCEL, 50);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 50, 51);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_CANCELLED);
    tell(&top, REPLY_RELEASED, 52);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

static void a_cancel_during_a_time_out_changes_the_outcome_and_unwants_the_grant(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    wish(&top, INPUT_CANCEL, 101);
    expect(&top, CLAIM_LEAVING, OP_NONE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 100, 102);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_CANCELLED);
}

static void a_cancelled_pause_ends_at_once_unless_something_may_be_under_way(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_BUSY, 1);
    wish(&top, INPUT_CANCEL, 2);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_CANCELLED);

    top = asking(5000);
    tell(&top, REPLY_UNKNOWN, 1);
    wish(&top, INPUT_CANCEL, 2);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
    assert_true(top.move.may_be_in_flight);

    top = asking(5000); /* a refused refresh leaves the place in the queue as it was */
    tell(&top, REPLY_QUEUED, 1);
    tell(&top, REPLY_FAILED, 2);
    wish(&top, INPUT_CANCEL, 3);
    expect(&top, CLAIM_LEAVING, OP_LEAVE, REPORT_NONE, HF_OK);
}

static void a_leave_without_answer_ends_the_call_and_is_made_good_in_the_background(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 100);
    expect_wake(&top, 150); /* within one op_timeout of its time */
    struct table_top other = top;
    tell(&top, REPLY_UNKNOWN, 130);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    assert_true(top.move.may_be_in_flight);
    timer(&other, 150);
    expect(&other, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    timer(&other, 60200);
    expect(&other, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

/* TIMEOUT says that others hold the lock. A silent server has not said so. */
static void a_wait_times_out_only_if_the_engine_said_that_others_hold_it(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    tell(&top, REPLY_QUEUED, 1);
    timer(&top, 100);
    tell(&top, REPLY_UNKNOWN, 130);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_TIMEOUT);

    top = asking(100);
    timer(&top, 100);
    tell(&top, REPLY_NOT_HELD, 110); /* the engine answers the leave, so it lives */
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_TIMEOUT);

    top = asking(100);
    timer(&top, 100);
    timer(&top, 150);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
}

/* ---- Everything at once, and from elsewhere ---- */

static void when_the_engines_state_is_gone_holds_are_lost_and_waits_denied(void **state)
{
    (void)state;
    struct claim_event gone = {.in = INPUT_LOST_ALL, .status = HF_DAMAGED};
    struct table_top top = held();
    send(&top, gone, 10);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_DAMAGED);
    top = asking(5000);
    tell(&top, REPLY_QUEUED, 1);
    send(&top, gone, 10);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_DAMAGED);
    top = asking(5000);
    wish(&top, INPUT_CANCEL, 1);
    send(&top, gone, 10);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_DENIED, HF_CANCELLED);
    top = held();
    wish(&top, INPUT_RELEASE, 1);
    send(&top, gone, 10);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_NOT_HELD);
}

static void an_adopted_hold_is_held_for_what_is_left_of_it(void **state)
{
    (void)state;
    struct table_top top = {0};
    struct timing_sheet sheet;
    struct claim_terms terms = {.auto_renew = true, .deadline = TIME_NEVER};
    timing_sheet_fill(&sheet, 1000, &limits, &(struct timing_overrides){0});
    claim_init(&top.claim, &terms, &sheet);
    claim_adopt(&top.claim, epoch, epoch + NANOS_OF_MS(500), 44, false);
    assert_int_equal(top.claim.token, 44);
    assert_true(claim_valid(&top.claim, epoch + NANOS_OF_MS(499)));
    timer(&top, 0);
    assert_in_range(top.move.wake_at, epoch + NANOS_OF_MS(160),
                    epoch + NANOS_OF_MS(175)); /* a third of what is left */
    timer(&top, 180);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
}

/* A handle is used again and again, and claim_init() sets its fields one by one. */
static void a_claim_in_used_memory_begins_like_a_new_one(void **state)
{
    static struct timing_sheet sheet;
    struct claim_terms terms = {.auto_renew = true, .deadline = epoch + TTL, .max_hold_ms = 5000};
    struct claim used, fresh;
    (void)state;
    memset(&used, 1, sizeof used);
    memset(&fresh, 0, sizeof fresh);
    claim_init(&used, &terms, &sheet);
    claim_init(&fresh, &terms, &sheet);

#define SAME(field) assert_int_equal(used.field, fresh.field)
    SAME(state), SAME(auto_renew), SAME(may_be_in_flight), SAME(cancelled), SAME(queued);
    SAME(notified), SAME(asked_extend), SAME(asked_release), SAME(warned), SAME(token_may_rise);
    SAME(is_text), SAME(is_settled), SAME(brief), SAME(in_flight), SAME(convert_next),
        SAME(answered), SAME(outcome), SAME(tries);
    SAME(extend_ms), SAME(deadline), SAME(max_hold), SAME(started_at), SAME(granted_at);
    SAME(ended_at), SAME(asked_at), SAME(act_at), SAME(warn_at), SAME(give_up_at);
    SAME(downgrade_unknown_until), SAME(valid_until), SAME(token);
    assert_ptr_equal(used.sheet, fresh.sheet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_is_good_from_the_request_that_was_executed_less_the_drift),
        cmocka_unit_test(a_grant_without_time_left_is_never_reported_but_asked_for_again),
        cmocka_unit_test(a_grant_without_time_left_that_came_after_the_wait_is_given_back),
        cmocka_unit_test(busy_is_an_answer_for_whoever_does_not_wait),
        cmocka_unit_test(an_ask_without_wait_hears_only_what_the_engine_says_at_once_to_its_leave),
        cmocka_unit_test(a_claim_follows_what_requests_take),
        cmocka_unit_test(
            busy_before_the_deadline_pauses_with_jitter_and_asks_again_until_the_deadline),
        cmocka_unit_test(a_pause_ends_when_the_hold_ahead_ends_but_not_below_the_floor),
        cmocka_unit_test(a_hint_ends_a_pause_and_one_that_crossed_the_answer_counts_too),
        cmocka_unit_test(no_answer_means_doubt_and_the_same_attempt_asks_again),
        cmocka_unit_test(no_answer_without_a_wait_is_in_doubt_and_taken_back_in_the_background),
        cmocka_unit_test(busy_after_a_doubt_ends_the_call_but_not_the_ghost),
        cmocka_unit_test(a_refusal_that_may_pass_is_tried_again_and_one_that_cannot_ends_the_call),
        cmocka_unit_test(a_pause_after_a_failure_ends_when_the_way_may_be_open),
        cmocka_unit_test(a_wait_that_ends_while_the_engine_is_away_says_that_rather_than_time_out),
        cmocka_unit_test(
            a_place_in_the_queue_is_reported_once_and_refreshed_when_the_engine_says_so),
        cmocka_unit_test(
            a_wait_that_is_over_leaves_and_only_the_engine_says_whether_the_grant_came_first),
        cmocka_unit_test(a_grant_that_is_read_after_the_leave_was_sent_is_none),
        cmocka_unit_test(a_cancelled_wait_gives_back_the_grant_that_came_first),
        cmocka_unit_test(a_cancel_during_a_time_out_changes_the_outcome_and_unwants_the_grant),
        cmocka_unit_test(a_cancelled_pause_ends_at_once_unless_something_may_be_under_way),
        cmocka_unit_test(a_leave_without_answer_ends_the_call_and_is_made_good_in_the_background),
        cmocka_unit_test(a_wait_times_out_only_if_the_engine_said_that_others_hold_it),
        cmocka_unit_test(when_the_engines_state_is_gone_holds_are_lost_and_waits_denied),
        cmocka_unit_test(an_adopted_hold_is_held_for_what_is_left_of_it),
        cmocka_unit_test(a_claim_in_used_memory_begins_like_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
