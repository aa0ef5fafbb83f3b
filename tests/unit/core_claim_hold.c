/* core_claim_hold.c - tests of the claim's rules one by one: renewing, losing, releasing. */
#include "table_top.h"

/* ---- Holding ------------------------------------------------------------------------------------------------- */

static void a_hold_is_renewed_after_a_third_of_its_ttl_and_counts_from_that_request(void **state)
{
    (void)state;
    struct table_top top = held();
    assert_int_equal(top.move.wake_at, epoch + TTL / 3);
    timer(&top, 334);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    assert_true(hf_claim_valid(&top.claim, epoch + HF_MS(334)));
    tell_good(&top, HF_N_EXTENDED, 334, 600);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + HF_MS(334) + TTL - DRIFT);
    assert_int_equal(top.move.wake_at, epoch + HF_MS(334) + TTL / 3);
}

static void a_failed_renewal_is_tried_every_op_timeout_warned_of_once_and_lost_by_our_own_clock(void **state)
{
    (void)state;
    struct table_top top = held();
    unsigned warned = 0, tried = 0;
    for (int64_t at = 334; at < 988; at++) {
        if (top.move.wake_at > epoch + HF_MS(at))
            continue;
        timer(&top, at);
        warned += top.move.report == HF_R_WARN;
        if (top.move.verb == HF_V_EXTEND) {
            tried++;
            tell(&top, tried % 2 ? HF_N_CUT : HF_N_FAILED, at);
        }
        assert_int_equal(top.claim.state, HF_S_HELD);
    }
    assert_int_equal(warned, 1);
    assert_in_range(tried, 12, 14);
    expect_wake(&top, 988);
    timer(&top, 988);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    assert_true(top.move.doubt);
    assert_false(hf_claim_valid(&top.claim, epoch));
    tell(&top, HF_N_GONE, 990);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void an_answer_that_comes_after_the_end_does_not_revive(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    tell_good(&top, HF_N_EXTENDED, 334, 988);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void a_renewal_in_flight_does_not_hide_the_end(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3 * 2);
    timer(&top, 667);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_WARN, HF_OK);
    assert_true(top.claim.warned);
    expect_wake(&top, 988);
    struct table_top renewed = top;
    tell_good(&renewed, HF_N_EXTENDED, 334, 700);
    assert_false(renewed.claim.warned);
    timer(&top, 988);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void an_extension_never_shortens(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_EXTEND, 10);
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(10), .good = HF_MS(50)}, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + TTL - DRIFT);
}

static void another_token_is_another_hold_and_ours_is_lost(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch, .good = TTL, .token = 10}, 335);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    top = held();
    tell_full(&top, (struct hf_news){.cue = HF_N_GRANTED, .asked_at = epoch, .good = TTL, .token = 8}, 335);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_full(&top, (struct hf_news){.cue = HF_N_GRANTED, .asked_at = epoch, .good = TTL, .token = 10}, 335);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void a_hold_without_auto_renewal_is_checked_and_ends_by_itself(void **state)
{
    (void)state;
    struct table_top top = held_for((struct hf_claim_terms){.auto_renew = false});
    timer(&top, 334);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
    struct hf_news left = {.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(334), .good = HF_MS(666), .token = 9};
    tell_full(&top, left, 335);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_true(top.claim.valid_until < epoch + TTL);
    assert_int_equal(top.move.wake_at, epoch + HF_MS(334) + TTL / 3);
    timer(&top, 700);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
    tell(&top, HF_N_GONE, 701);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_LOST);
}

static void renewal_reaches_the_end_of_max_hold_and_then_only_checks(void **state)
{
    (void)state;
    struct table_top top = held_for((struct hf_claim_terms){.auto_renew = true, .max_hold_ms = 1500});
    timer(&top, 334); /* granted at 1: max_hold ends at 1501 */
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, TTL);
    tell_good(&top, HF_N_EXTENDED, 334, 335);
    timer(&top, 700);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, HF_MS(801));
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(700), .good = HF_MS(801)}, 701);
    timer(&top, 1100);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
    tell(&top, HF_N_FAILED, 1101);
    timer(&top, 1495);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void an_extend_by_the_caller_is_reported_with_its_outcome(void **state)
{
    (void)state;
    struct table_top top = held();
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 3000}, 10);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, HF_MS(3000));
    struct table_top cut = top, failed = top, gone = top, late = top;
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(10), .good = HF_MS(3000)}, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    assert_int_equal(top.claim.valid_until, epoch + HF_MS(10 + 3000 - 32));
    tell(&cut, HF_N_CUT, 60);
    expect(&cut, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    tell(&failed, HF_N_FAILED, 11);
    expect(&failed, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_UNAVAILABLE);
    tell(&gone, HF_N_GONE, 11);
    expect(&gone, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_LOST);
    wish(&late, HF_I_EXTEND, 988);
    expect(&late, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void an_extend_by_the_caller_waits_for_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 3000}, 335);
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 2000}, 336);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_EXTENDED, 334, 340);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    assert_int_equal(top.move.ttl, HF_MS(3000));
    tell_good(&top, HF_N_EXTENDED, 340, 341);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
}

/* ---- Releasing ----------------------------------------------------------------------------------------------- */

static void belief_ends_when_the_release_is_sent_and_the_claim_on_its_answer(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_RELEASE, 10);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    assert_false(top.move.doubt);
    assert_int_equal(top.claim.valid_until, 0);
    struct table_top gone = top;
    tell(&top, HF_N_RELEASED, 11);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
    expect_wake(&top, -1);
    tell(&gone, HF_N_GONE, 11);
    expect(&gone, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_NOT_HELD);
    wish(&gone, HF_I_RELEASE, 12);
    expect(&gone, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_NOT_HELD);
}

