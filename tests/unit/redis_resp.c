/* redis_resp.c - how commands are written and replies are read, at the edges of every number and at
 * every split. */
#include "lib/sentence.h"

#include "engines/redis/keys.h"
#include "engines/redis/resp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Ids ---- */

static void test_ids(void **state)
{
    (void)state;
    uint64_t seed = 1;
    char text[REDIS_ID_TEXT + 1];
    struct id id, read;
    for (int i = 0; i < 1000; i++) {
        for (size_t k = 0; k < sizeof id.b; k++)
            id.b[k] =
                (uint8_t)(i ? (seed = seed * 6364136223846793005u + 1442695040888963407u) >> 56
                            : 0xff);
        redis_id_text(&id, text);
        assert_int_equal(strlen(text), REDIS_ID_TEXT);
        assert_true(redis_id_read(text, &read) && id_same(&id, &read));
        text[i % REDIS_ID_TEXT] = " *./:@[`{\x7f\xff\n"[i % 12];
        assert_false(redis_id_read(text, &read));
    }
    assert_false(redis_id_read("AAAAAAAAAAAAAAAAAAAAAB", &read)); /* more bits than an id has */
}

/* ---- Commands ---- */

static void expect_number(int64_t number)
{
    struct resp_command c = {0};
    char digits[32], wanted[64];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)number);
    snprintf(wanted, sizeof wanted, "$%d\r\n%s\r\n", len, digits);
    resp_command_number(&c, number);
    assert_int_equal(c.len, strlen(wanted));
    assert_memory_equal(c.bytes, wanted, c.len);
    resp_command_free(&c);
    if (number < 0)
        return;
    *resp_put_number(wanted, (uint64_t)number) = 0;
    assert_string_equal(wanted, digits);
}

static void test_numbers(void **state)
{
    (void)state;
    static const int64_t extremes[] = {0, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++)
        expect_number(extremes[i]);
    for (int64_t power = 1; power <= INT64_MAX / 10; power *= 10)
        for (int64_t i = -1; i <= 1; i++) {
            expect_number(power + i);
            expect_number(-power + i);
        }
}

/* Around the sizes at which the buffer grows, and at which the length has one more digit. */
static void test_words(void **state)
{
    (void)state;
    char text[1101], wanted[1200];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len < sizeof text; len++) {
        struct resp_command c = {0};
        size_t head = (size_t)snprintf(wanted, sizeof wanted, "*2\r\n$1\r\n-\r\n$%zu\r\n", len);
        memcpy(wanted + head, text, len);
        memcpy(wanted + head + len, "\r\n", 2);
        resp_command_begin(&c, 2);
        resp_command_char(&c, '-');
        resp_command_word(&c, text, len);
        assert_false(c.failed);
        assert_int_equal(c.len, head + len + 2);
        assert_memory_equal(c.bytes, wanted, c.len);
        resp_command_free(&c);
    }
}

static void test_prepared_words(void **state)
{
    (void)state;
    static const int64_t numbers[RESP_WORDS_MAX] = {INT64_MIN, INT64_MAX, INT64_MIN};
    struct resp_command one = {0}, other = {0};
    for (unsigned i = 0; i < RESP_WORDS_MAX; i++)
        resp_command_number(&one, numbers[i]);
    struct resp_words words = resp_words_of(numbers, RESP_WORDS_MAX);
    resp_command_add(&other, &words);
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.bytes, other.bytes, one.len);
    resp_command_free(&one);
    resp_command_free(&other);
}

/* ---- Replies ---- */

enum { MOST = 1 << 20 };

/* As text: the type, and what it says. */
static void describe(char **to, const char *end, const struct resp_reply *reply)
{
    static const char letters[] = {[RESP_NIL] = 'n',   [RESP_TEXT] = 't',   [RESP_STATUS] = 's',
                                   [RESP_ERROR] = 'e', [RESP_NUMBER] = '#', [RESP_LIST] = 'l'};
    *to += snprintf(*to, (size_t)(end - *to), "%c%zu:%lld:%s ", letters[reply->type], reply->len,
                    (long long)reply->number, reply->text ? reply->text : "-");
    for (const struct resp_reply *item = reply->first; item; item = item->next)
        describe(to, end, item);
}

/* Reads a piece of it, from a copy of its own: what lies behind its end is nobody's. */
static bool read_piece(struct resp_reader *r, const char *bytes, size_t len, char **to,
                       const char *end)
{
    const char *error;
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    assert_true(resp_reader_feed(r, copy, len, MOST));
    for (const struct resp_reply *reply; (reply = resp_reader_next(r, &error));)
        describe(to, end, reply);
    free(copy);
    if (error)
        *to += snprintf(*to, (size_t)(end - *to), "wrong");
    return !error;
}

