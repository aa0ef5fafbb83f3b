/* cli_rows.c - tests of rows as the command keeps, sorts and describes them. */
#include "holder_text.h"
#include "row_list.h"
#include "sort_by_urgency.h"

#include "lib/capture.h"
#include "lib/sentence.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct hf_row holder = {.name = "job",
                                     .role = HF_HOLDER,
                                     .host = "far",
                                     .label = "",
                                     .pid = 12,
                                     .since_ms = 3200,
                                     .ttl_ms = 30000,
                                     .left_ms = 26000,
                                     .used = 1,
                                     .capacity = 1};

static void add(struct row_list *rows, struct hf_row row)
{
    row_list_add(rows, &row);
}

static struct hf_row holder_of(const char *name, int64_t left_ms)
{
    struct hf_row row = holder;
    row.name = name;
    row.left_ms = left_ms;
    return row;
}

static struct hf_row waiter_of(const char *name, uint32_t place, int64_t pid)
{
    return (struct hf_row){.name = name, .role = HF_WAITER, .place = place, .pid = pid};
}

static void check_order(struct row_list *rows, const char *wanted)
{
    char order[256] = "";
    assert_true(sort_by_urgency(rows));
    for (size_t i = 0; i < rows->count; i++)
        strcat(strcat(order, rows->all[i].role == HF_WAITER ? "-" : " "), rows->all[i].name);
    assert_string_equal(order, wanted);
    row_list_free(rows);
}

static void test_copies(void **state)
{
    char name[] = "job";
    struct row_list rows = {0};
    (void)state;
    for (int i = 0; i < 100; i++)
        add(&rows, (struct hf_row){.name = name, .token = (uint64_t)i});
    name[0] = 'x';
    assert_int_equal(rows.count, 100);
    for (uint64_t i = 0; i < 100; i++) {
        assert_string_equal(rows.all[i].name, "job");
        assert_string_equal(rows.all[i].host, "");
        assert_int_equal(rows.all[i].token, i);
    }
    assert_int_equal(row_list_check(&rows, HF_OK), 0);
    row_list_free(&rows);
    assert_int_equal(rows.count, 0);
}

static void test_check(void **state)
{
    struct row_list rows = {.out_of_memory = true};
    (void)state;
    capture_stderr();
    assert_int_equal(row_list_check(&rows, HF_OK), 70);
    assert_int_equal(row_list_check(&rows, HF_BUSY), hf_status_exit_code(HF_BUSY));
    assert_non_null(strstr(captured_stderr(), "out of memory after 0 rows"));
}

static void test_order(void **state)
{
    struct row_list rows = {0};
    (void)state;
    add(&rows, holder_of("a", 29000));
    add(&rows, holder_of("b", 3000));
    add(&rows, waiter_of("b", 1, 1));
    add(&rows, holder_of("c", 30000));
    add(&rows, waiter_of("c", 1, 1));
    add(&rows, holder_of("d", 300));
    check_order(&rows, " d b-b c-c a");
}

/* A hold that is renewed in time has between two thirds and all of its ttl left. */
static void test_well_alike(void **state)
{
    struct row_list rows = {0};
    (void)state;
    add(&rows, holder_of("b", 18000));
    add(&rows, holder_of("a", 30000));
    check_order(&rows, " a b");
    add(&rows, holder_of("b", 17999));
    add(&rows, holder_of("a", 30000));
    check_order(&rows, " b a");
}

static void test_waiters_only(void **state)
{
    struct row_list rows = {0};
    (void)state;
    add(&rows, waiter_of("a", 1, 1));
    add(&rows, waiter_of("b", 1, 1));
    add(&rows, waiter_of("b", 2, 2));
    check_order(&rows, "-b-b-a");
    check_order(&rows, "");
}

static void check_words(struct row_list *rows, const char *wanted)
{
    assert_string_equal(holder_text_describe("job", rows).text, wanted);
    row_list_free(rows);
}

static void test_words(void **state)
{
    struct row_list rows = {0};
    struct hf_row row = holder;
    (void)state;
    check_words(&rows, "\"job\" is not held");
    add(&rows, row);
    check_words(&rows, "\"job\" is held by pid 12 on far for 3.2 s, 26 s left");
    row.label = "night\n";
    row.servers = 3;
    row.servers_all = 5;
    add(&rows, row);
    check_words(&rows,
                "\"job\" is held by pid 12 on far (night\\x0a) for 3.2 s, 26 s left, on 3 of "
                "5 servers");
    row = holder;
    row.foreign = true;
    row.left_ms = -1;
    add(&rows, row);
    check_words(&rows, "\"job\" is held by another program, without an end");
}

static void test_more_words(void **state)
{
    struct row_list rows = {0};
    struct hf_row row = holder;
    (void)state;
    row.kind = HF_READ;
    add(&rows, row);
    add(&rows, row);
    check_words(&rows, "\"job\" is held by pid 12 on far for 3.2 s, 26 s left, and by 1 more "
                       "reader");
    row.kind = HF_SEMAPHORE;
    row.used = 3;
    row.capacity = 8;
    for (int i = 0; i < 3; i++)
        add(&rows, row);
    add(&rows, waiter_of("job", 1, 1));
    check_words(&rows,
                "\"job\" is held by pid 12 on far for 3.2 s, 26 s left, and by 2 more (3 of 8 "
                "units used)");
}

static void test_places(void **state)
{
    struct row_list rows = {0};
    size_t waiters;
    (void)state;
    add(&rows, holder);
    add(&rows, waiter_of("job", 1, 7));
    add(&rows, waiter_of("job", 2, 8));
    assert_int_equal(holder_text_place(&rows, 8, &waiters), 2);
    assert_int_equal(waiters, 2);
    assert_int_equal(holder_text_place(&rows, 12, &waiters), 0);
    row_list_free(&rows);
}

static void test_us(void **state)
{
    struct row_list rows = {0};
    struct hf_row row = holder;
    char host[256] = "";
    (void)state;
    row.pid = getpid();
    add(&rows, row);
    assert_false(holder_text_include_us(&rows));
    gethostname(host, sizeof host - 1);
    row.host = host;
    add(&rows, row);
    assert_true(holder_text_include_us(&rows));
    row_list_free(&rows);
    add(&rows, waiter_of("job", 1, getpid()));
    assert_false(holder_text_include_us(&rows));
    row_list_free(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a list keeps copies of its rows", test_copies),
        SENTENCE("rows that are missing for want of memory are an error", test_check),
        SENTENCE("the name that may need help first stands on top", test_order),
        SENTENCE("holds that are renewed in time are all alike", test_well_alike),
        SENTENCE("names without a holder are sorted by their waiters", test_waiters_only),
        SENTENCE("a holder is described with host, label, time and servers", test_words),
        SENTENCE("further holders are counted as readers or as units", test_more_words),
        SENTENCE("a process finds its place among the waiters", test_places),
        SENTENCE("a process on another host is not this one, whatever its number", test_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
