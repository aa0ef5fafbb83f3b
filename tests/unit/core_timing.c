/* core_timing.c - tests of the timing sheet: what follows from a ttl, and that nothing in it can overflow or mislead.
 */
#include "core/timing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct hf_limits limits = {.ttl_min_ms = 10, .ttl_max_ms = 86400000, .drift_ppm = 10000, .drift_ms = 2};
static const struct hf_timing_wishes no_wishes;

static struct hf_timing sheet_of(int64_t ttl_ms)
{
    struct hf_timing t;
    hf_timing_fill(&t, ttl_ms, &limits, &no_wishes);
    return t;
}

static void a_sheet_for_thirty_seconds_has_the_documented_numbers(void **state)
{
    (void)state;
    struct hf_timing t = sheet_of(30000);
    assert_int_equal(t.ttl, HF_MS(30000));
    assert_int_equal(t.renew, HF_MS(10000));
    assert_int_equal(t.warn, HF_MS(20000));
    assert_int_equal(t.drift, HF_MS(302));
    assert_int_equal(t.stop, HF_MS(29698));
    assert_int_equal(t.op_timeout, HF_MS(500));
    assert_int_equal(t.retry_min, HF_MS(50));
    assert_int_equal(t.retry_max, HF_MS(1000));
    assert_int_equal(t.release_for, HF_MS(60000));
}

static void every_sheet_is_in_order_for_every_ttl_an_engine_may_offer(void **state)
{
    (void)state;
    for (int64_t ttl_ms = 10; ttl_ms <= 86400000; ttl_ms += 1 + ttl_ms / 7) {
        struct hf_timing t = sheet_of(ttl_ms);
        assert_true(0 < t.renew && t.renew <= t.warn && t.warn <= t.stop && t.stop < t.ttl);
        assert_true(t.renew + 2 * t.op_timeout <= t.stop); /* two tries fit behind the first */
        assert_true(0 < t.op_timeout && t.op_timeout <= t.ttl / 5 && t.op_timeout <= HF_MS(500));
        assert_true(0 < t.retry_floor && t.retry_floor <= t.retry_min && t.retry_min <= t.retry_max);
        assert_int_equal(t.stop, t.ttl - hf_timing_drift(&limits, t.ttl));
        assert_true(0 < t.refresh_first && t.refresh_first <= t.refresh && t.refresh <= HF_MS(5000));
        assert_true(t.turn >= 4 * t.op_timeout);
    }
}

