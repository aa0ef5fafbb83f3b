/* cli_json_read.c - tests of finding one text in a JSON object that somebody gave us. */
#include "json_read.h"

#include "lib/sentence.h"
#include <string.h>

static void check(const char *json, const char *wanted)
{
    char value[16];
    bool found = json_find_text(json, "lease", value, sizeof value);
    if (found != (wanted != NULL) || (wanted && strcmp(value, wanted) != 0))
        fail_msg("%s: %s", json, found ? value : "not found");
}

static void test_found(void **state)
{
    (void)state;
    check("{\"lease\":\"abc\"}", "abc");
    check(" { \"a\" : [ 1, {\"lease\": \"no\"} ] , \"lease\" : \"abc\" } \n", "abc");
    check("{\"lease\":\"\"}", "");
    check("{\"a\":{},\"b\":[],\"c\":true,\"d\":-1.5e3,\"lease\":\"x\",\"e\":null}", "x");
    check("{\"lease\":\"123456789012345\"}", "123456789012345");
    check("{\"a name that is much longer than any that is wanted\":1,\"lease\":\"x\"}", "x");
}

static void test_escapes(void **state)
{
    (void)state;
    check("{\"lease\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    check("{\"lease\":\"\\u0041\\u00e9\\u20ac\"}", "A\xc3\xa9\xe2\x82\xac");
    check("{\"lease\":\"\\ud83d\\udd12\"}", "\xf0\x9f\x94\x92");
    check("{\"\\u006cease\":\"x\"}", "x");
    check("{\"lease\":\"\\x41\"}", NULL);
    check("{\"lease\":\"\\u004\"}", NULL);
    check("{\"lease\":\"\\ud83d\"}", NULL);
    check("{\"lease\":\"\\ud83d\\u0041\"}", NULL);
    check("{\"lease\":\"\\udd12\"}", NULL);
    check("{\"lease\":\"a\\u0000b\"}", NULL);
}

static void test_not_found(void **state)
{
    (void)state;
    check("", NULL);
    check("{}", NULL);
    check("[\"lease\"]", NULL);
    check("{\"leases\":\"x\"}", NULL);
    check("{\"lease\":1}", NULL);
    check("{\"lease\":null}", NULL);
    check("{\"lease\":{\"lease\":\"x\"}}", NULL);
    check("{\"lease\":\"1234567890123456\"}", NULL); /* does not fit */
}

static void test_malformed(void **state)
{
    (void)state;
    check("{\"lease\":\"x\"", NULL);
    check("{\"lease\":\"x\"}}", NULL);
    check("{\"lease\":\"x\"} y", NULL);
    check("{\"lease\":\"x\",}", NULL);
    check("{\"lease\" \"x\"}", NULL);
    check("{lease:\"x\"}", NULL);
    check("{\"lease\":\"x}", NULL);
    check("{\"lease\":\"a\nb\"}", NULL);
    check("{\"lease\":\"x\",\"a\":[1,}", NULL);
    check("{\"lease\":\"x\",\"a\":}", NULL);
}

/* Every text that is cut off somewhere is refused, and none is read beyond its end. */
static void test_cut_off(void **state)
{
    static const char whole[] = "{\"a\":[\"\\u00e9\"],\"lease\":\"\\ud83d\\udd12\"}";
    char cut[sizeof whole], value[16];
    (void)state;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        memcpy(cut, whole, len);
        cut[len] = 0;
        assert_false(json_find_text(cut, "lease", value, sizeof value));
    }
    assert_true(json_find_text(whole, "lease", value, sizeof value));
}

static void test_twice(void **state)
{
    (void)state;
    check("{\"lease\":\"a\",\"lease\":\"b\"}", "b");
    check("{\"lease\":1,\"lease\":\"b\"}", "b");
    check("{\"lease\":\"a\",\"lease\":1}", NULL);
    check("{\"lease\":\"a\",\"lease\":\"1234567890123456\"}", NULL);
}

static void test_depth(void **state)
{
    char json[256] = "{\"lease\":\"x\",\"a\":";
    (void)state;
    for (int i = 0; i < 33; i++)
        strcat(json, "[");
    for (int i = 0; i < 33; i++)
        strcat(json, "]");
    strcat(json, "}");
    check(json, NULL);
    check("{\"lease\":\"x\",\"a\":[[[[[[[[[[]]]]]]]]]]}", "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a text is found among other members", test_found),
        SENTENCE("escapes are resolved, and wrong ones refused", test_escapes),
        SENTENCE("what is not there, or no text, or too long, is not found", test_not_found),
        SENTENCE("a malformed object has no text", test_malformed),
        SENTENCE("an object that is cut off has no text", test_cut_off),
        SENTENCE("of a key that is there twice the last counts, text or not", test_twice),
        SENTENCE("the depth is bounded", test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
