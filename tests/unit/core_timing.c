/* core_timing.c - tests of the timing sheet: what follows from a ttl, and that nothing in it can
 * overflow or mislead.
 */
#include "core/timing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct engine_limits limits = {
    .ttl_min_ms = 10, .ttl_max_ms = 86400000, .drift_ppm = 10000, .drift_ms = 2};
static const struct timing_overrides no_wishes;

static struct timing sheet_of(int64_t ttl_ms)
{
    struct timing t;
    timing_fill(&t, ttl_ms, &limits, &no_wishes);
    return t;
}

static void a_sheet_for_thirty_seconds_has_the_documented_numbers(void **state)
{
    (void)state;
    struct timing t = sheet_of(30000);
    assert_int_equal(t.ttl, NANOS_OF_MS(30000));
    assert_int_equal(t.renew, NANOS_OF_MS(10000));
    assert_int_equal(t.warn, NANOS_OF_MS(20000));
    assert_int_equal(t.drift, NANOS_OF_MS(302));
    assert_int_equal(t.stop, NANOS_OF_MS(29698));
    assert_int_equal(t.op_timeout, NANOS_OF_MS(500));
    assert_int_equal(t.retry_min, NANOS_OF_MS(50));
    assert_int_equal(t.retry_max, NANOS_OF_MS(1000));
    assert_int_equal(t.release_for, NANOS_OF_MS(60000));
}

static void every_sheet_is_in_order_for_every_ttl_an_engine_may_offer(void **state)
{
    (void)state;
    for (int64_t ttl_ms = 10; ttl_ms <= 86400000; ttl_ms += 1 + ttl_ms / 7) {
        struct timing t = sheet_of(ttl_ms);
        assert_true(0 < t.renew && t.renew <= t.warn && t.warn <= t.stop && t.stop < t.ttl);
        assert_true(t.renew + 2 * t.op_timeout <= t.stop); /* two tries fit behind the first */
        assert_true(0 < t.op_timeout && t.op_timeout <= t.ttl / 5 &&
                    t.op_timeout <= NANOS_OF_MS(500));
        assert_true(0 < t.retry_floor && t.retry_floor <= t.retry_min &&
                    t.retry_min <= t.retry_max);
        assert_int_equal(t.stop, t.ttl - timing_drift(&limits, t.ttl));
        assert_true(0 < t.refresh_first && t.refresh_first <= t.refresh &&
                    t.refresh <= NANOS_OF_MS(5000));
        assert_true(4 * t.handoff_grace >=
                    7 * t.op_timeout); /* a lost request, its time-out and a second try fit */
    }
}

