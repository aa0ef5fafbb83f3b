/* core_claim_convert.c - tests of the claim's rules for conversion, forfeit and hints while it is
 * held. */
#include "claim_fixture.h"

static struct claim_move *convert(struct table_top *top, enum op_verb verb, int64_t at_ms)
{
    return send(top, (struct claim_event){.in = INPUT_CONVERT, .verb = verb}, at_ms);
}

/* "Still ours", as an answer to a request of that time, with what is left of the first TTL. */
static struct claim_move *tell_held(struct table_top *top, uint64_t token, int64_t asked_ms,
                                    int64_t at_ms)
{
    struct engine_reply reply = {
        .kind = REPLY_EXTENDED, .token = token, .asked_at = epoch + NANOS_OF_MS(asked_ms)};
    reply.good = TTL - NANOS_OF_MS(asked_ms);
    return tell_full(top, reply, at_ms);
}

/* ---- Outcomes ---- */

static void an_upgrade_brings_a_new_token_and_a_downgrade_keeps_it(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    expect(&top, CLAIM_EXTENDING, OP_UPGRADE, REPORT_NONE, HF_OK);
    tell_held(&top, 12, 10, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
    convert(&top, OP_DOWNGRADE, 20);
    expect(&top, CLAIM_EXTENDING, OP_DOWNGRADE, REPORT_NONE, HF_OK);
    tell_held(&top, 12, 20, 21);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void an_upgrade_among_others_is_busy_and_the_hold_stays_as_it_was(void **state)
{
    (void)state;
    struct table_top top = held();
    nanos until = top.claim.valid_until, renew_at = top.claim.act_at;
    convert(&top, OP_UPGRADE, 10);
    tell(&top, REPLY_BUSY, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_BUSY);
    assert_int_equal(top.claim.token, 9);
    assert_int_equal(top.claim.valid_until, until);
    assert_int_equal(top.claim.act_at, renew_at);
}

static void a_conversion_that_fails_says_why_and_one_of_a_hold_that_is_gone_loses_it(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_DOWNGRADE, 10);
    struct table_top cut = top, gone = top, late = held();
    tell(&top, REPLY_FAILED, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_UNAVAILABLE);
    tell(&cut, REPLY_UNKNOWN, 60);
    expect(&cut, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    tell(&gone, REPLY_NOT_HELD, 11);
    expect(&gone, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);
    convert(&late, OP_UPGRADE, 988);
    expect(&late, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    convert(&late, OP_UPGRADE, 989);
    expect(&late, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_NOT_HELD);
}

static void a_conversion_that_failed_half_way_is_in_doubt_whatever_the_reason_was(void **state)
{
    (void)state;
    static const enum op_verb verbs[] = {OP_UPGRADE, OP_DOWNGRADE};
    for (unsigned i = 0; i < 2; i++) {
        struct table_top top = held();
        convert(&top, verbs[i], 10);
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .status = HF_DENIED,
                                     .outcome_unknown = true,
                                     .asked_at = epoch + NANOS_OF_MS(10)};
        tell_full(&top, reply, 11);
        expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
        assert_true(top.claim.may_be_in_flight);
    }
}

/* ---- Tokens ---- */

static void after_an_upgrade_whose_answer_was_lost_the_renewal_brings_the_token(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    tell(&top, REPLY_UNKNOWN, 60);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    timer(&top, 110);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
    tell_held(&top, 12, 110, 111);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void
an_upgrade_that_is_executed_after_a_renewal_said_the_old_token_does_not_lose_the_hold(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    tell(&top, REPLY_UNKNOWN, 60);
    timer(&top, 110);
    tell_held(&top, 9, 110, 111);
    assert_int_equal(top.claim.token, 9);
    wish(&top, INPUT_EXTEND, 300);
    tell_held(&top, 12, 300, 301);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void
news_from_before_the_upgrade_are_old_and_a_second_grant_may_show_the_new_token(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    tell_held(&top, 12, 10, 11);
    tell_held(&top, 9, 5, 12);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_GRANTED, 0, 13);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
    tell_full(
        &top,
        (struct engine_reply){.kind = REPLY_GRANTED, .asked_at = epoch, .good = TTL, .token = 14},
        14);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 14);
}

static void a_hold_that_others_may_upgrade_is_not_lost_when_they_do(void **state)
{
    (void)state;
    struct table_top top = held_for((struct claim_terms){.auto_renew = true, .shared = true});
    timer(&top, 334);
    tell_held(&top, 12, 334, 335);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

/* ---- One at a time ---- */

static void a_conversion_waits_for_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    convert(&top, OP_UPGRADE, 335);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    struct table_top cut = top;
    tell_good(&top, REPLY_EXTENDED, 334, 340);
    expect(&top, CLAIM_EXTENDING, OP_UPGRADE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 341);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_BUSY);
    tell(&cut, REPLY_UNKNOWN, 384);
    expect(&cut, CLAIM_EXTENDING, OP_UPGRADE, REPORT_NONE, HF_OK);
}

static void who_upgrades_never_hears_the_outcome_of_an_extend(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 10);
    convert(&top, OP_UPGRADE, 11);
    tell_good(&top, REPLY_EXTENDED, 10, 12);
    expect(&top, CLAIM_EXTENDING, OP_UPGRADE, REPORT_NONE, HF_OK);
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 3000}, 13);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_BUSY, 14);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_EXTENDED, HF_BUSY);
    assert_int_equal(top.move.ttl, NANOS_OF_MS(3000));
    tell_good(&top, REPLY_EXTENDED, 14, 15);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
}

