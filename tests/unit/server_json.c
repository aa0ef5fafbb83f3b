/* server_json.c - tests of what the service reads from a body and of how it answers. */
#include "lease_id.h"
#include "lib/kept_answer.h"
#include "row_json.h"

#include "lib/sentence.h"
#include <stdlib.h>
#include <string.h>

#define HEAD "POST / HTTP/1.1\r\nHost: a\r\n"

static struct exchange *request(const char *body)
{
    return kept_request(HEAD "\r\n", body, NULL);
}

static void check_problem(int status, const char *code, const char *detail)
{
    assert_int_equal(kept_answer.count, 1);
    assert_int_equal(kept_answer.status, status);
    assert_string_equal(kept_answer.type, "application/problem+json");
    assert_int_equal(json_integer_value(json_object_get(kept_answer.body, "status")), status);
    assert_string_equal(kept_member("code"), code);
    assert_string_equal(kept_member("requestId"), "request-1");
    if (!strstr(kept_member("detail"), detail))
        fail_msg("\"%s\" does not contain \"%s\"", kept_member("detail"), detail);
}

static void test_body(void **state)
{
    (void)state;
    json_t *body = read_body(request(""));
    assert_true(json_is_object(body) && json_object_size(body) == 0);
    json_decref(body);
    body = read_body(request("{\"ttlMs\": 5}"));
    assert_int_equal(json_integer_value(json_object_get(body, "ttlMs")), 5);
    json_decref(body);
    body = read_body(
        kept_request(HEAD "Content-Type: Application/JSON; charset=utf-8\r\n\r\n", "{}", NULL));
    assert_non_null(body);
    json_decref(body);
    assert_int_equal(kept_answer.count, 0);
}

static void test_bad_body(void **state)
{
    (void)state;
    assert_null(read_body(kept_request(HEAD "Content-Type: text/plain\r\n\r\n", "{}", NULL)));
    check_problem(415, "unsupported_media_type", "application/json");
    assert_null(read_body(request("[]")));
    check_problem(400, "invalid", "not a JSON object");
    assert_null(read_body(request("{\"a\":1,\"a\":2}")));
    check_problem(400, "invalid", "duplicate");
    assert_null(read_body(request("{\"a\":\"\\u0000\"}")));
    check_problem(400, "invalid", "NUL");
    assert_null(read_body(request("{\"a\":\"\xff\"}")));
    check_problem(400, "invalid", "");
    assert_null(read_body(request("{} {}")));
    check_problem(400, "invalid", "");
}

static void test_members(void **state)
{
    static const char *const known[] = {"name", "ttlMs", NULL};
    (void)state;
    struct exchange *x = request("{\"name\":\"a\",\"ttlMs\":1}");
    json_t *body = read_body(x);
    assert_true(check_members(x, body, known));
    json_object_set_new(body, "ttl", json_true());
    assert_false(check_members(x, body, known));
    check_problem(400, "invalid", "ttl: no such member");
    json_decref(body);
}

static bool whole(const char *text, int64_t *value)
{
    struct exchange *x = request(text);
    json_t *body = read_body(x);
    bool read = read_whole(x, body, "ttlMs", 10, 20, 15, value);
    json_decref(body);
    return read;
}

static void test_whole(void **state)
{
    static const char *const bad[] = {"{\"ttlMs\":9}",    "{\"ttlMs\":21}",     "{\"ttlMs\":15.5}",
                                      "{\"ttlMs\":15.0}", "{\"ttlMs\":\"15\"}", "{\"ttlMs\":true}",
                                      "{\"ttlMs\":[15]}"};
    int64_t value;
    (void)state;
    assert_true(whole("{}", &value) && value == 15);
    assert_true(whole("{\"ttlMs\":null}", &value) && value == 15);
    assert_true(whole("{\"ttlMs\":10}", &value) && value == 10);
    assert_true(whole("{\"ttlMs\":20}", &value) && value == 20);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(whole(bad[i], &value));
        check_problem(400, "invalid", "ttlMs: must be a whole number between 10 and 20");
    }
}

static void test_text(void **state)
{
    const char *value;
    (void)state;
    struct exchange *x = request("{\"a\":\"b\",\"c\":1,\"d\":null}");
    json_t *body = read_body(x);
    assert_true(read_text(x, body, "a", &value));
    assert_string_equal(value, "b");
    assert_true(read_text(x, body, "d", &value) && !value);
    assert_true(read_text(x, body, "e", &value) && !value);
    assert_false(read_text(x, body, "c", &value));
    check_problem(400, "invalid", "c: must be a string");
    json_decref(body);
}

