/* core_claim_hold.c - tests of the claim's rules one by one: renewing, losing, releasing. */
#include "claim_fixture.h"

/* ---- Holding ---- */

static void a_hold_is_renewed_after_a_third_of_its_ttl_and_counts_from_that_request(void **state)
{
    (void)state;
    struct table_top top = held();
    assert_int_equal(top.move.wake_at, epoch + TTL / 3);
    timer(&top, 334);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    assert_true(claim_valid(&top.claim, epoch + NANOS_OF_MS(334)));
    tell_good(&top, REPLY_EXTENDED, 334, 600);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + NANOS_OF_MS(334) + TTL - DRIFT);
    assert_int_equal(top.move.wake_at, epoch + NANOS_OF_MS(334) + TTL / 3);
}

static void
a_failed_renewal_is_tried_every_op_timeout_warned_of_once_and_lost_by_our_own_clock(void **state)
{
    (void)state;
    struct table_top top = held();
    unsigned warned = 0, tried = 0;
    for (int64_t at = 334; at < 988; at++) {
        if (top.move.wake_at > epoch + NANOS_OF_MS(at))
            continue;
        timer(&top, at);
        warned += top.move.report == REPORT_WARN;
        if (top.move.verb == OP_EXTEND) {
            tried++;
            tell(&top, tried % 2 ? REPLY_UNKNOWN : REPLY_FAILED, at);
        }
        assert_int_equal(top.claim.state, CLAIM_HELD);
    }
    assert_int_equal(warned, 1);
    assert_in_range(tried, 12, 14);
    expect_wake(&top, 988);
    timer(&top, 988);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    assert_true(top.move.may_be_in_flight);
    assert_false(claim_valid(&top.claim, epoch));
    tell(&top, REPLY_NOT_HELD, 990);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

/* Another handle of the same text may have extended the hold. */
static void a_hold_that_others_have_as_text_is_lost_by_time_without_a_release(void **state)
{
    (void)state;
    struct table_top top = held();
    claim_export(&top.claim);
    timer(&top, 334);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    timer(&top, 988);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);

    top = held();
    claim_export(&top.claim);
    wish(&top, INPUT_EXTEND, 988);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);

    top = held(); /* upgraded by another handle */
    claim_export(&top.claim);
    timer(&top, 334);
    tell_full(
        &top,
        (struct engine_reply){
            .kind = REPLY_EXTENDED, .asked_at = epoch + NANOS_OF_MS(334), .good = TTL, .token = 10},
        340);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 10);
}

static void an_answer_that_comes_after_the_end_does_not_revive(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    tell_good(&top, REPLY_EXTENDED, 334, 988);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void a_renewal_in_flight_does_not_hide_the_end(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3 * 2);
    timer(&top, 667);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_WARN, HF_OK);
    assert_true(top.claim.warned);
    expect_wake(&top, 988);
    struct table_top renewed = top;
    tell_good(&renewed, REPLY_EXTENDED, 334, 700);
    assert_false(renewed.claim.warned);
    timer(&top, 988);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void an_extension_never_shortens(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 10);
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(10),
                                    .good = NANOS_OF_MS(50)},
              11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + TTL - DRIFT);
}

/* After a failover the record ends by the clock of another server. */
static void but_another_server_replaces_what_was_believed(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 10);
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(10),
                                    .good = TTL / 2,
                                    .is_elsewhere = true},
              20);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_true(top.claim.valid_until < epoch + NANOS_OF_MS(10) + TTL / 2);
    assert_true(top.claim.valid_until > epoch);

    top = held();
    wish(&top, INPUT_EXTEND, 10);
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(10),
                                    .good = NANOS_OF_MS(5),
                                    .is_elsewhere = true},
              20);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void another_token_is_another_hold_and_ours_is_lost(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    tell_full(
        &top,
        (struct engine_reply){.kind = REPLY_EXTENDED, .asked_at = epoch, .good = TTL, .token = 10},
        335);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    top = held();
    tell_full(
        &top,
        (struct engine_reply){.kind = REPLY_GRANTED, .asked_at = epoch, .good = TTL, .token = 8},
        335);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    tell_full(
        &top,
        (struct engine_reply){.kind = REPLY_GRANTED, .asked_at = epoch, .good = TTL, .token = 10},
        335);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void a_hold_without_auto_renewal_is_checked_and_ends_by_itself(void **state)
{
    (void)state;
    struct table_top top = held_for((struct claim_terms){.auto_renew = false});
    timer(&top, 334);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
    struct engine_reply left = {.kind = REPLY_EXTENDED,
                                .asked_at = epoch + NANOS_OF_MS(334),
                                .good = NANOS_OF_MS(666),
                                .token = 9};
    tell_full(&top, left, 335);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_true(top.claim.valid_until < epoch + TTL);
    assert_int_equal(top.move.wake_at, epoch + NANOS_OF_MS(334) + TTL / 3);
    timer(&top, 700);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
    tell(&top, REPLY_NOT_HELD, 701);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);
}

