/* core_claim_convert.c - tests of the claim's rules for conversion, forfeit and hints while it is held. */
#include "table_top.h"

static struct hf_move *convert(struct table_top *top, enum hf_verb verb, int64_t at_ms)
{
    return send(top, (struct hf_event){.in = HF_I_CONVERT, .verb = verb}, at_ms);
}

/* "Still ours", as an answer to a request of that time, with what is left of the first TTL. */
static struct hf_move *tell_held(struct table_top *top, uint64_t token, int64_t asked_ms, int64_t at_ms)
{
    struct hf_news news = {.cue = HF_N_EXTENDED, .token = token, .asked_at = epoch + HF_MS(asked_ms)};
    news.good = TTL - HF_MS(asked_ms);
    return tell_full(top, news, at_ms);
}

/* ---- Outcomes ------------------------------------------------------------------------------------------------ */

static void an_upgrade_brings_a_new_token_and_a_downgrade_keeps_it(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    expect(&top, HF_S_EXTENDING, HF_V_UPGRADE, HF_R_NONE, HF_OK);
    tell_held(&top, 12, 10, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
    convert(&top, HF_V_DOWNGRADE, 20);
    expect(&top, HF_S_EXTENDING, HF_V_DOWNGRADE, HF_R_NONE, HF_OK);
    tell_held(&top, 12, 20, 21);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void an_upgrade_among_others_is_busy_and_the_hold_stays_as_it_was(void **state)
{
    (void)state;
    struct table_top top = held();
    hf_nanos until = top.claim.valid_until, renew_at = top.claim.act_at;
    convert(&top, HF_V_UPGRADE, 10);
    tell(&top, HF_N_BUSY, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_BUSY);
    assert_int_equal(top.claim.token, 9);
    assert_int_equal(top.claim.valid_until, until);
    assert_int_equal(top.claim.act_at, renew_at);
}

static void a_conversion_that_fails_says_why_and_one_of_a_hold_that_is_gone_loses_it(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_DOWNGRADE, 10);
    struct table_top cut = top, gone = top, late = held();
    tell(&top, HF_N_FAILED, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_UNAVAILABLE);
    tell(&cut, HF_N_CUT, 60);
    expect(&cut, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    tell(&gone, HF_N_GONE, 11);
    expect(&gone, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_LOST);
    convert(&late, HF_V_UPGRADE, 988);
    expect(&late, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    convert(&late, HF_V_UPGRADE, 989);
    expect(&late, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_NOT_HELD);
}

/* ---- Tokens -------------------------------------------------------------------------------------------------- */

static void after_an_upgrade_whose_answer_was_lost_the_renewal_brings_the_token(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    tell(&top, HF_N_CUT, 60);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    timer(&top, 110);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
    tell_held(&top, 12, 110, 111);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void an_upgrade_that_is_executed_after_a_renewal_said_the_old_token_does_not_lose_the_hold(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    tell(&top, HF_N_CUT, 60);
    timer(&top, 110);
    tell_held(&top, 9, 110, 111);
    assert_int_equal(top.claim.token, 9);
    wish(&top, HF_I_EXTEND, 300);
    tell_held(&top, 12, 300, 301);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

static void news_from_before_the_upgrade_are_old_and_a_second_grant_may_show_the_new_token(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    tell_held(&top, 12, 10, 11);
    tell_held(&top, 9, 5, 12);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_GRANTED, 0, 13);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
    tell_full(&top, (struct hf_news){.cue = HF_N_GRANTED, .asked_at = epoch, .good = TTL, .token = 14}, 14);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.token, 14);
}

static void a_hold_that_others_may_upgrade_is_not_lost_when_they_do(void **state)
{
    (void)state;
    struct table_top top = held_for((struct hf_claim_terms){.auto_renew = true, .shared = true});
    timer(&top, 334);
    tell_held(&top, 12, 334, 335);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
}

/* ---- One at a time ------------------------------------------------------------------------------------------- */

static void a_conversion_waits_for_the_renewal_in_flight(void **state)
{
    (void)state;
    struct table_top top = held();
    timer(&top, 334);
    convert(&top, HF_V_UPGRADE, 335);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    struct table_top cut = top;
    tell_good(&top, HF_N_EXTENDED, 334, 340);
    expect(&top, HF_S_EXTENDING, HF_V_UPGRADE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 341);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_BUSY);
    tell(&cut, HF_N_CUT, 384);
    expect(&cut, HF_S_EXTENDING, HF_V_UPGRADE, HF_R_NONE, HF_OK);
}

static void who_upgrades_never_hears_the_outcome_of_an_extend(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_EXTEND, 10);
    convert(&top, HF_V_UPGRADE, 11);
    tell_good(&top, HF_N_EXTENDED, 10, 12);
    expect(&top, HF_S_EXTENDING, HF_V_UPGRADE, HF_R_NONE, HF_OK);
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 3000}, 13);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_BUSY, 14);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_EXTENDED, HF_BUSY);
    assert_int_equal(top.move.ttl, HF_MS(3000));
    tell_good(&top, HF_N_EXTENDED, 14, 15);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
}

