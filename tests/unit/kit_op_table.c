/* kit_op_table.c - tests of the table of ops that an engine knows. */
#include "engines/kit/op_table.h"

#include "lib/sentence.h"

#include <stdlib.h>

struct kept {
    struct known_op known;
    uint64_t mark;
};

enum { OPS = 1000 };

static struct engine_op op[OPS];

static struct id attempt_of(uint32_t number)
{
    struct id id = {{0}};
    uint32_t hash = number % 7; /* few hashes: chains are long */
    memcpy(id.b, &hash, sizeof hash);
    memcpy(id.b + 8, &number, sizeof number);
    return id;
}

static void add_all(struct op_table *table)
{
    for (uint32_t i = 0; i < OPS; i++) {
        op[i] = (struct engine_op){.attempt = attempt_of(i)};
        struct kept *kept = op_table_add(table, &op[i], sizeof *kept);
        assert_non_null(kept);
        assert_int_equal(kept->mark, 0);
        assert_null(kept->known.active);
        kept->mark = i;
    }
}

static void test_found(void **state)
{
    (void)state;
    struct op_table table = {.size = sizeof(struct kept)};
    struct id unknown = attempt_of(OPS);
    assert_null(op_table_find(&table, &unknown));
    add_all(&table);
    assert_int_equal(table.count, OPS);
    assert_null(op_table_find(&table, &unknown));
    for (uint32_t i = 0; i < OPS; i++) {
        struct id id = attempt_of(i);
        struct known_op *known = op_table_find(&table, &id);
        assert_non_null(known);
        assert_ptr_equal(known->op, &op[i]);
        assert_ptr_equal(op[i].engine_state, known);
        assert_int_equal(((struct kept *)known)->mark, i);
        assert_null(op_table_next(known));
    }
    op_table_free(&table);
}

static void test_same_attempt(void **state)
{
    (void)state;
    struct op_table table = {.size = sizeof(struct kept)};
    struct engine_op first = {.attempt = attempt_of(3)}, second = {.attempt = attempt_of(3)};
    struct known_op *one = op_table_add(&table, &first, sizeof(struct kept));
    struct known_op *two = op_table_add(&table, &second, sizeof(struct kept));
    struct known_op *found = op_table_find(&table, &first.attempt);
    assert_ptr_equal(found, two);
    assert_ptr_equal(op_table_next(found), one);
    op_table_drop(&table, two);
    assert_ptr_equal(op_table_find(&table, &first.attempt), one);
    assert_null(op_table_next(one));
    assert_null(second.engine_state);
    op_table_free(&table);
}

static void test_dropped(void **state)
{
    (void)state;
    struct op_table table = {.size = sizeof(struct kept)};
    add_all(&table);
    for (uint32_t i = 0; i < OPS; i += 2)
        op_table_drop(&table, op[i].engine_state);
    assert_int_equal(table.count, OPS / 2);
    for (uint32_t i = 0; i < OPS; i++) {
        struct known_op *known = op_table_find(&table, &op[i].attempt);
        assert_int_equal(known != NULL, i % 2);
    }
    for (uint32_t i = 0; i < OPS; i += 2) { /* their memory is used again, cleared */
        struct kept *kept = op_table_add(&table, &op[i], sizeof *kept);
        assert_int_equal(kept->mark, 0);
        kept->mark = 1;
    }
    assert_int_equal(table.count, OPS);
    op_table_free(&table);
    assert_int_equal(table.count, 0);
    add_all(&table); /* it can be used again */
    op_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("every op is found by its attempt", test_found),
        SENTENCE("ops of one attempt are found one after the other", test_same_attempt),
        SENTENCE("a dropped op is gone, and its memory used again", test_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