static void read_split(const char *bytes, size_t len, size_t first, size_t second, char said[1024])
{
    struct resp_reader *r = resp_reader_open();
    char *to = said, *end = said + 1024;
    assert_non_null(r);
    *to = 0;
    (void)(read_piece(r, bytes, first, &to, end) &&
           read_piece(r, bytes + first, second - first, &to, end) &&
           read_piece(r, bytes + second, len - second, &to, end));
    resp_reader_close(r);
}

static const struct {
    const char *bytes, *said;
} dialogues[] = {
    {":1\r\n", "#0:1:- "},
    {"$16\r\n1794739091582073\r\n", "t16:0:1794739091582073 "},
    {":0\r\n:-1\r\n$0\r\n\r\n$-1\r\n+OK\r\n-NO no\r\n:7\r\n",
     "#0:0:- #0:-1:- t0:0: n0:0:- s2:0:OK e5:0:NO no #0:7:- "},
    {"*2\r\n:3\r\n$2\r\nab\r\n:4\r\n", "l2:0:- #0:3:- t2:0:ab #0:4:- "},
    {":4\r\n*2\r\n*1\r\n:5\r\n$1\r\nx\r\n$3\r\nabc\r\n",
     "#0:4:- l2:0:- l1:0:- #0:5:- t1:0:x t3:0:abc "},
    {":999999999999999999\r\n:9223372036854775807\r\n",
     "#0:999999999999999999:- #0:9223372036854775807:- "},
    {"$4\r\na\r\nb\r\n", "t4:0:a\r\nb "},
    {"$70\r\n0123456789012345678901234567890123456789012345678901234567890123456789\r\n:1\r\n",
     "t70:0:0123456789012345678901234567890123456789012345678901234567890123456789 #0:1:- "},
    {":1\r\n$2\r\nabc\r\n", "#0:1:- wrong"},
    {":01\r\n", "wrong"},
    {":1x\r\n", "wrong"},
    {":\r\n", "wrong"},
    {"$1x\r\na\r\n", "wrong"},
    {"?\r\n", "wrong"},
};

static void test_every_split(void **state)
{
    (void)state;
    char said[1024];
    for (size_t i = 0; i < sizeof dialogues / sizeof *dialogues; i++) {
        const char *bytes = dialogues[i].bytes;
        size_t len = strlen(bytes);
        for (size_t first = 0; first <= len; first++)
            for (size_t second = first; second <= len; second++) {
                read_split(bytes, len, first, second, said);
                assert_string_equal(said, dialogues[i].said);
            }
    }
}

static void test_too_much(void **state)
{
    (void)state;
    const char *error;
    struct resp_reader *r = resp_reader_open();
    assert_non_null(r);
    assert_false(resp_reader_feed(r, ":1\r\n:2\r\n", 8, 7));
    resp_reader_close(r);
    r = resp_reader_open();
    assert_non_null(r);
    assert_true(resp_reader_feed(r, "$9\r\n1234", 8, 12));
    assert_null(resp_reader_next(r, &error));
    assert_null(error);
    assert_false(resp_reader_feed(r, "56789\r\n", 7, 12));
    resp_reader_close(r);
}

/* ---- Who holds, who waits ---- */

static void test_meta(void **state)
{
    (void)state;
    struct redis_meta meta;
    assert_true(redis_meta_read("0 b 17 here ", &meta));
    assert_int_equal(meta.pid, 17);
    assert_int_equal(meta.ticket, 0);
    assert_false(meta.detached);
    assert_memory_equal(meta.host, "here", (size_t)meta.host_len);
    assert_string_equal(meta.label, "");
    /* Behind a grant that replicas did not acknowledge the flags carry the number of the round. */
    assert_true(redis_meta_read("99 d314 17 here two words", &meta));
    assert_int_equal(meta.pid, 17);
    assert_int_equal(meta.ticket, 99);
    assert_true(meta.detached);
    assert_int_equal(meta.host_len, 4);
    assert_memory_equal(meta.host, "here", 4);
    assert_string_equal(meta.label, "two words");
    for (const char *const *bad =
             (const char *const[]){"", "0", "0 b", "0 b 17", "0 b x here", "x b 17 here", NULL};
         *bad; bad++)
        assert_false(redis_meta_read(*bad, &meta));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("an id is read as it was written, and nothing else is one", test_ids),
        SENTENCE("a number is written with all its digits, whatever its size", test_numbers),
        SENTENCE("a word is written with its length, whatever that is", test_words),
        SENTENCE("words that were prepared are those that would have been written",
                 test_prepared_words),
        SENTENCE("replies are the same however they are cut, and what is wrong is wrong",
                 test_every_split),
        SENTENCE("more bytes than a reply may have are refused", test_too_much),
        SENTENCE("a record says who holds, also behind a round number", test_meta),
    };
    return cmocka_run_group_tests_name("RESP", tests, NULL, NULL);
}
