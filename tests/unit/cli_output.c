/* cli_output.c - tests of words for people: foreign text made safe, durations, times, JSON texts.
 */
#include "output.h"

#include "lib/sentence.h"
#include <stdlib.h>
#include <string.h>

static void test_safe(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } samples[] = {
        {"plain text", "plain text"},
        {"", ""},
        {"caf\xc3\xa9 \xf0\x9f\x94\x92", "caf\xc3\xa9 \xf0\x9f\x94\x92"},
        {"\x1b[2Jx", "\\x1b[2Jx"},
        {"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f"},
        {"back\\slash", "back\\x5cslash"},
        {"\xc2\x9b", "\\xc2\\x9b"},                   /* a control character beyond ASCII */
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"},          /* right-to-left override */
        {"\xe2\x80\x8b", "\\xe2\\x80\\x8b"},          /* zero width space */
        {"\xef\xbb\xbf", "\\xef\\xbb\\xbf"},          /* byte order mark */
        {"\xc0\xaf", "\\xc0\\xaf"},                   /* an overlong slash */
        {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},          /* another one */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* half of a pair */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
        {"\xe2\x82", "\\xe2\\x82"},                   /* cut off */
        {"\xff", "\\xff"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        assert_string_equal(output_shown(samples[i].text).text, samples[i].shown);
    assert_string_equal(output_shown(NULL).text, "");
    assert_string_equal(text_shown_bytes("a\0b", 3).text, "a\\x00b");
}

static void test_long(void **state)
{
    char text[2000];
    (void)state;
    for (char fill = 'a'; fill; fill = fill == 'a' ? '\n' : 0) {
        memset(text, fill, sizeof text - 1);
        text[sizeof text - 1] = 0;
        struct shown shown = output_shown(text);
        size_t len = strlen(shown.text);
        assert_true(len < sizeof shown.text && len > sizeof shown.text - 16);
        assert_string_equal(shown.text + len - 3, "...");
    }
}

static void test_durations(void **state)
{
    (void)state;
    assert_string_equal(text_duration(0).text, "0.0 s");
    assert_string_equal(text_duration(450).text, "0.4 s");
    assert_string_equal(text_duration(9999).text, "9.9 s");
    assert_string_equal(text_duration(10000).text, "10 s");
    assert_string_equal(text_duration(119999).text, "119 s");
    assert_string_equal(text_duration(120000).text, "2 min 0 s");
    assert_string_equal(text_duration(250000).text, "4 min 10 s");
    assert_string_equal(text_duration(7199999).text, "119 min 59 s");
    assert_string_equal(text_duration(12000000).text, "3 h 20 min");
}

static void test_times(void **state)
{
    (void)state;
    assert_string_equal(text_time(0).text, "1970-01-01T00:00:00.000Z");
    assert_string_equal(text_time(1769903999123).text, "2026-01-31T23:59:59.123Z");
}

static void test_columns(void **state)
{
    (void)state;
    assert_int_equal(text_columns(""), 0);
    assert_int_equal(text_columns("abc"), 3);
    assert_int_equal(text_columns("caf\xc3\xa9"), 4);
}

static void check_json(const char *text, const char *wanted)
{
    char *printed = NULL;
    size_t len;
    FILE *out = open_memstream(&printed, &len);
    assert_non_null(out);
    json_print_text(out, text);
    fclose(out);
    assert_string_equal(printed, wanted);
    free(printed);
}

static void test_json(void **state)
{
    (void)state;
    check_json("a \"b\" \\", "\"a \\\"b\\\" \\\\\"");
    check_json("\n\x7f\xc2\x85", "\"\\u000a\\u007f\\u0085\"");
    check_json("caf\xc3\xa9", "\"caf\xc3\xa9\"");
    check_json("a\xff"
               "b",
               "\"a\\ufffdb\"");
    check_json("\xe2\x82", "\"\\ufffd\\ufffd\"");
    check_json(NULL, "\"\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("foreign text moves no cursor and reorders no line", test_safe),
        SENTENCE("a text that is too long ends in dots, also if every byte is escaped", test_long),
        SENTENCE("a duration has the unit that a person would choose", test_durations),
        SENTENCE("a time is UTC with milliseconds", test_times),
        SENTENCE("columns are counted in characters", test_columns),
        SENTENCE("a JSON text is valid whatever its bytes", test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
