/* base_status.c - tests of the status table and of the words behind a status. */
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/name.h"
#include "base/status.h"
#include "lib/sentence.h"

static void test_unique(void **state)
{
    (void)state;
    size_t count;
    const struct status_row *row = status_rows(&count);
    assert_true(count > 20);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(row[i].status, row[j].status);
            assert_string_not_equal(row[i].name, row[j].name);
            assert_string_not_equal(row[i].text, row[j].text);
        }
}

static void test_exit_codes(void **state)
{
    (void)state;
    static const int documented[] = {64, 69, 70, 75, 77, 78, 79};
    size_t count;
    const struct status_row *row = status_rows(&count);
    for (size_t i = 0; i < count; i++) {
        bool found = row[i].exit_code == 0 && row[i].status == HF_OK;
        for (size_t j = 0; j < sizeof documented / sizeof documented[0]; j++)
            found = found || (row[i].exit_code == documented[j] && row[i].status != HF_OK);
        if (!found)
            fail_msg("%s exits with %d", row[i].name, row[i].exit_code);
    }
}

static void test_http(void **state)
{
    (void)state;
    size_t count;
    const struct status_row *row = status_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (row[i].status == HF_OK)
            assert_int_equal(row[i].http, 200);
        else
            assert_in_range(row[i].http, 400, 599);
    }
}

static void test_lookup(void **state)
{
    (void)state;
    assert_string_equal(status_row(HF_BUSY)->name, "BUSY");
    assert_int_equal(status_row(HF_BUSY)->exit_code, 75);
    assert_true(status_row(HF_BUSY)->retry);
    assert_int_equal(status_row(HF_LOST)->exit_code, 79);
    assert_false(status_row(HF_LOST)->retry);
    assert_int_equal(status_row(HF_CONFIG)->exit_code, 78);
}

static void test_unknown(void **state)
{
    (void)state;
    static const int none[] = {-1, 22, 9999, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct status_row *row = status_row(none[i]);
        assert_string_equal(row->name, "UNKNOWN");
        assert_int_equal(row->exit_code, 70);
        assert_int_equal(row->http, 500);
        assert_false(row->retry);
    }
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(error_set(HF_FULL, "%s has room for %d", "table", 7), HF_FULL);
    assert_string_equal(error_text(), "table has room for 7");
    assert_int_equal(error_set(HF_BUSY, "again: %s", error_text()), HF_BUSY);
    assert_string_equal(error_text(), "again: table has room for 7");
}

static void test_own_words(void **state)
{
    (void)state;
    error_set(HF_BUSY, "%s", "");
    assert_string_equal(error_text(), "held by another");
}

static void test_printable(void **state)
{
    (void)state;
    error_set(HF_INVALID, "%s", "a\nb\x1b[2Jc\xff\xc3\xa4\xc2\x85z");
    assert_string_equal(error_text(), "a?b?[2Jc?\xc3\xa4??z");
}

static void test_long(void **state)
{
    (void)state;
    char text[3 * ERROR_TEXT_MAX + 1] = "";
    size_t place;
    for (size_t i = 0; i < ERROR_TEXT_MAX; i++)
        memcpy(text + 3 * i, "\xe2\x82\xac", 4);
    /* Of three starting points two cut the last character. */
    for (size_t i = 0; i < 3; i++) {
        error_set(HF_INVALID, "%.*s%s", (int)i, "ab", text);
        assert_int_equal(strlen(error_text()), ERROR_TEXT_MAX - 1);
        assert_null(name_flaw(error_text(), ERROR_TEXT_MAX - 1, &place));
    }
}

static void *say_something_else(void *arg)
{
    *(bool *)arg = strlen(error_text()) == 0;
    error_set(HF_LOST, "words of another thread");
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t thread;
    bool began_empty = false;
    error_set(HF_BUSY, "words of this thread");
    assert_int_equal(pthread_create(&thread, NULL, say_something_else, &began_empty), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(began_empty);
    assert_string_equal(error_text(), "words of this thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("no two statuses share a number, a name or a text", test_unique),
        SENTENCE("every status but OK has an exit code from the documented set, and OK has 0",
                 test_exit_codes),
        SENTENCE("every status but OK is an HTTP error, and OK is 200", test_http),
        SENTENCE("a status is found by its number", test_lookup),
        SENTENCE("a number that is no status has the row UNKNOWN", test_unknown),
        SENTENCE("the words are those of the last call, and may be part of the next ones",
                 test_words),
        SENTENCE("a status without words has those of the table", test_own_words),
        SENTENCE("control characters and broken UTF-8 never get into the words", test_printable),
        SENTENCE("words that are too long are cut and stay valid UTF-8", test_long),
        SENTENCE("each thread has its own words", test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
