/* kit_http_response.c - responses of HTTP/1.1 are read whole, byte by byte and at every split, and
 * what is not strictly one is refused. */
#include "lib/sentence.h"

#include "engines/kit/http_response.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 64 };

struct seen {
    char index[64], fields[256];
};

static void note_field(void *ctx, const char *name, const char *value)
{
    struct seen *seen = ctx;
    size_t len = strlen(seen->fields);
    snprintf(seen->fields + len, sizeof seen->fields - len, "%s=%s;", name, value);
    if (strcmp(name, "X-Consul-Index") == 0)
        snprintf(seen->index, sizeof seen->index, "%s", value);
}

static struct http_response reader(struct seen *seen)
{
    return (struct http_response){.body_max = BODY_MAX, .on_field = note_field, .ctx = seen};
}

/* Feeds a copy that ends where its memory ends: reading beyond it is noticed. */
static size_t feed(struct http_response *r, const char *bytes, size_t len)
{
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    size_t taken = http_response_take(r, copy, len);
    free(copy);
    return taken;
}

static const struct {
    const char *text, *body;
    unsigned status;
    bool closes;
} good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, false},
    {"HTTP/1.1 404 Not Found\r\nX-Consul-Index: 14\r\nContent-Length: 0\r\n\r\n", "", 404, false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
     "chunked\r\n\r\n3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n",
     "abc0123456789", 200, false},
    {"HTTP/1.1 200 \r\ncontent-LENGTH:\t 1 \t\r\nConnection: Close\r\n\r\nx", "x", 200, true},
    {"HTTP/1.1 500\r\nContent-Length: 2\r\n\r\nno", "no", 500, false},
    {"HTTP/1.1 204 No Content\r\n\r\n", "", 204, false},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n", "", 304, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n"
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 200, false},
};
enum { GOOD = sizeof good / sizeof *good };

static void expect(struct http_response *r, size_t i)
{
    assert_int_equal(r->stage, HTTP_WHOLE);
    assert_int_equal(r->status, good[i].status);
    assert_int_equal(r->closes, good[i].closes);
    assert_int_equal(r->body_len, strlen(good[i].body));
    assert_string_equal(r->body ? r->body : "", good[i].body);
}

static void test_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOOD; i++) {
        struct seen seen = {0};
        struct http_response r = reader(&seen);
        assert_int_equal(feed(&r, good[i].text, strlen(good[i].text)), strlen(good[i].text));
        expect(&r, i);
        assert_int_equal(feed(&r, "HTTP", 4), 0); /* it waits to be read */
        http_response_free(&r);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOOD; i++) {
        struct seen seen = {0};
        struct http_response r = reader(&seen);
        for (size_t k = 0; k < strlen(good[i].text); k++) {
            assert_true(r.stage != HTTP_WHOLE && r.stage != HTTP_BAD);
            assert_int_equal(feed(&r, good[i].text + k, 1), 1);
        }
        expect(&r, i);
        http_response_free(&r);
    }
}

static void test_splits(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOOD; i++)
        for (size_t split = 0; split <= strlen(good[i].text); split++) {
            struct seen seen = {0};
            struct http_response r = reader(&seen);
            size_t len = strlen(good[i].text);
            assert_int_equal(feed(&r, good[i].text, split), split);
            assert_int_equal(feed(&r, good[i].text + split, len - split), len - split);
            expect(&r, i);
            http_response_free(&r);
        }
}

/* Pipelined: each call takes one response and leaves the next. */
static void test_one_after_the_other(void **state)
{
    (void)state;
    char all[2048] = "";
    struct seen seen = {0};
    struct http_response r = reader(&seen);
    for (size_t i = 0; i < GOOD; i++)
        strcat(all, good[i].text);
    const char *at = all, *end = all + strlen(all);
    for (size_t i = 0; i < GOOD; i++) {
        at += feed(&r, at, (size_t)(end - at));
        expect(&r, i);
        http_response_next(&r);
    }
    assert_ptr_equal(at, end);
    http_response_free(&r);
}

static void test_fields(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct http_response r = reader(&seen);
    const char text[] =
        "HTTP/1.1 200 OK\r\nX-Consul-Index:  77\r\nEmpty:\r\nContent-Length: 0\r\n\r\n";
    feed(&r, text, sizeof text - 1);
    assert_int_equal(r.stage, HTTP_WHOLE);
    assert_string_equal(seen.index, "77");
    assert_string_equal(seen.fields, "X-Consul-Index=77;Empty=;Content-Length=0;");
    http_response_free(&r);
}

static const char *const bad[] = {
    "HTTP/1.0 200 OK\r\n",
    "HTTP/2 200\r\n",
    "http/1.1 200 OK\r\n",
    "HTTP/1.1 20 OK\r\n",
    "HTTP/1.1 2000 OK\r\n",
    "HTTP/1.1 abc OK\r\n",
    "HTTP/1.1 100 Continue\r\n",
    "HTTP/1.1 101 Switching\r\n",
    "HTTP/1.1 600 What\r\n",
    "HTTP/1.1 200 OK\n",
    "HTTP/1.1 200 OK\rX",
    "\r\n",
    "HTTP/1.1 200 OK\r\nNo colon\r\n",
    "HTTP/1.1 200 OK\r\n: empty\r\n",
    "HTTP/1.1 200 OK\r\nA b: c\r\n",
    "HTTP/1.1 200 OK\r\nA : c\r\n",
    "HTTP/1.1 200 OK\r\nA: c\r\n folded: d\r\n",
    "HTTP/1.1 200 OK\r\nA: c\x01\r\n",
    "HTTP/1.1 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n",
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t split = 0; split <= strlen(bad[i]); split++) {
            struct seen seen = {0};
            struct http_response r = reader(&seen);
            feed(&r, bad[i], split);
            if (r.stage != HTTP_BAD)
                feed(&r, bad[i] + split, strlen(bad[i]) - split);
            if (r.stage != HTTP_BAD || !r.flaw)
                fail_msg("taken: %s", bad[i]);
            assert_int_equal(feed(&r, "x", 1), 0);
            http_response_free(&r);
        }
}

static void test_bounds(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct http_response r = reader(&seen);
    char line[HTTP_TEXT_MAX + 8];
    memset(line, 'a', sizeof line);
    feed(&r, "HTTP/1.1 200 OK\r\n", 17);
    feed(&r, line, sizeof line);
    assert_int_equal(r.stage, HTTP_BAD);

    http_response_next(&r);
    r.on_field = NULL;
    feed(&r, "HTTP/1.1 200 OK\r\n", 17);
    for (int i = 0; i < HTTP_FIELDS_MAX; i++)
        feed(&r, "A: b\r\n", 6);
    assert_int_equal(r.stage, HTTP_FIELD);
    feed(&r, "A: b\r\n", 6);
    assert_int_equal(r.stage, HTTP_BAD);
    http_response_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a response that comes whole is read", test_whole),
        SENTENCE("a response that comes byte by byte is read", test_bytes),
        SENTENCE("a response that is split anywhere is read", test_splits),
        SENTENCE("responses that come together are read one after the other",
                 test_one_after_the_other),
        SENTENCE("fields are reported without the blanks around them", test_fields),
        SENTENCE("what is not strictly a response is refused, wherever it is split", test_refused),
        SENTENCE("lines and fields have bounds", test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
