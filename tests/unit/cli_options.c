/* cli_options.c - tests of reading options by a table: values, bounds, contradictions, operands. */
#include "options.h"

#include "lib/capture.h"
#include "lib/sentence.h"
#include <stdio.h>
#include <string.h>

static const struct option_spec specs[] = {
    {"url", 'u', "URL", STORE_TEXT, OPTION_FIELD(url), 0, 0, ""},
    {"nonblock", 'n', NULL, STORE_CONSTANT, OPTION_FIELD(wait_ms), 0, 0, ""},
    {"wait", 'w', "DUR", STORE_DURATION, OPTION_FIELD(wait_ms), HF_FOREVER, 60000, ""},
    {"units", 0, "K", STORE_NUMBER, OPTION_FIELD(units), 1, 100, ""},
    {"dialect", 0, "mysql|postgres", STORE_CHOICE, OPTION_FIELD(dialect), 0, 0, ""},
    {"ask", 0, NULL, STORE_BIT, OPTION_FIELD(story), 1, 1, ""},
    {"more", 0, NULL, STORE_BIT, OPTION_FIELD(story), 4, 4, ""},
    {"lock", 'l', "NAME", STORE_VALUE, OPTION_FIELD(locks), 0, 0, ""},
};

static struct cli_options options;
static struct arguments rest;
static const char *said;

/* Parses words separated by blanks; the operands are in `rest`, the message in `said`. */
static int parse(const char *line, bool stops_at_operand)
{
    static char text[256], *words[32];
    int count = 0;
    assert_true(snprintf(text, sizeof text, "%s", line) < (int)sizeof text);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    rest = (struct arguments){.count = count, .all = words};
    options = CLI_OPTIONS_NONE;
    capture_stderr();
    int code =
        options_parse(specs, sizeof specs / sizeof *specs, stops_at_operand, &rest, &options);
    said = captured_stderr();
    return code;
}

static void check_refused(const char *line, const char *message)
{
    assert_int_equal(parse(line, false), -1);
    if (!strstr(said, message))
        fail_msg("\"%s\": said \"%s\", not \"%s\"", line, said, message);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse("--url redis://a -w 1.5s --units=7 --dialect postgres job", false), 0);
    assert_string_equal(options.url, "redis://a");
    assert_int_equal(options.wait_ms, 1500);
    assert_int_equal(options.units, 7);
    assert_int_equal(options.dialect, 1);
    assert_int_equal(rest.count, 1);
    assert_string_equal(rest.all[0], "job");
    assert_string_equal(said, "");
}

static void test_letters(void **state)
{
    (void)state;
    assert_int_equal(parse("-nuredis://a job", false), 0);
    assert_int_equal(options.wait_ms, 0);
    assert_string_equal(options.url, "redis://a");
    assert_int_equal(parse("-w forever", false), 0);
    assert_int_equal(options.wait_ms, HF_FOREVER);
}

static void test_repeated(void **state)
{
    (void)state;
    assert_int_equal(parse("-w 1s -w 2s -l a --lock=b --ask --more", false), 0);
    assert_int_equal(options.wait_ms, 2000);
    assert_int_equal(options.locks.count, 2);
    assert_string_equal(options.locks.texts[0], "a");
    assert_string_equal(options.locks.texts[1], "b");
    assert_int_equal(options.story, 5);
}

static void test_too_many_values(void **state)
{
    char *words[2 * OPTION_VALUES_MAX + 2];
    (void)state;
    for (size_t i = 0; i < 2 * OPTION_VALUES_MAX + 2; i++)
        words[i] = i % 2 ? "a" : "-l";
    rest = (struct arguments){.count = 2 * OPTION_VALUES_MAX + 2, .all = words};
    options = CLI_OPTIONS_NONE;
    capture_stderr();
    assert_int_equal(options_parse(specs, sizeof specs / sizeof *specs, false, &rest, &options),
                     -1);
    assert_non_null(strstr(captured_stderr(), "more than 64"));
    assert_int_equal(options.locks.count, OPTION_VALUES_MAX);
}

static void test_operands(void **state)
{
    (void)state;
    assert_int_equal(parse("job -n -- -x", false), 0);
    assert_int_equal(options.wait_ms, 0);
    assert_int_equal(rest.count, 2);
    assert_string_equal(rest.all[1], "-x");
    assert_int_equal(parse("-n job -w 1s", true), 0);
    assert_int_equal(options.wait_ms, 0);
    assert_int_equal(rest.count, 3);
    assert_string_equal(rest.all[1], "-w");
}

static void test_refusals(void **state)
{
    (void)state;
    check_refused("--wiat 1s", "unknown option --wiat; did you mean --wait?");
    check_refused("--banana", "unknown option --banana\n");
    check_refused("-z", "unknown option -z");
    check_refused("--wait", "--wait needs an argument: DUR");
    check_refused("--nonblock=1", "--nonblock takes no argument");
    check_refused("-n -w 1s", "--nonblock and --wait cannot be combined");
    check_refused("--units 0", "--units: \"0\" is not between 1 and 100");
    check_refused("--units 101", "is not between 1 and 100");
    check_refused("--units 99999999999999999999", "is not between 1 and 100");
    check_refused("--units 5x", "is not between 1 and 100");
    check_refused("--wait 61s", "is not between");
    check_refused("--wait soon", "--wait: ");
    check_refused("--dialect oracle", "\"oracle\" is not one of mysql|postgres");
    check_refused("--dialect mysq", "\"mysq\" is not one of");
}

static void test_bounds(void **state)
{
    (void)state;
    assert_int_equal(parse("--units 1", false), 0);
    assert_int_equal(parse("--units 100", false), 0);
    assert_int_equal(parse("--wait 60s", false), 0);
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(words_distance("", ""), 0);
    assert_int_equal(words_distance("acquire", "acquire"), 0);
    assert_int_equal(words_distance("", "abc"), 3);
    assert_int_equal(words_distance("kitten", "sitting"), 3);
    assert_int_equal(words_distance("watch", "wach"), 1);
    assert_int_equal(words_distance("0123456789012345678901234567890123", "a"), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("each kind of option stores its value, and operands stay", test_values),
        SENTENCE("letters are clustered, and the last one may have its argument attached",
                 test_letters),
        SENTENCE("of one option the last counts; values and bits add up", test_repeated),
        SENTENCE("more values than there is room for are refused", test_too_many_values),
        SENTENCE("options end at --, or at the first operand where the verb says so",
                 test_operands),
        SENTENCE("whatever is refused is named", test_refusals),
        SENTENCE("the bounds themselves are accepted", test_bounds),
        SENTENCE("the distance of two words is the number of edits", test_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