static void renewal_reaches_the_end_of_max_hold_and_then_only_checks(void **state)
{
    (void)state;
    struct table_top top = held_for((struct claim_terms){.auto_renew = true, .max_hold_ms = 1500});
    timer(&top, 334); /* granted at 1: max_hold ends at 1501 */
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    tell_good(&top, REPLY_EXTENDED, 334, 335);
    timer(&top, 700);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, NANOS_OF_MS(801));
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(700),
                                    .good = NANOS_OF_MS(801)},
              701);
    timer(&top, 1100);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
    tell(&top, REPLY_FAILED, 1101);
    timer(&top, 1495);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void an_extend_by_the_caller_is_reported_with_its_outcome(void **state)
{
    (void)state;
    struct table_top top = held();
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 3000}, 10);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, NANOS_OF_MS(3000));
    struct table_top cut = top, failed = top, gone = top, late = top;
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(10),
                                    .good = NANOS_OF_MS(3000)},
              11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + NANOS_OF_MS(10 + 3000 - 32));
    tell(&cut, REPLY_UNKNOWN, 60);
    expect(&cut, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    tell(&failed, REPLY_FAILED, 11);
    expect(&failed, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_UNAVAILABLE);
    tell(&gone, REPLY_NOT_HELD, 11);
    expect(&gone, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);
    wish(&late, INPUT_EXTEND, 988);
    expect(&late, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void an_extend_by_the_caller_waits_for_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 3000}, 335);
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 2000}, 336);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_EXTENDED, 334, 340);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    assert_int_equal(top.move.ttl, NANOS_OF_MS(3000));
    tell_good(&top, REPLY_EXTENDED, 340, 341);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
}

static void an_extend_without_a_reply_in_time_is_in_doubt_and_its_request_goes_on(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 10);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    nanos due = epoch + NANOS_OF_MS(10) + timing_sheet_answer(top.claim.sheet);
    assert_int_equal(top.move.wake_at, due);
    int64_t due_ms = (due - epoch) / NANOS_OF_MS(1);
    timer(&top, due_ms);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    assert_true(top.move.wake_at > due);
    struct table_top again = top;
    tell_good(&top, REPLY_EXTENDED, 10, due_ms + 20);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    wish(&again, INPUT_EXTEND, due_ms + 1);
    timer(&again, due_ms + 2);
    expect(&again, CLAIM_EXTENDING, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
}

/* ---- Releasing ---- */

static void belief_ends_when_the_release_is_sent_and_the_claim_on_its_answer(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_RELEASE, 10);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    assert_false(top.move.may_be_in_flight);
    assert_int_equal(top.claim.valid_until, 0);
    struct table_top gone = top;
    tell(&top, REPLY_RELEASED, 11);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
    expect_wake(&top, -1);
    tell(&gone, REPLY_NOT_HELD, 11);
    expect(&gone, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_NOT_HELD);
    wish(&gone, INPUT_RELEASE, 12);
    expect(&gone, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_NOT_HELD);
}

static void a_release_without_answer_is_in_doubt_once_and_tried_until_it_is_given_up(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_RELEASE, 0);
    struct table_top silent = top, refused = top;
    tell(&top, REPLY_UNKNOWN, 50);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_RELEASED, HF_IN_DOUBT);
    unsigned tries = 0;
    while (top.claim.state != CLAIM_OVER) {
        int64_t at = (top.move.wake_at - epoch) / MS;
        timer(&top, at);
        tries += top.move.verb == OP_RELEASE;
        if (top.move.verb)
            tell(&top, REPLY_FAILED, at);
        assert_int_equal(top.move.report, REPORT_NONE);
        assert_true(at <= 60000);
    }
    assert_in_range(tries, 1000, 1200);
    timer(&silent, 100);
    expect(&silent, CLAIM_RELEASING, OP_RELEASE, REPORT_RELEASED, HF_IN_DOUBT);
    tell_full(&refused,
              (struct engine_reply){.kind = REPLY_FAILED, .status = HF_CONFIG, .asked_at = epoch},
              1);
    expect(&refused, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_CONFIG);
}