static void the_same_conversion_twice_is_one_and_two_that_contradict_are_in_doubt(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    convert(&top, HF_V_UPGRADE, 11);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    struct table_top waiting = held();
    convert(&top, HF_V_DOWNGRADE, 12);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    tell_held(&top, 12, 10, 13);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(top.claim.token, 12);
    timer(&waiting, 334);
    convert(&waiting, HF_V_DOWNGRADE, 335);
    convert(&waiting, HF_V_UPGRADE, 336);
    expect(&waiting, HF_S_EXTENDING, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    tell_good(&waiting, HF_N_EXTENDED, 334, 337);
    expect(&waiting, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
}

static void an_upgrade_is_not_believed_while_a_downgrade_may_still_be_executed(void **state)
{
    (void)state;
    struct table_top top = held_for((struct hf_claim_terms){.auto_renew = false});
    send(&top, (struct hf_event){.in = HF_I_EXTEND, .ttl_ms = 100000}, 1);
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch + MS, .good = HF_MS(100000)}, 2);
    convert(&top, HF_V_DOWNGRADE, 10);
    tell(&top, HF_N_CUT, 60);
    convert(&top, HF_V_UPGRADE, 61);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    convert(&top, HF_V_DOWNGRADE, 62);
    expect(&top, HF_S_EXTENDING, HF_V_DOWNGRADE, HF_R_NONE, HF_OK);
    tell_full(&top, (struct hf_news){.cue = HF_N_EXTENDED, .asked_at = epoch + HF_MS(62), .good = HF_MS(90000)}, 63);
    convert(&top, HF_V_UPGRADE, 60059);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_IN_DOUBT);
    convert(&top, HF_V_UPGRADE, 60060);
    expect(&top, HF_S_EXTENDING, HF_V_UPGRADE, HF_R_NONE, HF_OK);
}

static void answers_to_older_requests_do_not_end_a_conversion(void **state)
{
    (void)state;
    struct table_top top = held();
    wish(&top, HF_I_EXTEND, 5);
    tell_good(&top, HF_N_EXTENDED, 5, 6);
    convert(&top, HF_V_UPGRADE, 10);
    static const enum hf_cue cues[] = {HF_N_EXTENDED, HF_N_BUSY, HF_N_FAILED, HF_N_CUT};
    for (unsigned i = 0; i < 4; i++) {
        struct hf_news older = {.cue = cues[i], .asked_at = epoch + HF_MS(5), .good = TTL, .token = 9};
        older.status = HF_UNAVAILABLE;
        tell_full(&top, older, 11);
        expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    }
    tell_held(&top, 12, 10, 12);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
    wish(&top, HF_I_EXTEND, 20);
    tell(&top, HF_N_BUSY, 21); /* no conversion is in flight: it answers an ask of long ago */
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
}

/* ---- The end while it is in flight --------------------------------------------------------------------------- */

static void a_release_overtakes_a_conversion_and_its_refusal_is_not_the_releases(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    wish(&top, HF_I_RELEASE, 11);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_NONE, HF_OK);
    struct table_top granted = top;
    tell_full(&top, (struct hf_news){.cue = HF_N_FAILED, .status = HF_DENIED, .asked_at = epoch + HF_MS(10)}, 12);
    expect(&top, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell(&top, HF_N_RELEASED, 13);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_RELEASED, HF_OK);
    tell_held(&granted, 12, 10, 12);
    expect(&granted, HF_S_RELEASING, HF_V_NONE, HF_R_NONE, HF_OK);
    assert_int_equal(granted.claim.valid_until, 0);
}

static void a_conversion_in_flight_hides_neither_the_end_nor_the_loss_of_everything(void **state)
{
    (void)state;
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 10);
    struct table_top all = top, answered = top;
    timer(&top, 988);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    tell_held(&answered, 12, 10, 988);
    expect(&answered, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    send(&all, (struct hf_event){.in = HF_I_LOST_ALL, .status = HF_DAMAGED}, 11);
    expect(&all, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_DAMAGED);
}

