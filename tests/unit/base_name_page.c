/* base_name_page.c - tests of a page of names, against a sorted copy of all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name_page.h"
#include "lib/sentence.h"

enum { NAMES = 700, ROUNDS = 60 };

static char all[NAMES][24];

static int by_bytes(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Repeatable numbers; their quality does not matter. */
static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static void make_names(uint64_t *seed)
{
    for (int i = 0; i < NAMES; i++)
        snprintf(all[i], sizeof all[i], "%s%u", draw(seed, 3) ? "job/" : "own/", draw(seed, 2000));
}

/* Adds all names in a random order, some of them twice. */
static void fill(struct name_page *page, uint64_t *seed)
{
    for (int i = 0; i < NAMES; i++) {
        uint32_t twice = draw(seed, NAMES);
        name_page_add(page, all[i], strlen(all[i]));
        if (twice <= (uint32_t)i)
            name_page_add(page, all[twice], strlen(all[twice]));
    }
}

static void check_page(const struct name_page *page, const struct name_range *range)
{
    static char sorted[NAMES][24];
    uint32_t count = 0;
    bool has_more = false;
    memcpy(sorted, all, sizeof all);
    qsort(sorted, NAMES, sizeof sorted[0], by_bytes);

    for (int i = 0; i < NAMES; i++) {
        bool is_again = i > 0 && strcmp(sorted[i], sorted[i - 1]) == 0;
        bool is_left_out = *range->except && strncmp(sorted[i], range->except, 4) == 0;
        if (is_again || is_left_out || strcmp(sorted[i], range->after) <= 0)
            continue;
        has_more |= count == range->most;
        if (count < range->most)
            assert_string_equal(name_page_at(page, count++), sorted[i]);
    }
    assert_int_equal(page->count, count);
    assert_int_equal(page->has_more, has_more);
    if (has_more)
        assert_string_equal(name_page_end(page), name_page_at(page, count - 1));
    else
        assert_null(name_page_end(page));
}

static void test_first_names(void **state)
{
    (void)state;
    uint64_t seed = 7;

    for (int round = 0; round < ROUNDS; round++) {
        struct name_page page;
        struct name_range range = {.after = "", .except = "", .most = 1 + draw(&seed, NAMES + 100)};
        char after[24];
        make_names(&seed);
        snprintf(after, sizeof after, "%s", all[draw(&seed, NAMES)]);
        range.after = draw(&seed, 3) ? after : "";
        range.except = draw(&seed, 2) ? "own/" : "";
        assert_int_equal(name_page_open(&page, &range), HF_OK);
        fill(&page, &seed);
        check_page(&page, &range);
        name_page_free(&page);
    }
}

static void test_longest(void **state)
{
    (void)state;
    struct name_page page;
    char name[HF_NAME_MAX + 1];
    memset(name, 'n', HF_NAME_MAX);
    name[HF_NAME_MAX] = 0;

    assert_int_equal(
        name_page_open(&page, &(struct name_range){.after = "", .except = "", .most = 1}), HF_OK);
    name_page_add(&page, name, HF_NAME_MAX);
    assert_string_equal(name_page_at(&page, 0), name);
    assert_null(name_page_end(&page));
    name_page_add(&page, "m", 1);
    assert_string_equal(name_page_at(&page, 0), "m");
    assert_string_equal(name_page_end(&page), "m");
    name_page_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a page has the first names behind the given one, each once, in byte order",
                 test_first_names),
        SENTENCE("the longest name fits", test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