static void a_queue_on_a_server_has_the_documented_numbers(void **state)
{
    (void)state;
    static const struct {
        int64_t ttl_ms, refresh, refresh_first, turn_us; /* the first three in ms */
    } rows[] = {
        {10, 50, 50, 87500},        {100, 50, 50, 87500},          {250, 125, 50, 87500},
        {1000, 500, 50, 200000},    {2000, 1000, 100, 400000},     {5000, 2500, 250, 900000},
        {9000, 4500, 450, 900000},  {10000, 5000, 500, 900000},    {30000, 5000, 500, 900000},
        {60000, 5000, 500, 900000}, {86400000, 5000, 500, 900000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct timing t = sheet_of(rows[i].ttl_ms);
        assert_int_equal(t.refresh, NANOS_OF_MS(rows[i].refresh));
        assert_int_equal(t.refresh_first, NANOS_OF_MS(rows[i].refresh_first));
        assert_int_equal(t.handoff_grace, 1000 * rows[i].turn_us);
        assert_int_equal(t.margin, NANOS_OF_MS(4));
        assert_int_equal(t.stagger, NANOS_OF_MS(20));
    }
}

static void
the_grace_of_a_handoff_leaves_the_time_for_a_second_try_however_long_one_may_take(void **state)
{
    (void)state;
    struct timing t;
    for (int64_t op_ms = 1; op_ms <= 20000; op_ms = op_ms * 2 + 1) {
        timing_fill(&t, 10000, &limits, &(struct timing_overrides){.op_timeout_ms = op_ms});
        assert_true(4 * t.handoff_grace >= 7 * t.op_timeout && t.handoff_grace >= NANOS_OF_MS(875));
        assert_true(t.refresh_first <= t.refresh);
    }
}

static void wishes_override_what_is_derived_but_not_what_must_hold(void **state)
{
    (void)state;
    struct timing t;
    struct timing_overrides overrides = {
        .op_timeout_ms = 200, .retry_min_ms = 5, .retry_max_ms = 70, .renew_permille = 250};
    timing_fill(&t, 10000, &limits, &overrides);
    assert_int_equal(t.op_timeout, NANOS_OF_MS(200));
    assert_int_equal(t.retry_min, NANOS_OF_MS(5));
    assert_int_equal(t.retry_max, NANOS_OF_MS(70));
    assert_int_equal(t.renew, NANOS_OF_MS(2500));

    overrides = (struct timing_overrides){
        .op_timeout_ms = 9000, .retry_min_ms = 300, .retry_max_ms = 100, .renew_permille = 999};
    timing_fill(&t, 10000, &limits, &overrides);
    assert_int_equal(t.op_timeout, NANOS_OF_MS(2000));
    assert_int_equal(t.retry_max, NANOS_OF_MS(300));
    assert_int_equal(t.renew, t.stop - 2 * t.op_timeout);
}

static nanos op_timeout_of(int64_t ttl_ms, int64_t set_ms, int64_t takes_ms)
{
    struct timing t;
    struct timing_overrides overrides = {.op_timeout_ms = set_ms, .takes = NANOS_OF_MS(takes_ms)};
    timing_fill(&t, ttl_ms, &limits, &overrides);
    assert_true(4 * t.handoff_grace >= 7 * t.op_timeout && t.renew + 2 * t.op_timeout <= t.stop);
    return t.op_timeout / NANOS_OF_MS(1);
}

static void a_request_may_take_what_the_connection_takes_as_far_as_the_ttl_allows(void **state)
{
    (void)state;
    assert_int_equal(op_timeout_of(1000, 0, 0), 50);
    assert_int_equal(op_timeout_of(1000, 0, 1), 50); /* a quick one shortens nothing */
    assert_int_equal(op_timeout_of(1000, 0, 120), 120);
    assert_int_equal(op_timeout_of(1000, 0, 240), 200); /* a fifth of the ttl */
    assert_int_equal(op_timeout_of(30000, 0, 240), 500);
    assert_int_equal(op_timeout_of(30000, 0, 1200), 1200);
    assert_int_equal(op_timeout_of(30000, 0, 60000), 2000);
    assert_int_equal(op_timeout_of(30000, 70, 1200), 70); /* what is set counts */
}

static nanos answer_of(int64_t ttl_ms, uint32_t offers, struct timing_overrides overrides)
{
    struct timing t;
    struct engine_limits some = limits;
    some.offers = offers;
    timing_fill(&t, ttl_ms, &some, &overrides);
    return t.answer / NANOS_OF_MS(1);
}

static void
one_who_does_not_wait_gives_a_request_one_op_timeout_and_the_time_to_connect(void **state)
{
    (void)state;
    assert_int_equal(answer_of(30000, ENGINE_QUEUES, (struct timing_overrides){0}), 500);
    assert_int_equal(answer_of(1000, ENGINE_QUEUES, (struct timing_overrides){0}), 500);
    assert_int_equal(answer_of(1000, ENGINE_QUEUES, (struct timing_overrides){.op_timeout_ms = 30}),
                     30);
    assert_int_equal(
        answer_of(30000, ENGINE_QUEUES, (struct timing_overrides){.takes = NANOS_OF_MS(1500)}),
        2000);
    assert_int_equal(
        answer_of(1000, ENGINE_QUEUES, (struct timing_overrides){.takes = NANOS_OF_MS(100)}), 700);
    assert_int_equal(
        answer_of(30000, ENGINE_QUEUES, (struct timing_overrides){.acknowledge_ms = 1000}), 2500);
    assert_int_equal(answer_of(1000, 0, (struct timing_overrides){0}),
                     100); /* a quorum asks in rounds */
}

static void a_ttl_that_the_drift_eats_up_leaves_no_time_at_all(void **state)
{
    (void)state;
    struct timing t = sheet_of(1);
    assert_int_equal(t.stop, 0);
}

static void drift_is_rounded_up_and_never_shrinks_with_the_interval(void **state)
{
    (void)state;
    struct engine_limits ppm_only = {.drift_ppm = 1};
    assert_int_equal(timing_drift(&ppm_only, 0), 0);
    assert_int_equal(timing_drift(&ppm_only, 1), 1);
    assert_int_equal(timing_drift(&ppm_only, 1000000), 1);
    assert_int_equal(timing_drift(&ppm_only, 1000001), 2);
    nanos before = 0;
    for (nanos length = 1; length < NANOS_OF_MS(86400000); length = length * 5 / 3 + 1) {
        nanos drift = timing_drift(&limits, length);
        assert_true(drift >= before && drift >= length / 100 + NANOS_OF_MS(2));
        before = drift;
    }
}

static void a_share_is_the_part_itself_for_a_full_validity_and_in_proportion_below(void **state)
{
    (void)state;
    struct timing t = sheet_of(30000);
    assert_int_equal(timing_share(&t, t.renew, t.stop), t.renew);
    assert_int_equal(timing_share(&t, t.renew, t.stop * 4), t.renew);
    nanos half = timing_share(&t, t.renew, t.stop / 2);
    assert_true(half > t.renew / 2 - NANOS_OF_MS(50) && half < t.renew / 2 + NANOS_OF_MS(50));
    assert_int_equal(timing_share(&t, t.renew, 0), 0);
}

static void milliseconds_that_would_overflow_become_the_longest_interval(void **state)
{
    (void)state;
    assert_int_equal(timing_nanos(1), 1000000);
    assert_true(timing_nanos(INT64_MAX) > NANOS_OF_MS(86400000));
    assert_true(timing_nanos(INT64_MAX) < TIME_NEVER - 4 * NANOS_OF_MS(86400000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sheet_for_thirty_seconds_has_the_documented_numbers),
        cmocka_unit_test(every_sheet_is_in_order_for_every_ttl_an_engine_may_offer),
        cmocka_unit_test(a_queue_on_a_server_has_the_documented_numbers),
        cmocka_unit_test(
            the_grace_of_a_handoff_leaves_the_time_for_a_second_try_however_long_one_may_take),
        cmocka_unit_test(wishes_override_what_is_derived_but_not_what_must_hold),
        cmocka_unit_test(a_ttl_that_the_drift_eats_up_leaves_no_time_at_all),
        cmocka_unit_test(drift_is_rounded_up_and_never_shrinks_with_the_interval),
        cmocka_unit_test(a_share_is_the_part_itself_for_a_full_validity_and_in_proportion_below),
        cmocka_unit_test(milliseconds_that_would_overflow_become_the_longest_interval),
        cmocka_unit_test(a_request_may_take_what_the_connection_takes_as_far_as_the_ttl_allows),
        cmocka_unit_test(
            one_who_does_not_wait_gives_a_request_one_op_timeout_and_the_time_to_connect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
