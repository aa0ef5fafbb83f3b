/* core_backoff.c - tests of the back-off: its bounds, its spread, and that it never spins. */
#include "core/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct timing t = {.retry_min = NANOS_OF_MS(50),
                                .retry_max = NANOS_OF_MS(1000),
                                .retry_floor = NANOS_OF_MS(1),
                                .ttl = NANOS_OF_MS(30000)};

static nanos ceiling_of(uint32_t tries)
{
    nanos ceiling = t.retry_min;
    while (tries-- && ceiling < t.retry_max)
        ceiling *= 2;
    return ceiling < t.retry_max ? ceiling : t.retry_max;
}

static void the_smallest_random_number_gives_the_floor_and_the_largest_the_ceiling(void **state)
{
    (void)state;
    for (uint32_t tries = 0; tries < 70; tries++) {
        nanos most = backoff_pause(&t, tries, UINT32_MAX);
        assert_int_equal(backoff_pause(&t, tries, 0), t.retry_floor);
        assert_true(most <= ceiling_of(tries) && most > ceiling_of(tries) - 1000);
    }
    assert_true(backoff_pause(&t, UINT32_MAX, UINT32_MAX) <= t.retry_max);
}

static void a_pause_rises_with_the_random_number_so_that_an_even_draw_is_an_even_pause(void **state)
{
    (void)state;
    nanos before = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        nanos pause = backoff_pause(&t, 9, i * (UINT32_MAX / 1000));
        assert_true(pause > before);
        before = pause;
    }
    nanos middle = backoff_pause(&t, 9, UINT32_MAX / 2);
    assert_true(middle > NANOS_OF_MS(495) && middle < NANOS_OF_MS(505));
}

static void the_longest_pauses_that_settings_allow_do_not_overflow(void **state)
{
    (void)state;
    struct timing wide = {.retry_min = NANOS_OF_MS(1),
                          .retry_max = timing_nanos(INT64_MAX),
                          .retry_floor = NANOS_OF_MS(1)};
    for (uint32_t tries = 0; tries < 100; tries++) {
        nanos pause = backoff_pause(&wide, tries, UINT32_MAX);
        assert_true(pause >= wide.retry_floor && pause <= wide.retry_max);
    }
    assert_true(backoff_pause(&wide, 100, UINT32_MAX) > wide.retry_max / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_random_number_gives_the_floor_and_the_largest_the_ceiling),
        cmocka_unit_test(
            a_pause_rises_with_the_random_number_so_that_an_even_draw_is_an_even_pause),
        cmocka_unit_test(the_longest_pauses_that_settings_allow_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
