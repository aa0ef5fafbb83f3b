/* base_name.c - tests of what a name may be made of. */
#include <string.h>

#include "base/error.h"
#include "base/name.h"
#include "lib/sentence.h"

static hf_status check(const char *text, size_t len)
{
    return name_check("name", text, len, 1, HF_NAME_MAX);
}

/* UTF-8 by arithmetic: another way than the table in name.c. */
static size_t encode(uint32_t code, char out[4])
{
    static const uint32_t limit[] = {0x80, 0x800, 0x10000, 0x200000};
    static const uint32_t mark[] = {0x00, 0xc0, 0xe0, 0xf0};
    size_t len = 1;
    while (code >= limit[len - 1])
        len++;
    for (size_t i = len - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(mark[len - 1] | code);
    return len;
}

static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x1fffff; code++) {
        char text[4];
        size_t len = encode(code, text), place;
        bool control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
        bool none = (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff;
        bool good = name_flaw(text, len, &place) == NULL;
        if (good == (control || none))
            fail_msg("U+%04X was %s", code, good ? "accepted" : "refused");
    }
}

static void test_overlong(void **state)
{
    (void)state;
    static const char *const overlong[] = {"\xc0\xaf",     "\xc1\xbf",         "\xe0\x80\xaf",
                                           "\xe0\x9f\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof overlong / sizeof overlong[0]; i++)
        assert_int_equal(check(overlong[i], strlen(overlong[i])), HF_INVALID);
}

static void test_truncated(void **state)
{
    (void)state;
    static const char *const whole[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x94\x92"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        assert_int_equal(check(whole[i], strlen(whole[i])), HF_OK);
        for (size_t len = 1; len < strlen(whole[i]); len++) {
            assert_int_equal(check(whole[i], len), HF_INVALID);
            /* A character that breaks off before an ordinary one must not swallow it. */
            char text[8] = "";
            memcpy(text, whole[i], len);
            memcpy(text + len, "abc", 3);
            assert_int_equal(check(text, len + 3), HF_INVALID);
        }
    }
}

static void test_stray(void **state)
{
    (void)state;
    for (int byte = 0x80; byte <= 0xff; byte++) {
        char text[3] = {'a', (char)byte, 'b'};
        assert_int_equal(check(text, sizeof text), HF_INVALID);
    }
}

/* Texts are looked at in eights: a flaw must be seen wherever it stands in one, and what stands
 * behind the end must not be looked at. */
static void test_every_place(void **state)
{
    (void)state;
    static const char flaws[] = "\x00\x01\x1f\x7f\x80\xff";
    for (size_t len = 1; len <= 33; len++)
        for (size_t at = 0; at < len; at++)
            for (size_t i = 0; i < sizeof flaws - 1; i++) {
                char text[40];
                size_t place = len;
                memset(text, i % 2 ? '~' : ' ', len);
                memset(text + len, '\n', sizeof text - len);
                assert_null(name_flaw(text, len, &place));
                text[at] = flaws[i];
                assert_non_null(name_flaw(text, len, &place));
                assert_int_equal(place, at);
            }
}

static void test_place(void **state)
{
    (void)state;
    assert_int_equal(check("jo\nb", 4), HF_INVALID);
    assert_string_equal(error_text(), "name: byte 3 (0x0a) is a control character");
    assert_int_equal(name_check("label", "\xc3\xa4\xff", 3, 0, 96), HF_INVALID);
    assert_string_equal(error_text(), "label: byte 3 (0xff) is not valid UTF-8");
    assert_int_equal(check("a\0b", 3), HF_INVALID);
    assert_string_equal(error_text(), "name: byte 2 (0x00) is a control character");
}

static void test_length(void **state)
{
    (void)state;
    char text[HF_NAME_MAX + 1];
    memset(text, 'x', sizeof text);
    assert_int_equal(check(text, 1), HF_OK);
    assert_int_equal(check(text, HF_NAME_MAX), HF_OK);
    assert_int_equal(check(text, HF_NAME_MAX + 1), HF_INVALID);
    assert_string_equal(error_text(), "name: 513 bytes, but 1 to 512 are allowed");
    assert_int_equal(check(text, 0), HF_INVALID);
    assert_string_equal(error_text(), "name: 0 bytes, but 1 to 512 are allowed");
    assert_int_equal(name_check("label", "", 0, 0, HF_LABEL_MAX), HF_OK);
}

static void test_missing(void **state)
{
    (void)state;
    assert_int_equal(check(NULL, 0), HF_INVALID);
    assert_string_equal(error_text(), "name: missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("of all characters only controls, surrogates and those above U+10FFFF are refused",
                 test_every_character),
        SENTENCE("overlong forms are refused", test_overlong),
        SENTENCE("a character that breaks off is refused, at the end and in the middle",
                 test_truncated),
        SENTENCE("a byte above 0x7f alone is refused", test_stray),
        SENTENCE("a flaw is found at every place of a text of any length, and none behind its end",
                 test_every_place),
        SENTENCE("a refusal names the field, the byte and its place", test_place),
        SENTENCE("a length outside of the bounds is refused and named", test_length),
        SENTENCE("a missing text is refused", test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
