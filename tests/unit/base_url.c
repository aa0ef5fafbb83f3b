/* base_url.c - tests of taking engine URLs apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/url.h"
#include "lib/sentence.h"

static void test_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *scheme, *body, *query;
    } good[] = {
        {"local:", "local", "", ""},
        {"local:/run/locks", "local", "/run/locks", ""},
        {"local:?ttl=5s", "local", "", "ttl=5s"},
        {"local:/a%20b?mode=0660", "local", "/a%20b", "mode=0660"},
        {"LOCAL:/Path", "local", "/Path", ""},
        {"redis://user:pass@host:6379/0?ttl=10s&wake=poll", "redis", "//user:pass@host:6379/0",
         "ttl=10s&wake=poll"},
        {"redis+unix:///tmp/s.sock", "redis+unix", "///tmp/s.sock", ""},
        {"redlock://a:1,b:2,c:3", "redlock", "//a:1,b:2,c:3", ""},
        {"local:?a?b", "local", "", "a?b"},
        {"local:?", "local", "", ""},
        {"local:/caf\xc3\xa9", "local", "/caf\xc3\xa9", ""},
    };
    struct url url;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(url_parse(&url, good[i].text), HF_OK);
        assert_string_equal(url.scheme, good[i].scheme);
        assert_string_equal(url.body, good[i].body);
        assert_string_equal(url.query, good[i].query);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"", "the URL \"\" does not begin with a scheme"},
        {"banana", "the URL \"banana\" does not begin with a scheme, such as local: or redis://"},
        {"/run/locks", "the URL \"/run/locks\" does not begin with a scheme"},
        {":x", "the URL \":x\" does not begin with a scheme"},
        {"1local:", "does not begin with a scheme"},
        {"lo_cal:", "does not begin with a scheme"},
        {"abcdefghijklmnopqrstuvwx:", "\"abcdefghijklmnopqrstuvwx\" is too long for a scheme"},
        {"local: ", "byte 7 is ' '; write it %20"},
        {"local:/a#b", "byte 9 is '#'; write it %23"},
        {"local:/a\n", "byte 9 (0x0a) is a control character; write it percent-encoded"},
        {"local:/\xff", "byte 8 (0xff) is not valid UTF-8; write it percent-encoded"},
    };
    struct url url;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(url_parse(&url, bad[i].text), HF_CONFIG);
        if (!strstr(error_text(), bad[i].reason))
            fail_msg("wanted \"%s\", got \"%s\"", bad[i].reason, error_text());
    }
}

static void test_secret(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "//user:hunter2@host",
        "_redis://user:hunter2@host",
        "redis//user:hunter2@host",
        "redis://user:hunter2@ho st",
        "redis://user:hunter2@host#x",
        "redis://user:hunter2@host\n",
        "user-with-a-name-that-is-too-long:hunter2@host",
    };
    struct url url;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(url_parse(&url, bad[i]), HF_CONFIG);
        if (strstr(error_text(), "hunt"))
            fail_msg("shown: %s", error_text());
    }
}

static void test_length(void **state)
{
    (void)state;
    char text[URL_MAX + 1] = "local:";
    struct url url;
    memset(text + 6, 'x', URL_MAX - 7);
    text[URL_MAX - 1] = '\0';
    assert_int_equal(url_parse(&url, text), HF_OK);
    assert_int_equal(strlen(url.body), URL_MAX - 7);
    text[6] = '?';
    assert_int_equal(url_parse(&url, text), HF_OK);
    assert_int_equal(strlen(url.query), URL_MAX - 8);
    text[URL_MAX - 1] = 'x';
    text[URL_MAX] = '\0';
    assert_int_equal(url_parse(&url, text), HF_CONFIG);
    assert_string_equal(error_text(), "the URL has 4096 bytes, but at most 4095 are allowed");
}

static void test_longest_scheme(void **state)
{
    (void)state;
    struct url url;
    assert_int_equal(url_parse(&url, "abcdefghijklmnopqrstuvw:x"), HF_OK);
    assert_string_equal(url.scheme, "abcdefghijklmnopqrstuvw");
    assert_string_equal(url.body, "x");
}

static void test_every_escape(void **state)
{
    (void)state;
    for (unsigned byte = 1; byte < 256; byte++) {
        char upper[4], lower[4], out[2];
        snprintf(upper, sizeof upper, "%%%02X", byte);
        snprintf(lower, sizeof lower, "%%%02x", byte);
        assert_int_equal(url_decode(upper, 3, out, sizeof out), HF_OK);
        assert_int_equal((uint8_t)out[0], byte);
        assert_int_equal(out[1], 0);
        assert_int_equal(url_decode(lower, 3, out, sizeof out), HF_OK);
        assert_int_equal((uint8_t)out[0], byte);
    }
}

static void test_decodes(void **state)
{
    (void)state;
    char out[16];
    assert_int_equal(url_decode("a%20b+c%25", 10, out, sizeof out), HF_OK);
    assert_string_equal(out, "a b+c%");
    assert_int_equal(url_decode("", 0, out, 1), HF_OK);
    assert_string_equal(out, "");
    assert_int_equal(url_decode("abc/def", 3, out, sizeof out), HF_OK);
    assert_string_equal(out, "abc");
}

static void test_bad_escapes(void **state)
{
    (void)state;
    static const char *const bad[] = {"%",    "%2",   "%zz", "%2z", "%z2", "ab%",
                                      "%%20", "% 20", "%-1", "%+1", "%00", "x%00y"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char out[16] = "before";
        if (url_decode(bad[i], strlen(bad[i]), out, sizeof out) != HF_CONFIG)
            fail_msg("%s was accepted", bad[i]);
        assert_string_equal(out, "");
    }
    /* An escape that goes on behind the end of the text is not one. */
    char out[16];
    assert_int_equal(url_decode("a%20", 3, out, sizeof out), HF_CONFIG);
    assert_string_equal(error_text(), "byte 2 is a % without two hexadecimal digits");
    assert_int_equal(url_decode("ab%00", 5, out, sizeof out), HF_CONFIG);
    assert_string_equal(error_text(), "byte 3 is an escaped NUL");
}

static void test_room(void **state)
{
    (void)state;
    for (size_t size = 1; size < 8; size++) {
        char *out = malloc(size);
        assert_non_null(out);
        hf_status status = url_decode("%61bcd", 6, out, size);
        assert_int_equal(status, size < 5 ? HF_CONFIG : HF_OK);
        assert_string_equal(out, size < 5 ? "" : "abcd");
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a URL is split into scheme, body and query", test_parts),
        SENTENCE("what is no URL is refused with the reason", test_refused),
        SENTENCE("a refusal never shows a password", test_secret),
        SENTENCE("the longest URL fits and one byte more is refused", test_length),
        SENTENCE("the longest scheme fits", test_longest_scheme),
        SENTENCE("every byte but NUL can be written as an escape", test_every_escape),
        SENTENCE("text without escapes stays as it is", test_decodes),
        SENTENCE("bad escapes and NUL are refused and leave nothing behind", test_bad_escapes),
        SENTENCE("a lack of room is refused, and what just fits is not", test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
