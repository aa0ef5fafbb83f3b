/* server_deadlock.c - tests of how the service finds holders that wait for each other, and of its
 * figures of the last hour. */
#include "deadlock.h"
#include "hour_stats.h"

#include "lib/sentence.h"
#include <stdio.h>
#include <string.h>

static char found[512];

static void note_circle(void *arg, const struct wait_entry *const *holders, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? ">" : "",
                 holders[i]->name);
    strcat(found, ";");
}

static void note_edge(void *arg, size_t holder, const char *name)
{
    char *edges = arg;
    snprintf(edges + strlen(edges), 256 - strlen(edges), "%zu>%s ", holder, name);
}

#define HOLD(lock, who)                                                                            \
    {                                                                                              \
        .name = lock, .holds = true, .token = 7, .client = who                                     \
    }
#define PERMIT(lock, who)                                                                          \
    {                                                                                              \
        .name = lock, .holds = true, .semaphore = true, .client = who                              \
    }
#define WAIT(lock, who)                                                                            \
    {                                                                                              \
        .name = lock, .client = who                                                                \
    }
#define CIRCLES(entries, wanted) check(entries, sizeof(entries) / sizeof((entries)[0]), wanted)

static void check(const struct wait_entry *entries, size_t count, const char *wanted)
{
    const struct deadlock_report report = {NULL, note_circle, NULL};
    *found = 0;
    assert_true(deadlock_find(entries, count, &report));
    assert_string_equal(found, wanted);
}

static void test_chain(void **state)
{
    (void)state;
    const struct wait_entry chain[] = {HOLD("a", "1"), HOLD("b", "2"), WAIT("b", "1"),
                                       HOLD("c", "3"), WAIT("c", "2")};
    char edges[256] = "";
    const struct deadlock_report report = {note_edge, note_circle, edges};

    *found = 0;
    assert_true(deadlock_find(chain, 5, &report));
    assert_string_equal(edges, "0>b 1>c ");
    assert_string_equal(found, "");
    CIRCLES(((const struct wait_entry[]){HOLD("a", "1")}), "");
}

static void test_circles(void **state)
{
    (void)state;
    const struct wait_entry two[] = {HOLD("a", "1"), WAIT("a", "2"), HOLD("b", "2"),
                                     WAIT("b", "1")};
    const struct wait_entry three[] = {HOLD("a", "1"), WAIT("a", "3"), HOLD("b", "2"),
                                       WAIT("b", "1"), HOLD("c", "3"), WAIT("c", "2")};
    const struct wait_entry both[] = {HOLD("a", "1"), WAIT("a", "2"), HOLD("b", "2"),
                                      WAIT("b", "1"), HOLD("x", "3"), WAIT("x", "4"),
                                      HOLD("y", "4"), WAIT("y", "3")};
    const struct wait_entry outside[] = {HOLD("a", "1"), WAIT("a", "2"), WAIT("a", "9"),
                                         HOLD("b", "2"), WAIT("b", "1"), HOLD("z", "9")};

    CIRCLES(two, "a>b;");
    CIRCLES(three, "a>b>c;");
    CIRCLES(both, "a>b;x>y;");
    CIRCLES(outside, "a>b;");
}

static void test_semaphores(void **state)
{
    (void)state;
    const struct wait_entry one_returns[] = {PERMIT("p", "1"), PERMIT("p", "5"), WAIT("p", "2"),
                                             HOLD("x", "2"), WAIT("x", "1")};
    const struct wait_entry none_returns[] = {PERMIT("p", "1"), PERMIT("p", "5"), WAIT("p", "2"),
                                              HOLD("x", "2"),   WAIT("x", "1"),   WAIT("x", "5")};
    const struct wait_entry readers[] = {HOLD("r", "1"), HOLD("r", "5"), WAIT("r", "2"),
                                         HOLD("x", "2"), WAIT("x", "1")};

    CIRCLES(one_returns, "");
    CIRCLES(none_returns, "p>x;");
    CIRCLES(readers, "r>x;");
}

static void test_not_known(void **state)
{
    (void)state;
    const struct wait_entry strangers[] = {HOLD("a", NULL), WAIT("a", NULL), HOLD("b", NULL),
                                           WAIT("b", NULL)};
    const struct wait_entry itself[] = {HOLD("a", "1"), WAIT("a", "1")};
    const struct wait_entry threads[] = {HOLD("a", "1"), WAIT("a", "2"), HOLD("b", "2"),
                                         WAIT("b", "1"), HOLD("c", "8"), WAIT("c", "1")};

    CIRCLES(strangers, "");
    CIRCLES(itself, "");
    CIRCLES(threads, "");
}

static int64_t number(json_t *json, const char *group, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(json, group), key));
}

static void test_hour(void **state)
{
    (void)state;
    static struct hour_stats hour;
    int64_t now = INT64_C(1800000000000);

    for (int i = 1; i <= 100; i++)
        hour_granted(&hour, now, i);
    hour_granted(&hour, now, -1);
    hour_ended(&hour, now - INT64_C(3700000), 5);
    hour_polled(&hour, now, 3, 1);
    hour_polled(&hour, now, 2, 4);
    json_t *json = hour_json(&hour, now);

    assert_int_equal(number(json, "waits", "count"), 100);
    assert_int_equal(number(json, "waits", "p50Ms"), 50);
    assert_int_equal(number(json, "waits", "p99Ms"), 99);
    assert_int_equal(number(json, "holds", "count"), 0);
    assert_true(json_is_null(json_object_get(json_object_get(json, "holds"), "p50Ms")));
    assert_int_equal(json_array_size(json_object_get(json, "held")), HOUR_MINUTES);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "held"), 59)), 3);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "waiting"), 59)), 4);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "grants"), 59)), 101);
    assert_true(json_is_null(json_array_get(json_object_get(json, "held"), 58)));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a chain with an end is no deadlock, and its links are reported", test_chain),
        SENTENCE("circles of two and three are found once each, without who waits outside",
                 test_circles),
        SENTENCE("a permit that comes back breaks a circle; of readers all must", test_semaphores),
        SENTENCE("nothing is claimed of strangers, of threads, or of one's own lock",
                 test_not_known),
        SENTENCE("the last hour has its percentiles, and forgets what is older", test_hour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
