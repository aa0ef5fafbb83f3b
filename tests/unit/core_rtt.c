/* core_rtt.c - tests of the smoothed round trip: what it learns, and what it makes of it. */
#include "core/rtt.h"

#include "lib/sentence.h"

static void learn(struct rtt *rtt, int64_t took_ms, int times)
{
    for (int i = 0; i < times; i++)
        rtt_learn(rtt, NANOS_OF_MS(1000), NANOS_OF_MS(1000 + took_ms));
}

static void test_first(void **state)
{
    (void)state;
    struct rtt rtt = {0};
    assert_int_equal(rtt_timeout(&rtt), 0); /* nothing is known */
    learn(&rtt, 80, 1);
    assert_int_equal(rtt_timeout(&rtt),
                     NANOS_OF_MS(160)); /* one says little of how much they differ */
}

static void test_steady(void **state)
{
    (void)state;
    struct rtt rtt = {0};
    learn(&rtt, 80, 100);
    assert_int_equal(rtt_timeout(&rtt), NANOS_OF_MS(120));
}

static void test_changes(void **state)
{
    (void)state;
    struct rtt rtt = {0};
    learn(&rtt, 1, 100);
    nanos before = rtt_timeout(&rtt);
    learn(&rtt, 200, 1);
    assert_true(rtt_timeout(&rtt) >= NANOS_OF_MS(200)); /* the next one may take as long */
    learn(&rtt, 1, 100);
    assert_true(rtt_timeout(&rtt) < 2 * before); /* and it is forgotten */
}

static void test_unsteady(void **state)
{
    (void)state;
    struct rtt rtt = {0};
    for (int i = 0; i < 100; i++)
        learn(&rtt, i % 2 ? 20 : 100, 1);
    assert_in_range(rtt_timeout(&rtt), NANOS_OF_MS(100), NANOS_OF_MS(300));
}

/* A clock that stands still or steps back, and an answer that never came in any sensible time. */
static void test_nonsense(void **state)
{
    (void)state;
    struct rtt rtt = {0};
    rtt_learn(&rtt, NANOS_OF_MS(1000), NANOS_OF_MS(1000));
    assert_in_range(rtt_timeout(&rtt), 1, 10);
    rtt_learn(&rtt, NANOS_OF_MS(1000), NANOS_OF_MS(1));
    assert_in_range(rtt_timeout(&rtt), 1, 10);
    for (int i = 0; i < 100; i++)
        rtt_learn(&rtt, 0, TIME_NEVER);
    assert_in_range(rtt_timeout(&rtt), NANOS_OF_MS(60000), NANOS_OF_MS(300000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("behind the first round trip the next one may take twice as long", test_first),
        SENTENCE("a steady connection may take half as long again", test_steady),
        SENTENCE("one slow answer is believed at once, and forgotten in time", test_changes),
        SENTENCE("an unsteady connection may take what its slow answers take", test_unsteady),
        SENTENCE("times that make no sense do no harm", test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
