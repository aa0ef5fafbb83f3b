/* core_entry_order.c - tests of who holds: kinds, barriers, confirmed entries, resizes. */
#include "core/entry_order.h"

#include "lib/sentence.h"

#define E                                                                                          \
    {                                                                                              \
        .kind = HF_EXCLUSIVE                                                                       \
    }
#define R                                                                                          \
    {                                                                                              \
        .kind = HF_READ                                                                            \
    }
#define W                                                                                          \
    {                                                                                              \
        .kind = HF_WRITE                                                                           \
    }
#define FOREIGN                                                                                    \
    {                                                                                              \
        .kind = HF_EXCLUSIVE, .foreign = true                                                      \
    }
#define S(u, c)                                                                                    \
    {                                                                                              \
        .kind = HF_SEMAPHORE, .units = u, .capacity = c                                            \
    }
#define CONFIRMED(u, c)                                                                            \
    {                                                                                              \
        .kind = HF_SEMAPHORE, .units = u, .capacity = c, .confirmed = true                         \
    }

/* Judges the entries, and compares: `expected` has an h for each that holds, else its place. */
#define JUDGES(expected, resize, ...)                                                              \
    do {                                                                                           \
        struct queue_entry entries[] = {__VA_ARGS__};                                              \
        judges(entries, sizeof entries / sizeof *entries, resize, expected);                       \
    } while (0)

static const struct queue_resize none;

static void judges(struct queue_entry *entries, size_t count, struct queue_resize resize,
                   const char *expected)
{
    char got[32] = "";
    for (size_t i = 0; i < count; i++)
        entries[i].arrival = 10 + i;
    struct queue_summary summary = entry_order_judge(entries, count, resize);
    for (size_t i = 0; i < count; i++)
        got[i] = entries[i].holds ? 'h' : (char)('0' + entries[i].place);
    assert_string_equal(got, expected);
    assert_int_equal(summary.holders + summary.waiters, count);
}

static void test_exclusive(void **state)
{
    (void)state;
    JUDGES("h", none, E);
    JUDGES("h12", none, E, E, E);
}

static void test_read_write(void **state)
{
    (void)state;
    JUDGES("hh123", none, R, R, W, R, R);
    JUDGES("h12", none, W, R, R);
}

static void test_semaphore(void **state)
{
    (void)state;
    JUDGES("hh1", none, S(2, 3), S(1, 3), S(1, 3));
    JUDGES("h12", none, S(2, 3), S(2, 3), S(1, 3));
    JUDGES("1", none, S(4, 3));
}

static void test_barriers(void **state)
{
    (void)state;
    JUDGES("h12", none, FOREIGN, E, R);
    JUDGES("h12", none, R, FOREIGN, R);
    JUDGES("h12", none, S(1, 3), S(1, 5), S(1, 3));
    JUDGES("h12", none, S(1, 5), E, S(1, 5));
}

static void test_resize(void **state)
{
    struct queue_resize to_one = {.declared = 3, .capacity = 1},
                        to_four = {.declared = 3, .capacity = 4};
    (void)state;
    JUDGES("hh1", to_one, CONFIRMED(1, 3), CONFIRMED(1, 3), S(1, 3));
    JUDGES("h1h", to_one, CONFIRMED(1, 3), S(1, 3), CONFIRMED(1, 3));
    JUDGES("hh", to_four, S(3, 3), S(1, 3));
    JUDGES("h1", to_four, S(3, 3), S(1, 4));
}

static void test_agreement(void **state)
{
    struct queue_entry e = E, r = R, w = W, s3 = S(1, 3), s4 = S(2, 4), native = FOREIGN;
    (void)state;
    assert_true(entry_order_agree(&r, &w) && entry_order_agree(&s3, &s3));
    assert_true(entry_order_agree(&e, &native) && entry_order_agree(&native, &native));
    assert_false(entry_order_agree(&s3, &s4) || entry_order_agree(&e, &r));
    assert_false(entry_order_agree(&native, &r) || entry_order_agree(&s3, &native));
}

static void test_hostile_numbers(void **state)
{
    (void)state;
    JUDGES("hh1", none, CONFIRMED(UINT32_MAX, UINT32_MAX), CONFIRMED(UINT32_MAX, UINT32_MAX),
           S(3, UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("the oldest exclusive entry holds", test_exclusive),
        SENTENCE("readers share, a writer is alone, and nobody passes a waiter", test_read_write),
        SENTENCE("permits are given out in order while they fit", test_semaphore),
        SENTENCE("an entry that is foreign or disagrees is a barrier", test_barriers),
        SENTENCE("a smaller capacity ends no confirmed hold, a larger one lets in", test_resize),
        SENTENCE("kinds and capacities agree or not", test_agreement),
        SENTENCE("numbers that overflow let nobody in", test_hostile_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