static void the_same_conversion_twice_is_one_and_two_that_contradict_are_in_doubt(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    convert(&top, OP_UPGRADE, 11);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    struct table_top waiting = held();
    convert(&top, OP_DOWNGRADE, 12);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    tell_held(&top, 12, 10, 13);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
    timer(&waiting, 334);
    convert(&waiting, OP_DOWNGRADE, 335);
    convert(&waiting, OP_UPGRADE, 336);
    expect(&waiting, CLAIM_EXTENDING, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    tell_good(&waiting, REPLY_EXTENDED, 334, 337);
    expect(&waiting, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
}

static void an_upgrade_is_not_believed_while_a_downgrade_may_still_be_executed(void **state)
{
    (void)state;
    struct table_top top = held_for((struct claim_terms){.auto_renew = false});
    send(&top, (struct claim_event){.in = INPUT_EXTEND, .ttl_ms = 100000}, 1);
    tell_full(&top,
              (struct engine_reply){
                  .kind = REPLY_EXTENDED, .asked_at = epoch + MS, .good = NANOS_OF_MS(100000)},
              2);
    convert(&top, OP_DOWNGRADE, 10);
    tell(&top, REPLY_UNKNOWN, 60);
    convert(&top, OP_UPGRADE, 61);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    convert(&top, OP_DOWNGRADE, 62);
    expect(&top, CLAIM_EXTENDING, OP_DOWNGRADE, REPORT_NONE, HF_OK);
    tell_full(&top,
              (struct engine_reply){.kind = REPLY_EXTENDED,
                                    .asked_at = epoch + NANOS_OF_MS(62),
                                    .good = NANOS_OF_MS(90000)},
              63);
    convert(&top, OP_UPGRADE, 60059);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_IN_DOUBT);
    convert(&top, OP_UPGRADE, 60060);
    expect(&top, CLAIM_EXTENDING, OP_UPGRADE, REPORT_NONE, HF_OK);
}

static void answers_to_older_requests_do_not_end_a_conversion(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, INPUT_EXTEND, 5);
    tell_good(&top, REPLY_EXTENDED, 5, 6);
    convert(&top, OP_UPGRADE, 10);
    static const enum reply_kind cues[] = {REPLY_EXTENDED, REPLY_BUSY, REPLY_FAILED, REPLY_UNKNOWN};
    for (unsigned i = 0; i < 4; i++) {
        struct engine_reply older = {
            .kind = cues[i], .asked_at = epoch + NANOS_OF_MS(5), .good = TTL, .token = 9};
        older.status = HF_UNAVAILABLE;
        tell_full(&top, older, 11);
        expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    }
    tell_held(&top, 12, 10, 12);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
    wish(&top, INPUT_EXTEND, 20);
    tell(&top, REPLY_BUSY, 21); /* no conversion is in flight: it answers an ask of long ago */
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
}

/* ---- The end while it is in flight ---- */

static void a_release_overtakes_a_conversion_and_its_refusal_is_not_the_releases(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    wish(&top, INPUT_RELEASE, 11);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_NONE, HF_OK);
    struct table_top granted = top;
    tell_full(&top,
              (struct engine_reply){
                  .kind = REPLY_FAILED, .status = HF_DENIED, .asked_at = epoch + NANOS_OF_MS(10)},
              12);
    expect(&top, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
    tell(&top, REPLY_RELEASED, 13);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_RELEASED, HF_OK);
    tell_held(&granted, 12, 10, 12);
    expect(&granted, CLAIM_RELEASING, OP_NONE, REPORT_NONE, HF_OK);
    assert_int_equal(granted.claim.valid_until, 0);
}

static void a_conversion_in_flight_hides_neither_the_end_nor_the_loss_of_everything(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 10);
    struct table_top all = top, answered = top;
    timer(&top, 988);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    tell_held(&answered, 12, 10, 988);
    expect(&answered, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    send(&all, (struct claim_event){.in = INPUT_LOST_ALL, .status = HF_DAMAGED}, 11);
    expect(&all, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_DAMAGED);
}