static void
a_release_that_is_denied_says_so_at_once_and_is_tried_again_for_the_right_may_be_given_back(
    void **state)
{
    (void)state;
    for (int outcome_unknown = 0; outcome_unknown < 2; outcome_unknown++) {
        struct table_top top = held();
        wish(&top, INPUT_RELEASE, 10);
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .status = HF_DENIED,
                                     .outcome_unknown = outcome_unknown,
                                     .asked_at = epoch + NANOS_OF_MS(10)};
        tell_full(&top, reply, 11);
        expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_RELEASED, HF_DENIED);
        timer(&top, (top.move.wake_at - epoch) / MS);
        expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
        assert_int_equal(top.move.may_be_in_flight, outcome_unknown);
        tell(&top, REPLY_RELEASED, 200);
        expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
    }
}

static void an_extend_that_failed_half_way_says_why_and_the_release_leaves_a_tombstone(void **state)
{
    (void)state;
    struct table_top top = held();
    nanos until = top.claim.valid_until;
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 5000}, 10);
    struct engine_reply reply = {.kind = REPLY_FAILED,
                                 .status = HF_DENIED,
                                 .outcome_unknown = true,
                                 .asked_at = epoch + NANOS_OF_MS(10)};
    tell_full(&top, reply, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_DENIED);
    assert_int_equal(top.claim.valid_until, until);
    wish(&top, INPUT_RELEASE, 20);
    assert_true(top.move.may_be_in_flight);
}

static void a_release_overtakes_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    wish(&top, INPUT_RELEASE, 335);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_EXTENDED, 334, 336);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, 0);
    tell(&top, REPLY_RELEASED, 337);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
}

static void a_grant_that_nobody_wants_is_given_back_with_a_tombstone(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    tell(&top, REPLY_BUSY, 1);
    tell_good(&top, REPLY_GRANTED, 0, 30);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    assert_true(top.move.may_be_in_flight);
    tell_good(&top, REPLY_GRANTED, 0, 31);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_RELEASED, 32);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

static void
an_end_by_an_older_answer_is_made_good_when_the_newer_request_turns_out_unanswered(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 300);               /* the process was stopped: the wait is over, */
    tell(&top, REPLY_UNKNOWN, 300); /* and only now it hears that its ask was cut */
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_DENIED, HF_IN_DOUBT);
    tell(&top, REPLY_RELEASED, 301); /* the leave's answer; it left no tombstone */
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_UNKNOWN, 350);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    assert_true(top.move.may_be_in_flight);
    timer(&top, 60300);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_UNKNOWN, 60301);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
}

static void a_release_that_overtook_a_refresh_leaves_a_tombstone_when_it_is_sent_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_QUEUED, 1);
    tell(&top, REPLY_NOTIFY, 2);
    tell_good(&top, REPLY_GRANTED, 0, 3);
    wish(&top, INPUT_RELEASE, 4);
    assert_false(top.move.may_be_in_flight);
    tell(&top, REPLY_UNKNOWN, 54);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_RELEASED, HF_IN_DOUBT);
    timer(&top, 104);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    assert_true(top.move.may_be_in_flight);
}

static void
a_cut_renewal_of_a_hold_that_came_from_the_queue_raises_doubt_and_of_another_does_not(void **state)
{
    (void)state;
    struct table_top top = asking(5000), direct = held();
    tell(&top, REPLY_QUEUED, 1);
    tell(&top, REPLY_NOTIFY, 2); /* the refresh that may be on the same connection */
    tell_good(&top, REPLY_GRANTED, 0, 3);
    timer(&top, 340);
    timer(&direct, 340);
    tell(&top, REPLY_UNKNOWN, 390);
    tell(&direct, REPLY_UNKNOWN, 390);
    wish(&top, INPUT_RELEASE, 400);
    wish(&direct, INPUT_RELEASE, 400);
    assert_true(top.move.may_be_in_flight);
    assert_false(direct.move.may_be_in_flight);
}

/* A grant of a claim that waits if `waits_ms` is not 0; the engine says that no ACQUIRE can arrive
 * any more. The grant replies to a request that was sent at `asked_ms`. */