static void a_queue_on_a_server_has_the_documented_numbers(void **state)
{
    (void)state;
    static const struct {
        int64_t ttl_ms, refresh, refresh_first, turn; /* in ms */
    } rows[] = {
        {10, 50, 50, 8},          {100, 50, 50, 80},        {250, 125, 50, 200},         {1000, 500, 50, 200},
        {2000, 1000, 100, 400},   {5000, 2500, 250, 1000},  {9000, 4500, 450, 1800},     {10000, 5000, 500, 2000},
        {30000, 5000, 500, 2000}, {60000, 5000, 500, 2000}, {86400000, 5000, 500, 2000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_timing t = sheet_of(rows[i].ttl_ms);
        assert_int_equal(t.refresh, HF_MS(rows[i].refresh));
        assert_int_equal(t.refresh_first, HF_MS(rows[i].refresh_first));
        assert_int_equal(t.turn, HF_MS(rows[i].turn));
        assert_int_equal(t.margin, HF_MS(4));
        assert_int_equal(t.stagger, HF_MS(20));
    }
}

static void a_turn_leaves_the_time_for_four_requests_however_long_one_may_take(void **state)
{
    (void)state;
    struct hf_timing t;
    for (int64_t op_ms = 1; op_ms <= 20000; op_ms = op_ms * 2 + 1) {
        hf_timing_fill(&t, 10000, &limits, &(struct hf_timing_wishes){.op_timeout_ms = op_ms});
        assert_true(t.turn >= 4 * t.op_timeout && t.turn >= HF_MS(2000));
        assert_true(t.refresh_first <= t.refresh);
    }
}

static void wishes_override_what_is_derived_but_not_what_must_hold(void **state)
{
    (void)state;
    struct hf_timing t;
    struct hf_timing_wishes wishes = {
        .op_timeout_ms = 200, .retry_min_ms = 5, .retry_max_ms = 70, .renew_permille = 250};
    hf_timing_fill(&t, 10000, &limits, &wishes);
    assert_int_equal(t.op_timeout, HF_MS(200));
    assert_int_equal(t.retry_min, HF_MS(5));
    assert_int_equal(t.retry_max, HF_MS(70));
    assert_int_equal(t.renew, HF_MS(2500));

    wishes = (struct hf_timing_wishes){
        .op_timeout_ms = 9000, .retry_min_ms = 300, .retry_max_ms = 100, .renew_permille = 999};
    hf_timing_fill(&t, 10000, &limits, &wishes);
    assert_int_equal(t.op_timeout, HF_MS(2000));
    assert_int_equal(t.retry_max, HF_MS(300));
    assert_int_equal(t.renew, t.stop - 2 * t.op_timeout);
}

static void a_ttl_that_the_drift_eats_up_leaves_no_time_at_all(void **state)
{
    (void)state;
    struct hf_timing t = sheet_of(1);
    assert_int_equal(t.stop, 0);
}

static void drift_is_rounded_up_and_never_shrinks_with_the_interval(void **state)
{
    (void)state;
    struct hf_limits ppm_only = {.drift_ppm = 1};
    assert_int_equal(hf_timing_drift(&ppm_only, 0), 0);
    assert_int_equal(hf_timing_drift(&ppm_only, 1), 1);
    assert_int_equal(hf_timing_drift(&ppm_only, 1000000), 1);
    assert_int_equal(hf_timing_drift(&ppm_only, 1000001), 2);
    hf_nanos before = 0;
    for (hf_nanos length = 1; length < HF_MS(86400000); length = length * 5 / 3 + 1) {
        hf_nanos drift = hf_timing_drift(&limits, length);
        assert_true(drift >= before && drift >= length / 100 + HF_MS(2));
        before = drift;
    }
}

static void a_share_is_the_part_itself_for_a_full_validity_and_in_proportion_below(void **state)
{
    (void)state;
    struct hf_timing t = sheet_of(30000);
    assert_int_equal(hf_timing_share(&t, t.renew, t.stop), t.renew);
    assert_int_equal(hf_timing_share(&t, t.renew, t.stop * 4), t.renew);
    hf_nanos half = hf_timing_share(&t, t.renew, t.stop / 2);
    assert_true(half > t.renew / 2 - HF_MS(50) && half < t.renew / 2 + HF_MS(50));
    assert_int_equal(hf_timing_share(&t, t.renew, 0), 0);
}

static void milliseconds_that_would_overflow_become_the_longest_interval(void **state)
{
    (void)state;
    assert_int_equal(hf_timing_nanos(1), 1000000);
    assert_true(hf_timing_nanos(INT64_MAX) > HF_MS(86400000));
    assert_true(hf_timing_nanos(INT64_MAX) < HF_NEVER - 4 * HF_MS(86400000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sheet_for_thirty_seconds_has_the_documented_numbers),
        cmocka_unit_test(every_sheet_is_in_order_for_every_ttl_an_engine_may_offer),
        cmocka_unit_test(a_queue_on_a_server_has_the_documented_numbers),
        cmocka_unit_test(a_turn_leaves_the_time_for_four_requests_however_long_one_may_take),
        cmocka_unit_test(wishes_override_what_is_derived_but_not_what_must_hold),
        cmocka_unit_test(a_ttl_that_the_drift_eats_up_leaves_no_time_at_all),
        cmocka_unit_test(drift_is_rounded_up_and_never_shrinks_with_the_interval),
        cmocka_unit_test(a_share_is_the_part_itself_for_a_full_validity_and_in_proportion_below),
        cmocka_unit_test(milliseconds_that_would_overflow_become_the_longest_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
