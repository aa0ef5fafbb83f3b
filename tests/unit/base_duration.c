/* base_duration.c - tests of reading and printing durations. */
#include <inttypes.h>
#include <string.h>

#include "base/duration.h"
#include "base/error.h"
#include "lib/sentence.h"

struct sample {
    const char *text;
    int64_t ticks;
};

static void test_good(void **state)
{
    (void)state;
    static const struct sample good[] = {
        {"0", 0},
        {"0ms", 0},
        {"500ms", 500},
        {"5s", 5000},
        {"5", 5000},
        {"2m", 120000},
        {"1h", 3600000},
        {"1.5s", 1500},
        {"1.5", 1500},
        {"0.001s", 1},
        {"0.5m", 30000},
        {"0.0000025h", 9},
        {"1.50000000000000000000s", 1500},
        {"1.0ms", 1},
        {"007s", 7000},
        {"forever", HF_FOREVER},
        {"9223372036854775807ms", INT64_MAX},
        {"9223372036854775.807s", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t ms = -7;
        if (duration_parse(good[i].text, &ms) != HF_OK || ms != good[i].ticks)
            fail_msg("%s became %" PRId64, good[i].text, ms);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "banana",
        "-1",
        "+1",
        "-0",
        " 5s",
        "5s ",
        "5 s",
        "5S",
        "5sec",
        "ms",
        ".5s",
        "5.s",
        "5.",
        ".",
        "1.5.2s",
        "1e3",
        "0x10",
        "nan",
        "inf",
        "NaN",
        "1,5s",
        "1.5ms",
        "5us",
        "1.0005s",
        "0.0001s",
        "Forever",
        "forever ",
        "foreverx",
        "-1ms",
        "5ss",
        "1h30m",
        "1.-5s",
        "1.5 s",
        "\xd9\xa5s",
        "5s\n",
        "5d",
        "1.1234567891s",
        "9223372036854775808ms",
        "9223372036854775.808s",
        "9223372036854776s",
        "2562047788016h",
        "99999999999999999999999",
        "18446744073709551616ms",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t ms = -7;
        if (duration_parse(bad[i], &ms) != HF_INVALID)
            fail_msg("\"%s\" was accepted as %" PRId64, bad[i], ms);
        assert_int_equal(ms, -7);
    }
}

static void test_named(void **state)
{
    (void)state;
    int64_t value;
    assert_int_equal(duration_parse("banana", &value), HF_INVALID);
    assert_string_equal(error_text(), "\"banana\" is not a duration (like 500ms, 5s, 2m, 1h)");
    assert_int_equal(duration_parse_us("banana", &value), HF_INVALID);
    assert_string_equal(error_text(), "\"banana\" is not a duration (like 50us, 5ms, 1s)");
    assert_int_equal(duration_parse(NULL, &value), HF_INVALID);
    assert_non_null(strstr(error_text(), "no duration given"));
    assert_int_equal(duration_parse_us(NULL, &value), HF_INVALID);
}

static void test_microseconds(void **state)
{
    (void)state;
    static const struct sample good[] = {
        {"50us", 50},
        {"1ms", 1000},
        {"0.5ms", 500},
        {"1", 1000000},
        {"0.000001s", 1},
        {"1.5m", 90000000},
        {"0.999999999h", -2},
        {"0.5us", -2},
        {"0.999999975h", 3599999910},
        {"1h", 3600000000},
        {"9223372036854775807us", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t us = -2;
        hf_status status = duration_parse_us(good[i].text, &us);
        if (us != good[i].ticks || (status == HF_OK) != (us != -2))
            fail_msg("%s became %" PRId64, good[i].text, us);
    }
}

static void test_print(void **state)
{
    (void)state;
    static const struct sample good[] = {
        {"0ms", 0},
        {"10ms", 10},
        {"1s", 1000},
        {"1500ms", 1500},
        {"90s", 90000},
        {"2m", 120000},
        {"24h", 86400000},
        {"forever", HF_FOREVER},
        {"9223372036854775807ms", INT64_MAX},
    };
    char text[DURATION_MAX];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        duration_print(good[i].ticks, text);
        assert_string_equal(text, good[i].text);
    }
    duration_print_us(50, text);
    assert_string_equal(text, "50us");
    duration_print_us(1000, text);
    assert_string_equal(text, "1ms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("durations are read exactly, up to the largest", test_good),
        SENTENCE("signs, blanks, unknown units, lost precision and overflow are refused, and "
                 "nothing is written",
                 test_bad),
        SENTENCE("a refusal names the text", test_named),
        SENTENCE("microseconds are read the same way", test_microseconds),
        SENTENCE("a duration is printed in the largest unit that needs no fraction", test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
