/* kit_connection_numbers.c - tests of the numbers that are handed out to connections. */
#include "engines/kit/connection_numbers.h"

#include "lib/sentence.h"

static unsigned reserved;
static bool has_memory;

static bool reserve(void *ctx, unsigned count)
{
    (void)ctx;
    reserved = has_memory ? count : reserved;
    return has_memory;
}

static const struct wire_engine_host host = {.reserve = reserve};

static void test_lowest_first(void **state)
{
    struct connection_numbers numbers = {0};
    int a, b, c;
    (void)state;
    assert_true(connection_numbers_reserve(&numbers, 8, &host));
    assert_int_equal(connection_numbers_take(&numbers, 3, &a), 0);
    assert_int_equal(connection_numbers_take(&numbers, 2, &b), 3);
    assert_ptr_equal(connection_numbers_owner(&numbers, 2), &a);
    assert_ptr_equal(connection_numbers_owner(&numbers, 4), &b);
    assert_null(connection_numbers_owner(&numbers, 5));
    assert_null(connection_numbers_owner(&numbers, 5000));

    connection_numbers_give_back(&numbers, 0, 3);
    assert_null(connection_numbers_owner(&numbers, 0));
    assert_int_equal(connection_numbers_take(&numbers, 2, &c), 0);
    assert_int_equal(connection_numbers_take(&numbers, 3, &c), 5); /* the hole is too small */
    assert_int_equal(connection_numbers_take(&numbers, 1, &c), 2);
    assert_int_equal(connection_numbers_take(&numbers, 1, &c), -1);
    connection_numbers_free(&numbers);
}

/* Beyond one group each, the host must have room before a number is handed out. */
static void test_reserve(void **state)
{
    struct connection_numbers numbers = {0};
    int owner;
    (void)state;
    reserved = 0;
    has_memory = false;
    assert_true(connection_numbers_reserve(&numbers, CONNECTION_GROUPS, &host));
    assert_false(connection_numbers_reserve(&numbers, CONNECTION_GROUPS + 1, &host));
    for (int i = 0; i < CONNECTION_GROUPS; i++)
        assert_int_equal(connection_numbers_take(&numbers, 1, &owner), i);
    assert_int_equal(connection_numbers_take(&numbers, 1, &owner), -1);

    has_memory = true;
    assert_true(connection_numbers_reserve(&numbers, 1000, &host));
    assert_int_equal(reserved, 1000);
    for (int i = CONNECTION_GROUPS; i < 1000; i++)
        assert_int_equal(connection_numbers_take(&numbers, 1, &owner), i);
    connection_numbers_free(&numbers);
}

static void test_sets(void **state)
{
    (void)state;
    assert_true(connection_set_of(5) == UINT64_C(1) << 5);
    assert_true(connection_set_of(5 + 3 * CONNECTION_GROUPS) == connection_set_of(5));
    for (unsigned by = 0; by < 200; by++)
        for (unsigned i = 0; i < 3; i++)
            assert_true(connection_set_raised(connection_set_of(i), by) ==
                        connection_set_of(i + by));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("the lowest free numbers are handed out", test_lowest_first),
        SENTENCE("no number is handed out that the host has no room for", test_reserve),
        SENTENCE("a set raised by a number has the connections that are higher by it", test_sets),
    };
    return cmocka_run_group_tests_name("numbers of connections", tests, NULL, NULL);
}