static void check_query(const char *query, const char *wanted)
{
    char head[128];
    snprintf(head, sizeof head, "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", query);
    char *text = query_text(kept_request(head, "", NULL), "name");
    if ((text != NULL) != (wanted != NULL) || (wanted && strcmp(text, wanted) != 0))
        fail_msg("%s: %s", query, text ? text : "none");
    free(text);
}

static void test_query(void **state)
{
    (void)state;
    check_query("?name=a%2Fb", "a/b");
    check_query("?x=1&name=a&name=b", "a");
    check_query("?name", "");
    check_query("?name=", "");
    check_query("?names=a", NULL);
    check_query("?name=%00", NULL);
    check_query("?name=%2", NULL);
    check_query("", NULL);
}

static void test_statuses(void **state)
{
    (void)state;
    answer_status(request(""), HF_BUSY, "held by another", json_pack("{s:i}", "place", 3));
    check_problem(hf_status_http(HF_BUSY), "busy", "held by another");
    assert_int_equal(json_integer_value(json_object_get(kept_answer.body, "place")), 3);
    /* A message about the engine may have its address in it. */
    answer_status(request(""), HF_UNAVAILABLE, "10.0.0.1:6379 refused", NULL);
    assert_null(strstr(kept_member("detail"), "10.0.0.1"));
    assert_non_null(strstr(kept_answer.fields, "Retry-After: 1"));
    answer_problem(request(""), 401, "unauthorized", "no token", NULL);
    assert_non_null(strstr(kept_answer.fields, "WWW-Authenticate: Bearer"));
    answer_problem(request(""), 400, "invalid", "not \xff UTF-8", NULL);
    check_problem(400, "invalid", "Bad Request");
}

static void test_correlation(void **state)
{
    char text[HF_CORRELATION_MAX + 1];
    (void)state;
    correlation_of(request(""), text);
    assert_string_equal(text, "request-1");
    assert_true(correlation_given(
        kept_request(HEAD "traceparent: 00-ab\r\nX-Request-Id: caf\xc3\xa9\r\n\r\n", "", NULL),
        text));
    assert_string_equal(text, "caf??");
}

static void test_rows(void **state)
{
    struct hf_row row = {.name = "caf\xff", .role = HF_HOLDER, .token = UINT64_MAX, .left_ms = 7};
    (void)state;
    json_t *json = row_json(&row);
    assert_string_equal(json_string_value(json_object_get(json, "name")), "");
    assert_string_equal(json_string_value(json_object_get(json, "token")), "18446744073709551615");
    assert_int_equal(json_integer_value(json_object_get(json, "leftMs")), 7);
    assert_true(json_is_null(json_object_get(json, "place")));
    assert_true(json_is_null(json_object_get(json, "ticket")));
    json_decref(json);

    row = (struct hf_row){.name = "job", .role = HF_WAITER, .place = 2, .ticket = 9};
    json_t *array = json_array();
    row_json_append(array, &row);
    json = json_array_get(array, 0);
    assert_string_equal(json_string_value(json_object_get(json, "role")), "waiter");
    assert_int_equal(json_integer_value(json_object_get(json, "place")), 2);
    assert_true(json_is_null(json_object_get(json, "leftMs")));
    json_decref(array);
}

/* ---- Objects printed without a tree ---- */

static void check_flat(const char *name, int64_t number)
{
    char text[HF_NAME_MAX * 6 + 128];
    struct flat_json json = flat_json_begin(text, sizeof text);
    flat_json_text(&json, "name", name);
    flat_json_number(&json, "leftMs", number);
    flat_json_bool(&json, "isHeld", number > 0);
    answer_flat_json(request(""), 201, &json);

    json_t *wanted = json_pack("{s:s, s:I, s:b}", "name", name, "leftMs", (json_int_t)number,
                               "isHeld", number > 0);
    assert_int_equal(kept_answer.status, 201);
    assert_string_equal(kept_answer.type, "application/json");
    if (!json_equal(kept_answer.body, wanted))
        fail_msg("\"%s\" became %.*s", name, (int)json.len, text);
    json_decref(wanted);
}

static void test_flat(void **state)
{
    char longest[HF_NAME_MAX + 1] = "";
    (void)state;
    check_flat("", 0);
    check_flat("job", INT64_MAX);
    check_flat("caf\xc3\xa9 \"quoted\" \\ \b\f\n\r\t\x01\x1f\x7f /", INT64_MIN);
    memset(longest, '\x01', HF_NAME_MAX);
    check_flat(longest, -1);
    for (char c = 1; c > 0; c++)
        check_flat((char[]){'a', c, 'b', 0}, c);
}

