/* server_request_parser.c - tests of the strict parser of an HTTP request's head. */
#include "request_parser.h"

#include "lib/sentence.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct request_head head;
static const char *why;
static char *copy; /* of exactly the text, so that ASan sees a byte that is read beyond it */

static int parse(const char *text)
{
    size_t len = strlen(text);
    free(copy);
    copy = malloc(len);
    memcpy(copy, text, len);
    return request_head_read(&head, copy, len, &why);
}

static int forget(void **state)
{
    (void)state;
    free(copy);
    copy = NULL;
    return 0;
}

#define HOST "Host: a\r\n"

static void test_good(void **state)
{
    (void)state;
    assert_int_equal(parse("POST /v1/a%2Fb?wait=1 HTTP/1.1\r\nHost: a.example:80\r\n"
                           "Content-Length: 12\r\nX-One:  two \t\r\n\r\n"),
                     0);
    assert_true(piece_is(head.method, "POST"));
    assert_true(piece_is(head.path, "/v1/a%2Fb"));
    assert_true(piece_is(head.query, "wait=1"));
    assert_true(piece_is(head.host, "a.example:80"));
    assert_int_equal(head.body_len, 12);
    assert_true(piece_is(*request_head_field(&head, "x-one"), "two"));
    assert_null(request_head_field(&head, "x-two"));
    assert_true(head.keep_alive && !head.is_http10 && !head.expects_continue);
}

static void test_connection(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool keeps;
    } samples[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", true},
        {"GET / HTTP/1.1\r\n" HOST "Connection: Close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: x, close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: closer\r\n\r\n", true},
        {"GET / HTTP/1.1\r\n" HOST "Connection: a\r\nConnection: b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", false},
        {"GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        assert_int_equal(parse(samples[i].text), 0);
        if (head.keep_alive != samples[i].keeps)
            fail_msg("%s: keep_alive is %d", samples[i].text, head.keep_alive);
    }
}

static void test_continue(void **state)
{
    (void)state;
    assert_int_equal(
        parse("PUT / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n"), 0);
    assert_true(head.expects_continue);
    assert_int_equal(parse("PUT / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n"), 0);
    assert_false(head.expects_continue);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
    } samples[] = {
        {400, "\r\n\r\n"},
        {400, "GET / HTTP/1.1\n" HOST "\r\n"},
        {400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/1.1 \r\n" HOST "\r\n"},
        {400, "GET /\r\n" HOST "\r\n"},
        {400, "G\x01T / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "AVERYLONGMETHODXX / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http://a/ HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /a\\b HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"},
        {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
        {400, "GET / http/1.1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: \r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X : y\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST ": y\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: y\r\n z\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content_Length: 5\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Transfer_Encoding: x\r\n\r\n"},
        {411, "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"},
        {411, "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: 1234567890123456789\r\n\r\n"},
        {417, "GET / HTTP/1.1\r\n" HOST "Expect: cake\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Idempotency-Key: a\r\nidempotency-key: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "\r\nmore"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        int status = parse(samples[i].text);
        if (status != samples[i].status || !why)
            fail_msg("%d, not %d: %s", status, samples[i].status, samples[i].text);
    }
}

static void test_limits(void **state)
{
    static char text[HEAD_TARGET_MAX + 100];
    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        int len =
            sprintf(text, "GET /%0*d HTTP/1.1\r\n" HOST "\r\n", HEAD_TARGET_MAX - 1 + extra, 0);
        assert_true(len > 0);
        assert_int_equal(parse(text), extra ? 414 : 0);
        len = sprintf(text, "GET / HTTP/1.1\r\n" HOST);
        for (int i = 1; i < HEAD_FIELDS_MAX + extra; i++)
            len += sprintf(text + len, "A: b\r\n");
        strcpy(text + len, "\r\n");
        assert_int_equal(parse(text), extra ? 431 : 0);
    }
}

static void test_end(void **state)
{
    static const char whole[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nbody";
    size_t len = sizeof whole - 1 - 4;
    (void)state;
    for (size_t have = 0; have < len; have++)
        assert_int_equal(request_head_end(whole, have), 0);
    assert_int_equal(request_head_end(whole, len), len);
    assert_int_equal(request_head_end(whole, sizeof whole - 1), len);
    assert_int_equal(request_head_end("GET /\n\nx", 8), 7);
}

/* No part of a head is taken for a whole one. */
static void test_cut_off(void **state)
{
    static const char whole[] = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    char text[sizeof whole];
    (void)state;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        memcpy(text, whole, len);
        text[len] = 0;
        assert_int_not_equal(parse(text), 0);
    }
    assert_int_equal(parse(whole), 0);
}

static bool decode(const char *text, char *out, size_t size, size_t *len)
{
    return piece_decode((struct piece){text, strlen(text)}, out, size, len);
}

static void test_decode(void **state)
{
    char out[8];
    size_t len;
    (void)state;
    assert_true(decode("a%2fB%4a", out, sizeof out, &len));
    assert_string_equal(out, "a/BJ");
    assert_int_equal(len, 4);
    assert_true(decode("%2525", out, sizeof out, &len));
    assert_string_equal(out, "%25");
    assert_true(decode("", out, sizeof out, &len) && len == 0);
    assert_true(decode("1234567", out, sizeof out, &len));
    assert_false(decode("12345678", out, sizeof out, &len));
    static const char *const bad[] = {"%", "%4", "%4g", "%g4", "a%00", "%%41"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(decode(bad[i], out, sizeof out, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a head has method, path, query, host, length and fields", test_good),
        SENTENCE("another request follows only where both sides agree on that", test_connection),
        SENTENCE("100-continue is expected only with a body", test_continue),
        SENTENCE("a head that two parsers could read differently is refused", test_refused),
        SENTENCE("the longest target and the most fields are accepted, one more is not",
                 test_limits),
        SENTENCE("the end of a head is found when its last byte is there", test_end),
        SENTENCE("a head that is cut off anywhere is refused", test_cut_off),
        SENTENCE("%XX is decoded once, within the room", test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