static bool is_settled_after(int64_t waits_ms, bool is_refreshed, int64_t asked_ms)
{
    struct table_top top = asking(waits_ms);
    if (waits_ms)
        tell(&top, REPLY_QUEUED, 10);
    if (is_refreshed)
        tell(&top, REPLY_NOTIFY, 20);
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_GRANTED,
                                    .asked_at = epoch + NANOS_OF_MS(asked_ms),
                                    .good = TTL,
                                    .token = 9,
                                    .is_settled = true},
              30);
    assert_int_equal(top.claim.state, CLAIM_HELD);
    return top.claim.is_settled;
}

static void a_hold_is_settled_when_no_acquire_was_sent_after_the_one_that_was_granted(void **state)
{
    (void)state;
    assert_true(is_settled_after(0, false, 0));
    assert_true(is_settled_after(500, false, 0));
    assert_true(is_settled_after(500, true, 20));
    assert_false(is_settled_after(500, true, 0)); /* the refresh of 20 ms may still arrive */
    assert_false(held().claim.is_settled);        /* the engine does not know */
}

static void whoever_takes_up_a_settled_hold_releases_it_without_a_tombstone(void **state)
{
    (void)state;
    for (int is_settled = 0; is_settled < 2; is_settled++) {
        struct table_top top = {0};
        struct timing_sheet sheet;
        struct claim_terms terms = {.deadline = TIME_NEVER};
        timing_sheet_fill(&sheet, 1000, &limits, &(struct timing_overrides){0});
        claim_init(&top.claim, &terms, &sheet);
        claim_adopt(&top.claim, epoch, epoch + TTL, 44, is_settled);
        wish(&top, INPUT_RELEASE, 10);
        expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
        assert_int_equal(top.move.may_be_in_flight, !is_settled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_is_renewed_after_a_third_of_its_ttl_and_counts_from_that_request),
        cmocka_unit_test(
            a_failed_renewal_is_tried_every_op_timeout_warned_of_once_and_lost_by_our_own_clock),
        cmocka_unit_test(a_hold_that_others_have_as_text_is_lost_by_time_without_a_release),
        cmocka_unit_test(an_answer_that_comes_after_the_end_does_not_revive),
        cmocka_unit_test(a_renewal_in_flight_does_not_hide_the_end),
        cmocka_unit_test(an_extension_never_shortens),
        cmocka_unit_test(but_another_server_replaces_what_was_believed),
        cmocka_unit_test(another_token_is_another_hold_and_ours_is_lost),
        cmocka_unit_test(a_hold_without_auto_renewal_is_checked_and_ends_by_itself),
        cmocka_unit_test(renewal_reaches_the_end_of_max_hold_and_then_only_checks),
        cmocka_unit_test(an_extend_by_the_caller_is_reported_with_its_outcome),
        cmocka_unit_test(an_extend_by_the_caller_waits_for_the_renewal_in_flight),
        cmocka_unit_test(an_extend_without_a_reply_in_time_is_in_doubt_and_its_request_goes_on),
        cmocka_unit_test(belief_ends_when_the_release_is_sent_and_the_claim_on_its_answer),
        cmocka_unit_test(a_release_without_answer_is_in_doubt_once_and_tried_until_it_is_given_up),
        cmocka_unit_test(
            a_release_that_is_denied_says_so_at_once_and_is_tried_again_for_the_right_may_be_given_back),
        cmocka_unit_test(
            an_extend_that_failed_half_way_says_why_and_the_release_leaves_a_tombstone),
        cmocka_unit_test(a_release_overtakes_the_renewal_in_flight),
        cmocka_unit_test(a_grant_that_nobody_wants_is_given_back_with_a_tombstone),
        cmocka_unit_test(
            an_end_by_an_older_answer_is_made_good_when_the_newer_request_turns_out_unanswered),
        cmocka_unit_test(
            a_release_that_overtook_a_refresh_leaves_a_tombstone_when_it_is_sent_again),
        cmocka_unit_test(
            a_cut_renewal_of_a_hold_that_came_from_the_queue_raises_doubt_and_of_another_does_not),
        cmocka_unit_test(a_hold_is_settled_when_no_acquire_was_sent_after_the_one_that_was_granted),
        cmocka_unit_test(whoever_takes_up_a_settled_hold_releases_it_without_a_tombstone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