static void a_forfeited_hold_is_lost_at_once_and_released_in_the_background(void **state)
{
    (void)state;
    struct table_top top = held(), converting = held();
    wish(&top, INPUT_FORFEIT, 10);
    expect(&top, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
    assert_true(top.move.may_be_in_flight);
    assert_int_equal(top.claim.valid_until, 0);
    tell(&top, REPLY_RELEASED, 11);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_OK);
    wish(&top, INPUT_FORFEIT, 12);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_NONE, HF_NOT_HELD);
    convert(&converting, OP_UPGRADE, 10);
    wish(&converting, INPUT_FORFEIT, 11);
    expect(&converting, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

/* ---- Hints and the plan ---- */

static void a_hint_checks_a_hold_and_one_that_crossed_an_answer_checks_behind_it(void **state)
{
    (void)state;
    struct table_top top = held(), ended = held();
    tell(&top, REPLY_NOTIFY, 10);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_NONE, HF_OK);
    tell_held(&top, 9, 10, 11);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_NONE, HF_OK);
    wish(&top, INPUT_EXTEND, 20);
    tell(&top, REPLY_NOTIFY, 21);
    expect(&top, CLAIM_EXTENDING, OP_NONE, REPORT_NONE, HF_OK);
    tell_good(&top, REPLY_EXTENDED, 20, 22);
    expect(&top, CLAIM_EXTENDING, OP_CHECK, REPORT_EXTENDED, HF_OK);
    tell(&top, REPLY_NOT_HELD, 23);
    expect(&top, CLAIM_OVER, OP_NONE, REPORT_LOST, HF_LOST);
    tell(&ended, REPLY_NOTIFY, 988);
    expect(&ended, CLAIM_RELEASING, OP_RELEASE, REPORT_LOST, HF_LOST);
}

static void a_hint_from_the_time_of_waiting_does_not_outlive_the_grant(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, REPLY_NOTIFY, 1);
    tell_good(&top, REPLY_GRANTED, 0, 2);
    wish(&top, INPUT_EXTEND, 20);
    tell_good(&top, REPLY_EXTENDED, 20, 22);
    expect(&top, CLAIM_HELD, OP_NONE, REPORT_EXTENDED, HF_OK);
}

/* Does what `act` says every 20 ms, answers it, and fails if the renewal is not sent when it is
 * due. */
static void renewal_comes_through(enum claim_input act, enum reply_kind kind)
{
    struct table_top top = held();
    for (int64_t at = 20; at < 334; at += 20) {
        if (act == INPUT_NOTIFY)
            tell(&top, REPLY_NOTIFY, at);
        else
            convert(&top, OP_UPGRADE, at);
        if (kind == REPLY_EXTENDED)
            tell_held(&top, 9, at, at + 1);
        else
            tell(&top, kind, at + 1);
        assert_string_equal(claim_state_name(top.claim.state), "HELD");
        assert_true(top.move.wake_at <= epoch + TTL / 3);
    }
    timer(&top, 334);
    expect(&top, CLAIM_EXTENDING, OP_EXTEND, REPORT_NONE, HF_OK);
}

static void checks_and_conversions_without_end_do_not_put_the_renewal_off(void **state)
{
    (void)state;
    renewal_comes_through(INPUT_NOTIFY, REPLY_EXTENDED);
    renewal_comes_through(INPUT_CONVERT, REPLY_EXTENDED);
    renewal_comes_through(INPUT_CONVERT, REPLY_BUSY);
    struct table_top top = held();
    convert(&top, OP_UPGRADE, 320);
    tell(&top, REPLY_FAILED, 321);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3);
    convert(&top, OP_UPGRADE, 330);
    tell_held(&top, 12, 330, 500);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3); /* overdue: now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upgrade_brings_a_new_token_and_a_downgrade_keeps_it),
        cmocka_unit_test(an_upgrade_among_others_is_busy_and_the_hold_stays_as_it_was),
        cmocka_unit_test(a_conversion_that_failed_half_way_is_in_doubt_whatever_the_reason_was),
        cmocka_unit_test(a_conversion_that_fails_says_why_and_one_of_a_hold_that_is_gone_loses_it),
        cmocka_unit_test(after_an_upgrade_whose_answer_was_lost_the_renewal_brings_the_token),
        cmocka_unit_test(
            an_upgrade_that_is_executed_after_a_renewal_said_the_old_token_does_not_lose_the_hold),
        cmocka_unit_test(
            news_from_before_the_upgrade_are_old_and_a_second_grant_may_show_the_new_token),
        cmocka_unit_test(a_hold_that_others_may_upgrade_is_not_lost_when_they_do),
        cmocka_unit_test(a_conversion_waits_for_the_renewal_in_flight),
        cmocka_unit_test(who_upgrades_never_hears_the_outcome_of_an_extend),
        cmocka_unit_test(the_same_conversion_twice_is_one_and_two_that_contradict_are_in_doubt),
        cmocka_unit_test(an_upgrade_is_not_believed_while_a_downgrade_may_still_be_executed),
        cmocka_unit_test(answers_to_older_requests_do_not_end_a_conversion),
        cmocka_unit_test(a_release_overtakes_a_conversion_and_its_refusal_is_not_the_releases),
        cmocka_unit_test(a_conversion_in_flight_hides_neither_the_end_nor_the_loss_of_everything),
        cmocka_unit_test(a_forfeited_hold_is_lost_at_once_and_released_in_the_background),
        cmocka_unit_test(a_hint_checks_a_hold_and_one_that_crossed_an_answer_checks_behind_it),
        cmocka_unit_test(a_hint_from_the_time_of_waiting_does_not_outlive_the_grant),
        cmocka_unit_test(checks_and_conversions_without_end_do_not_put_the_renewal_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
