/* server_idempotency.c - tests of the names that an Idempotency-Key becomes: equal for a request
 * that is repeated, different for any other caller, key, name or body. */
#include "lib/kept_answer.h"
#include "pending_acquires.h"

#include "lib/sentence.h"
#include <string.h>

static const struct caller anna = {.name = "anna", .id = {1}}, ben = {.name = "ben", .id = {2}};

static struct wait derived(const struct caller *caller, const char *key, const char *name,
                           const char *body)
{
    char head[512];
    struct wait wait = {0};
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: %s\r\n\r\n", key);
    struct exchange *x = kept_request(head, body, NULL);
    x->caller = caller;
    snprintf(wait.name, sizeof wait.name, "%s", name);
    json_t *json = read_body(x);
    assert_true(idempotency_read(x, &wait, json));
    json_decref(json);
    return wait;
}

static void check_differs(const struct wait *one, const struct wait *two)
{
    assert_string_not_equal(one->key, two->key);
    assert_string_not_equal(one->record, two->record);
    assert_string_not_equal(one->idempotency.body, two->idempotency.body);
}

static void test_repeated(void **state)
{
    (void)state;
    struct wait one = derived(&anna, "k1", "job", "{\"ttlMs\":5,\"label\":\"x\"}");
    struct wait two = derived(&anna, "k1", "job", " {\"label\": \"x\", \"ttlMs\": 5} ");
    assert_string_equal(one.key, two.key);
    assert_string_equal(one.record, two.record);
    assert_string_equal(one.idempotency.body, two.idempotency.body);
    assert_int_equal(strlen(one.key), 64);
    assert_int_equal(strncmp(one.record, RECORD_PREFIX, strlen(RECORD_PREFIX)), 0);
}

static void test_others(void **state)
{
    (void)state;
    struct wait one = derived(&anna, "k1", "job", "{}");
    struct wait other_key = derived(&anna, "k2", "job", "{}");
    struct wait other_caller = derived(&ben, "k1", "job", "{}");
    struct wait certificate = derived(NULL, "k1", "job", "{}");
    check_differs(&one, &other_key);
    check_differs(&one, &other_caller);
    check_differs(&one, &certificate);
}

/* Under the same key, so that the record is found held. */
static void test_other_request(void **state)
{
    (void)state;
    struct wait one = derived(&anna, "k1", "job", "{}");
    struct wait other_body = derived(&anna, "k1", "job", "{\"ttlMs\":5}");
    struct wait other_name = derived(&anna, "k1", "task", "{}");
    assert_string_equal(one.record, other_body.record);
    assert_string_equal(one.record, other_name.record);
    assert_string_not_equal(one.idempotency.body, other_body.idempotency.body);
    assert_string_not_equal(one.idempotency.body, other_name.idempotency.body);
}

/* Who sees the name of a record, as every caller that lists names does, cannot release by it. */
static void test_secrets(void **state)
{
    (void)state;
    struct wait one = derived(&anna, "k1", "job", "{}");
    assert_null(strstr(one.record, one.key));
    assert_null(strstr(one.record, one.idempotency.body));
    assert_string_not_equal(one.key, one.idempotency.body);
}

static void test_absent(void **state)
{
    struct wait wait = {0};
    (void)state;
    struct exchange *x = kept_request("POST / HTTP/1.1\r\nHost: a\r\n\r\n", "", NULL);
    assert_true(idempotency_read(x, &wait, NULL));
    assert_string_equal(wait.key, "");
    assert_int_equal(kept_answer.count, 0);
}

static bool reads_key_of(size_t len)
{
    char head[512] = "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: ";
    struct wait wait = {0};
    size_t full = strlen(head);
    memset(head + full, 'k', len);
    strcpy(head + full + len, "\r\n\r\n");
    json_t *body = json_object();
    bool read = idempotency_read(kept_request(head, "", NULL), &wait, body);
    json_decref(body);
    return read;
}

static void test_lengths(void **state)
{
    (void)state;
    assert_true(reads_key_of(1));
    assert_true(reads_key_of(255));
    assert_false(reads_key_of(0));
    assert_int_equal(kept_answer.status, 400);
    assert_false(reads_key_of(256));
    assert_int_equal(kept_answer.status, 400);
    assert_non_null(strstr(kept_member("detail"), "between 1 and 255 bytes"));
}

static void test_shared(void **state)
{
    struct requester requester = {0};
    struct wait first = derived(&anna, "k1", "job", "{}"), second = first, without = {0};
    struct leases leases = {.waits = &first};
    (void)state;
    assert_null(idempotency_shared(&leases, &second)); /* nobody waits for its answer any more */
    first.requesters = &requester;
    assert_ptr_equal(idempotency_shared(&leases, &second), &first);
    assert_null(idempotency_shared(&leases, &without));
    second = derived(&anna, "k2", "job", "{}");
    assert_null(idempotency_shared(&leases, &second));
}

static void test_digest(void **state)
{
    char text[HEX_BYTES];
    (void)state;
    hex_digest("abc", 3, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_record(void **state)
{
    struct idempotency idempotency = {.record_ms = 1234, .body = "the attempt"};
    (void)state;
    struct hf_request request = idempotency_record_request("record", &idempotency);
    assert_int_equal(request.size, sizeof request);
    assert_string_equal(request.name, "record");
    assert_string_equal(request.attempt, "the attempt");
    assert_int_equal(request.ttl_ms, 1234);
    assert_int_equal(request.flags, HF_DETACHED);
    assert_int_equal(request.wait_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a repeated request has the same names, however its body is written",
                 test_repeated),
        SENTENCE("another key or caller has other names", test_others),
        SENTENCE("another body or lock under the same key has the same record and another attempt",
                 test_other_request),
        SENTENCE("the name of a record gives no secret away", test_secrets),
        SENTENCE("a request without a key has no names", test_absent),
        SENTENCE("a key has between 1 and 255 bytes", test_lengths),
        SENTENCE("requests under one key share a wait while somebody waits for it", test_shared),
        SENTENCE("a digest is SHA-256 in hex", test_digest),
        SENTENCE("a record is detached, does not wait, and lasts as long as was decided",
                 test_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
