/* core_id.c - tests of the ids that are made from callers' texts. */
#include "core/id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXTS 200000
#define LONGEST 64 /* what callers may give */

static struct id id_of(char salt, const char *text, size_t len)
{
    struct id id;
    id_of_text(&id, salt, text, len);
    return id;
}

static bool same(struct id a, struct id b)
{
    return !memcmp(&a, &b, sizeof a);
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct id));
}

static int compare_halves(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct id) / 2);
}

/* Neither whole ids nor their halves repeat: each half alone is a hash of 64 bits. */
static void expect_all_different(struct id *ids, size_t count)
{
    qsort(ids, count, sizeof *ids, compare);
    for (size_t i = 1; i < count; i++)
        assert_int_not_equal(compare_halves(&ids[i - 1], &ids[i]), 0);
    for (size_t i = 0; i < count; i++)
        memmove(ids[i].b, ids[i].b + 8, 8);
    qsort(ids, count, sizeof *ids, compare_halves);
    for (size_t i = 1; i < count; i++)
        assert_int_not_equal(compare_halves(&ids[i - 1], &ids[i]), 0);
}

static void the_same_text_gives_the_same_id_on_every_machine(void **state)
{
    (void)state;
    char copy[] = "worker-7";
    assert_true(same(id_of('o', "worker-7", 8), id_of('o', copy, 8)));
    /* Processes of different builds meet by it: a change of the hash is a change of the protocol.
     */
    static const struct id known = {{0x3d, 0x4d, 0xe9, 0x1b, 0x40, 0xe8, 0x9a, 0x95, 0x32, 0x4c,
                                     0x9c, 0xbd, 0xaf, 0xf6, 0xe9, 0x8c}};
    assert_memory_equal(id_of('o', copy, 8).b, known.b, sizeof known.b);
}

static void an_owner_and_an_attempt_of_the_same_text_are_two_ids(void **state)
{
    (void)state;
    char text[LONGEST];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len <= LONGEST; len++)
        assert_false(same(id_of('o', text, len), id_of('a', text, len)));
}

static void two_hundred_thousand_texts_do_not_collide(void **state)
{
    (void)state;
    static struct id ids[TEXTS];
    char text[LONGEST];
    for (unsigned i = 0; i < TEXTS; i++) {
        int len = snprintf(text, sizeof text, i % 2 ? "host-%u/worker" : "job:%08x", i);
        ids[i] = id_of('o', text, (size_t)len);
    }
    expect_all_different(ids, TEXTS);
}

static void prefixes_suffixes_and_repetitions_do_not_collide(void **state)
{
    (void)state;
    static struct id ids[4 * LONGEST * 256];
    size_t count = 0;
    char text[LONGEST];
    for (unsigned byte = 0; byte < 256; byte++) {
        for (size_t len = 2; len <= LONGEST; len++) {
            memset(text, 'a', sizeof text);
            text[0] = (char)byte; /* every byte in front, */
            if (byte != 'a')
                ids[count++] = id_of('o', text, len);
            text[0] = 'a', text[len - 1] = (char)byte; /* at the end, */
            if (byte != 'a')
                ids[count++] = id_of('o', text, len);
            memset(text, (int)byte, len); /* and throughout */
            ids[count++] = id_of('o', text, len);
        }
    }
    expect_all_different(ids, count);
}

static void one_bit_of_the_text_changes_about_half_of_the_id(void **state)
{
    (void)state;
    char text[LONGEST] = "a text of sixty-four bytes, which is the longest that is allowed";
    struct id before = id_of('a', text, LONGEST);
    for (unsigned bit = 0; bit < LONGEST * 8; bit++) {
        int changed = 0;
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        struct id after = id_of('a', text, LONGEST);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        for (unsigned i = 0; i < sizeof after.b; i++)
            changed += __builtin_popcount((unsigned)(before.b[i] ^ after.b[i]));
        assert_in_range(changed, 32, 96);
    }
}

static void the_empty_text_has_an_id_and_nothing_behind_the_length_is_read(void **state)
{
    (void)state;
    struct id zero = {{0}};
    char *exact = malloc(LONGEST); /* the sanitizer guards its end */
    assert_non_null(exact);
    memset(exact, 'z', LONGEST);
    assert_false(same(id_of('o', exact, 0), zero));
    assert_true(same(id_of('o', exact, 0), id_of('o', "other", 0)));
    assert_false(same(id_of('o', exact, LONGEST), id_of('o', exact, LONGEST - 1)));
    free(exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_text_gives_the_same_id_on_every_machine),
        cmocka_unit_test(an_owner_and_an_attempt_of_the_same_text_are_two_ids),
        cmocka_unit_test(two_hundred_thousand_texts_do_not_collide),
        cmocka_unit_test(prefixes_suffixes_and_repetitions_do_not_collide),
        cmocka_unit_test(one_bit_of_the_text_changes_about_half_of_the_id),
        cmocka_unit_test(the_empty_text_has_an_id_and_nothing_behind_the_length_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