static void a_release_without_answer_is_in_doubt_once_and_tried_until_it_is_given_up(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_RELEASE, 0);
    struct table_top silent = top, refused = top;
    tell(&top, HF_N_CUT, 50);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_RELEASED, HF_IN_DOUBT);
    unsigned tries = 0;
    while (top.claim.state != HF_S_OVER) {
        int64_t at = (top.move.wake_at - epoch) / MS;
        timer(&top, at);
        tries += top.move.verb == HF_V_RELEASE;
        if (top.move.verb)
            tell(&top, HF_N_FAILED, at);
        assert_int_equal(top.move.report, HF_R_NONE);
        assert_true(at <= 60000);
    }
    assert_in_range(tries, 1000, 1200);
    timer(&silent, 100);
    expect(&silent, HF_S_RELEASING, HF_V_RELEASE, HF_R_RELEASED, HF_IN_DOUBT);
    tell_full(&refused, (struct hf_news){.cue = HF_N_FAILED, .status = HF_DENIED, .asked_at = epoch}, 1);
    expect(&refused, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_DENIED);
}

static void a_release_overtakes_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    wish(&top, HF_I_RELEASE, 335);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_EXTENDED, 334, 336);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.valid_until, 0);
    tell(&top, HF_N_RELEASED, 337);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
}

static void a_grant_that_nobody_wants_is_given_back_with_a_tombstone(void **state)
{
    (void)state;
    struct table_top top = asking(0);
    tell(&top, HF_N_BUSY, 1);
    tell_good(&top, HF_N_GRANTED, 0, 30);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    assert_true(top.move.doubt);
    tell_good(&top, HF_N_GRANTED, 0, 31);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_RELEASED, 32);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void an_end_by_an_older_answer_is_made_good_when_the_newer_request_turns_out_unanswered(void **state)
{
    (void)state;
    struct table_top top = asking(100);
    timer(&top, 300);          /* the process was stopped: the wait is over, */
    tell(&top, HF_N_CUT, 300); /* and only now it hears that its ask was cut */
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_DENIED, HF_TIMEOUT);
    tell(&top, HF_N_RELEASED, 301); /* the leave's answer; it left no tombstone */
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_CUT, 350);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    assert_true(top.move.doubt);
    timer(&top, 60300);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_CUT, 60301);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void a_release_that_overtook_a_refresh_leaves_a_tombstone_when_it_is_sent_again(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_QUEUED, 1);
    tell(&top, HF_N_HINT, 2);
    tell_good(&top, HF_N_GRANTED, 0, 3);
    wish(&top, HF_I_RELEASE, 4);
    assert_false(top.move.doubt);
    tell(&top, HF_N_CUT, 54);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_RELEASED, HF_IN_DOUBT);
    timer(&top, 104);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    assert_true(top.move.doubt);
}

static void a_cut_renewal_of_a_hold_that_came_from_the_queue_raises_doubt_and_of_another_does_not(void **state)
{
    (void)state;
    struct table_top top = asking(5000), direct = held();
    tell(&top, HF_N_QUEUED, 1);
    tell(&top, HF_N_HINT, 2); /* the refresh that may be on the same connection */
    tell_good(&top, HF_N_GRANTED, 0, 3);
    timer(&top, 340);
    timer(&direct, 340);
    tell(&top, HF_N_CUT, 390);
    tell(&direct, HF_N_CUT, 390);
    wish(&top, HF_I_RELEASE, 400);
    wish(&direct, HF_I_RELEASE, 400);
    assert_true(top.move.doubt);
    assert_false(direct.move.doubt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_is_renewed_after_a_third_of_its_ttl_and_counts_from_that_request),
        cmocka_unit_test(a_failed_renewal_is_tried_every_op_timeout_warned_of_once_and_lost_by_our_own_clock),
        cmocka_unit_test(an_answer_that_comes_after_the_end_does_not_revive),
        cmocka_unit_test(a_renewal_in_flight_does_not_hide_the_end),
        cmocka_unit_test(an_extension_never_shortens),
        cmocka_unit_test(another_token_is_another_hold_and_ours_is_lost),
        cmocka_unit_test(a_hold_without_auto_renewal_is_checked_and_ends_by_itself),
        cmocka_unit_test(renewal_reaches_the_end_of_max_hold_and_then_only_checks),
        cmocka_unit_test(an_extend_by_the_caller_is_reported_with_its_outcome),
        cmocka_unit_test(an_extend_by_the_caller_waits_for_the_renewal_in_flight),
        cmocka_unit_test(belief_ends_when_the_release_is_sent_and_the_claim_on_its_answer),
        cmocka_unit_test(a_release_without_answer_is_in_doubt_once_and_tried_until_it_is_given_up),
        cmocka_unit_test(a_release_overtakes_the_renewal_in_flight),
        cmocka_unit_test(a_grant_that_nobody_wants_is_given_back_with_a_tombstone),
        cmocka_unit_test(an_end_by_an_older_answer_is_made_good_when_the_newer_request_turns_out_unanswered),
        cmocka_unit_test(a_release_that_overtook_a_refresh_leaves_a_tombstone_when_it_is_sent_again),
        cmocka_unit_test(a_cut_renewal_of_a_hold_that_came_from_the_queue_raises_doubt_and_of_another_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