static void a_forfeited_hold_is_lost_at_once_and_released_in_the_background(void **state)
{
    (void)state;
    struct table_top top = held(), converting = held();
    wish(&top, HF_I_FORFEIT, 10);
    expect(&top, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
    assert_true(top.move.doubt);
    assert_int_equal(top.claim.valid_until, 0);
    tell(&top, HF_N_RELEASED, 11);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_OK);
    wish(&top, HF_I_FORFEIT, 12);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_NONE, HF_NOT_HELD);
    convert(&converting, HF_V_UPGRADE, 10);
    wish(&converting, HF_I_FORFEIT, 11);
    expect(&converting, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

/* ---- Hints and the plan -------------------------------------------------------------------------------------- */

static void a_hint_checks_a_hold_and_one_that_crossed_an_answer_checks_behind_it(void **state)
{
    (void)state;
    struct table_top top = held(), ended = held();
    tell(&top, HF_N_HINT, 10);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_NONE, HF_OK);
    tell_held(&top, 9, 10, 11);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_NONE, HF_OK);
    wish(&top, HF_I_EXTEND, 20);
    tell(&top, HF_N_HINT, 21);
    expect(&top, HF_S_EXTENDING, HF_V_NONE, HF_R_NONE, HF_OK);
    tell_good(&top, HF_N_EXTENDED, 20, 22);
    expect(&top, HF_S_EXTENDING, HF_V_CHECK, HF_R_EXTENDED, HF_OK);
    tell(&top, HF_N_GONE, 23);
    expect(&top, HF_S_OVER, HF_V_NONE, HF_R_LOST, HF_LOST);
    tell(&ended, HF_N_HINT, 988);
    expect(&ended, HF_S_RELEASING, HF_V_RELEASE, HF_R_LOST, HF_LOST);
}

static void a_hint_from_the_time_of_waiting_does_not_outlive_the_grant(void **state)
{
    (void)state;
    struct table_top top = asking(5000);
    tell(&top, HF_N_HINT, 1);
    tell_good(&top, HF_N_GRANTED, 0, 2);
    wish(&top, HF_I_EXTEND, 20);
    tell_good(&top, HF_N_EXTENDED, 20, 22);
    expect(&top, HF_S_HELD, HF_V_NONE, HF_R_EXTENDED, HF_OK);
}

/* Does what `act` says every 20 ms, answers it, and fails if the renewal is not sent when it is due. */
static void renewal_comes_through(enum hf_input act, enum hf_cue cue)
{
    struct table_top top = held();
    for (int64_t at = 20; at < 334; at += 20) {
        if (act == HF_I_HINT)
            tell(&top, HF_N_HINT, at);
        else
            convert(&top, HF_V_UPGRADE, at);
        if (cue == HF_N_EXTENDED)
            tell_held(&top, 9, at, at + 1);
        else
            tell(&top, cue, at + 1);
        assert_string_equal(hf_state_name(top.claim.state), "HELD");
        assert_true(top.move.wake_at <= epoch + TTL / 3);
    }
    timer(&top, 334);
    expect(&top, HF_S_EXTENDING, HF_V_EXTEND, HF_R_NONE, HF_OK);
}

static void checks_and_conversions_without_end_do_not_put_the_renewal_off(void **state)
{
    (void)state;
    renewal_comes_through(HF_I_HINT, HF_N_EXTENDED);
    renewal_comes_through(HF_I_CONVERT, HF_N_EXTENDED);
    renewal_comes_through(HF_I_CONVERT, HF_N_BUSY);
    struct table_top top = held();
    convert(&top, HF_V_UPGRADE, 320);
    tell(&top, HF_N_FAILED, 321);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3);
    convert(&top, HF_V_UPGRADE, 330);
    tell_held(&top, 12, 330, 500);
    assert_int_equal(top.move.wake_at, epoch + TTL / 3); /* overdue: now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upgrade_brings_a_new_token_and_a_downgrade_keeps_it),
        cmocka_unit_test(an_upgrade_among_others_is_busy_and_the_hold_stays_as_it_was),
        cmocka_unit_test(a_conversion_that_fails_says_why_and_one_of_a_hold_that_is_gone_loses_it),
        cmocka_unit_test(after_an_upgrade_whose_answer_was_lost_the_renewal_brings_the_token),
        cmocka_unit_test(an_upgrade_that_is_executed_after_a_renewal_said_the_old_token_does_not_lose_the_hold),
        cmocka_unit_test(news_from_before_the_upgrade_are_old_and_a_second_grant_may_show_the_new_token),
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
