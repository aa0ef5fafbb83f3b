/* zookeeper_places.c - tests of the names and data of places in ZooKeeper, of jute, and of what is
 * believed of a session. */
#include "engines/zookeeper/zookeeper.h"

#include "lib/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS NANOS_OF_MS(1)
#define ID "0123456789abcdef0123456789abcdef"

static struct zk_place read_name(const char *name)
{
    struct zk_place place;
    if (!zk_place_read(&place, (struct jute_bytes){name, strlen(name)}))
        fail_msg("%s: is not read as a place", name);
    return place;
}

/* ---- Names ---- */

static void test_own_names(void **state)
{
    (void)state;
    struct zk_place place = read_name("hf1.s3.5." ID "-lock-0000000012");
    assert_int_equal(place.sequence, 12);
    assert_int_equal(place.queue.kind, HF_SEMAPHORE);
    assert_int_equal(place.queue.units, 3);
    assert_int_equal(place.queue.capacity, 5);
    assert_false(place.queue.foreign);
    assert_string_equal(place.id, ID);
    place = read_name("hf1.w1.1." ID "__lock__0000000007");
    assert_int_equal(place.sequence, 7);
    assert_int_equal(place.queue.kind, HF_WRITE);
    assert_string_equal(place.id, ID);
}

static void test_foreign_names(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "_c_3fe0b5a1-5d0c-4e6e-9a4b-000000000000-lock-0000000003", "abc__lock__0000000003",
        "x-0000000003", "hf1.q1.1." ID "-lock-0000000003", "hf1.e1.1.0123-lock-0000000003"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct zk_place place = read_name(foreign[i]);
        assert_true(place.queue.foreign);
        assert_int_equal(place.sequence, 3);
        assert_string_equal(place.id, "");
    }

    static const char *const none[] = {"leases", "locks-00", "", "hf1.e1.1." ID "-lock-"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct zk_place place;
        assert_false(zk_place_read(&place, (struct jute_bytes){none[i], strlen(none[i])}));
    }
}

/* The server's counter is signed and wraps from 2147483647 to -2147483648. */
static void test_numbers_wrap(void **state)
{
    (void)state;
    assert_int_equal(read_name("hf1.e1.1." ID "-lock-2147483647").sequence, INT32_MAX);
    assert_int_equal(read_name("hf1.e1.1." ID "-lock--2147483648").sequence, INT32_MIN);
    assert_int_equal(read_name("hf1.e1.1." ID "-lock--000000005").sequence, -5);
    int32_t from = INT32_MAX;
    assert_true(zk_place_arrival(INT32_MAX - 1, from) < zk_place_arrival(INT32_MAX, from));
    assert_true(zk_place_arrival(INT32_MAX, from) < zk_place_arrival(INT32_MIN, from));
    assert_true(zk_place_arrival(INT32_MIN, from) < zk_place_arrival(INT32_MIN + 9, from));
}

static void test_lock_names(void **state)
{
    (void)state;
    static const char *const names[] = {"job", ".", "..", "a/b", "100%", "with blank", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char node[64], back[64];
        size_t len = zk_name_encode(node, names[i], strlen(names[i]));
        node[len] = '\0';
        assert_null(strchr(node, '/'));
        assert_true(strcmp(node, ".") != 0 && strcmp(node, "..") != 0);
        zk_name_decode(back, sizeof back, node, len);
        assert_string_equal(back, names[i]);
    }
}