/* What does not fit is never sent in part. */
static void test_flat_cut(void **state)
{
    static const char whole[] = "{\"a\":\"b\\\\c\",\"d\":-12,\"e\":false}";
    (void)state;
    for (size_t size = 0; size <= sizeof whole; size++) {
        char text[sizeof whole];
        memset(text, '#', sizeof text);
        struct flat_json json = flat_json_begin(text, size);
        flat_json_text(&json, "a", "b\\c");
        flat_json_number(&json, "d", -12);
        flat_json_bool(&json, "e", false);
        size_t len = flat_json_end(&json);
        assert_int_equal(len, size < sizeof whole - 1 ? 0 : sizeof whole - 1);
        assert_true(len == 0 || memcmp(text, whole, len) == 0);
        for (size_t i = size; i < sizeof text; i++)
            assert_int_equal(text[i], '#');
    }
}

/* ---- Ids of leases ---- */

#define HEX_A "00112233445566778899aabbccddeeff"
#define HEX_B "ffeeddccbbaa99887766554433221100"

static void test_ids(void **state)
{
    static const char exported[] =
        "hf1 " HEX_A " " HEX_B " 1 2 30 86400000 +18446744073709551615 a b";
    char id[LEASE_ID_MAX], text[HF_EXPORT_MAX];
    struct lease_facts facts;
    int64_t granted_ms;
    (void)state;
    assert_true(lease_id_print(exported, 1795131938475, id));
    assert_true(lease_id_read(id, strlen(id), text, &granted_ms));
    assert_string_equal(text, exported);
    assert_int_equal(granted_ms, 1795131938475);
    assert_true(lease_text_read(text, &facts));
    assert_string_equal(facts.attempt, HEX_A);
    assert_string_equal(facts.owner, HEX_B);
    assert_int_equal(facts.kind, 1);
    assert_int_equal(facts.units, 2);
    assert_int_equal(facts.capacity, 30);
    assert_int_equal(facts.ttl_ms, 86400000);
    assert_true(facts.token == UINT64_MAX);
    assert_string_equal(facts.name, "a b");
}

static void test_bad_ids(void **state)
{
    static const char *const bad[] = {
        "",
        "hf1",
        "hf1 ",
        "hf2 " HEX_A " " HEX_B " 0 1 1 1000 7 a",
        "hf1 " HEX_A "0 " HEX_B " 0 1 1 1000 7 a",
        "hf1 0" HEX_B " 0 1 1 1000 7 a",
        "hf1 " HEX_A " 00112233445566778899AABBCCDDEEFF 0 1 1 1000 7 a",
        "hf1 " HEX_A " " HEX_B "  0 1 1 1000 7 a",
        "hf1 " HEX_A " " HEX_B " 100 1 1 1000 7 a",
        "hf1 " HEX_A " " HEX_B " 0 -1 1 1000 7 a",
        "hf1 " HEX_A " " HEX_B " 0 1 1234567890 1000 7 a",
        "hf1 " HEX_A " " HEX_B " 0 1 1 1234567890123456789 7 a",
        "hf1 " HEX_A " " HEX_B " 0 1 1 1000 ++7 a",
        "hf1 " HEX_A " " HEX_B " 0 1 1 1000 + a",
        "hf1 " HEX_A " " HEX_B " 0 1 1 1000 7",
        "hf1 " HEX_A " " HEX_B " 0 1 1 1000 7x a",
    };
    struct lease_facts facts;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lease_text_read(bad[i], &facts))
            fail_msg("\"%s\" was accepted", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a body is a JSON object, and none is an empty one", test_body),
        SENTENCE("a body of another kind is refused once, with the reason", test_bad_body),
        SENTENCE("a member that nobody knows is named", test_members),
        SENTENCE("a whole number lies within its bounds, or is its default", test_whole),
        SENTENCE("a text is a text or absent", test_text),
        SENTENCE("a parameter of the query is decoded once", test_query),
        SENTENCE("a status of the library decides the answer and reveals no address",
                 test_statuses),
        SENTENCE("a request without a correlation id has its own", test_correlation),
        SENTENCE("a row becomes an object with tokens as texts", test_rows),
        SENTENCE("an object printed without a tree says the same", test_flat),
        SENTENCE("an object that does not fit is not sent in part", test_flat_cut),
        SENTENCE("the id of a lease has every field of its text", test_ids),
        SENTENCE("a text that is no exported lease is refused", test_bad_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