static void test_data(void **state)
{
    (void)state;
    struct zk zk = {.about = "42 here", .wall_offset_ms = 1000};
    struct zk_session session = {.base.is_private = true, .id = -2, .password_len = 16};
    struct zk_lock lock = {.session = &session};
    struct zk_entry entry = {
        .lock = &lock,
        .sent = {.ttl_ms = 1500, .detached = true, .label = "two words", .label_len = 9}};
    char text[ZK_DATA_MAX];
    struct zk_data data;
    memcpy(session.password, "\0\1\2\3\4\5\6\7\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7", 16);
    size_t len = zk_data_write(&zk, &entry, text, 5 * MS);
    assert_true(zk_data_read(&data, (struct jute_bytes){text, len}));
    assert_int_equal(data.ttl_ms, 1500);
    assert_int_equal(data.at_ms, 1005);
    assert_int_equal(data.pid, 42);
    assert_true(data.detached);
    assert_int_equal(data.session, -2);
    assert_int_equal(data.password_len, 16);
    assert_memory_equal(data.password, session.password, 16);
    assert_string_equal(data.host, "here");
    assert_string_equal(data.label, "two words");
    assert_false(zk_data_read(&data, (struct jute_bytes){"10.0.0.1", 8}));
    assert_false(zk_data_read(&data, (struct jute_bytes){NULL, 0}));
}

/* ---- Belief ---- */

/* A write counts from the newest request that was answered a quarter of the timeout earlier: only
 * that one has surely reached the leader. */
static void test_belief(void **state)
{
    (void)state;
    struct zk_session s = {.timeout_ms = 4000, .greeted_at = 10000 * MS};
    assert_true(zk_session_touched(&s, 10001 * MS) == 10000 * MS);
    for (nanos at = 10500; at <= 14000; at += 500)
        zk_session_touch(&s, at * MS, (at + 100) * MS);
    assert_true(zk_session_touched(&s, 14000 * MS) == 12500 * MS);
    assert_true(zk_session_touched(&s, 14599 * MS) == 13000 * MS);
    assert_true(zk_session_touched(&s, 14600 * MS) == 13500 * MS);

    struct zk_call beat = {.flight.sent_at = 14600 * MS, .touched_at = 13500 * MS};
    zk_session_prove(&s, &beat);
    assert_true(session_end(&s.base) == 17500 * MS);
    struct zk_call late = {.flight.sent_at = 14700 * MS, .touched_at = 13000 * MS};
    zk_session_prove(&s, &late); /* belief is never shortened */
    assert_true(session_end(&s.base) == 17500 * MS);
}

/* A request that was sent in time, and whose reply came late, may have reached the follower
 * together with the write. */
static void test_late_reply_proves_nothing(void **state)
{
    (void)state;
    struct zk_session s = {.timeout_ms = 4000, .greeted_at = 10000 * MS};
    zk_session_touch(&s, 11000 * MS, 11100 * MS);
    zk_session_touch(&s, 12000 * MS, 14000 * MS);
    assert_true(zk_session_touched(&s, 14500 * MS) == 11000 * MS);
    assert_true(zk_session_touched(&s, 15000 * MS) == 12000 * MS);
}

/* Pings touch, but only an answered write lengthens what is believed. */
static void test_pings_prove_nothing(void **state)
{
    (void)state;
    struct zk_session s = {.timeout_ms = 4000,
                           .base = {.proven_at = 10000 * MS, .length = 4000 * MS}};
    for (nanos at = 10000; at < 20000; at += 250)
        zk_session_touch(&s, at * MS, at * MS);
    assert_true(session_end(&s.base) == 14000 * MS);
    assert_true(zk_session_touched(&s, 20000 * MS) == 19000 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("the name of a place says what it asks for", test_own_names),
        SENTENCE("other programs' places count, and other nodes do not", test_foreign_names),
        SENTENCE("numbers that wrap keep their order", test_numbers_wrap),
        SENTENCE("every name of a lock is one node, and comes back", test_lock_names),
        SENTENCE("the data of a place comes back, and foreign data is refused", test_data),
        SENTENCE("a write is believed from the last request that the leader knows of", test_belief),
        SENTENCE("a request that was answered late proves nothing before",
                 test_late_reply_proves_nothing),
        SENTENCE("pings prove nothing", test_pings_prove_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
