/* kit_session_list.c - tests of the sessions of a client: who shares one, which are freed, and who
 * renews them. */
#include "engines/kit/session_list.h"

#include "lib/sentence.h"

struct kept {
    struct session base;
    uint64_t mark;
};

static struct kept *find(struct session **list, int64_t seconds, const struct id *attempt)
{
    struct kept *kept = session_list_find_or_make(list, seconds, attempt, sizeof *kept);
    assert_non_null(kept);
    return kept;
}

static void test_sharing(void **state)
{
    (void)state;
    struct session *list = NULL;
    struct id a = {.b = {1}}, b = {.b = {2}};
    struct kept *shared = find(&list, 10, NULL), *private = find(&list, 10, &a);
    assert_int_equal(shared->mark, 0);
    assert_ptr_equal(find(&list, 10, NULL), shared);
    assert_ptr_equal(find(&list, 10, &a), private);
    assert_ptr_not_equal(private, shared);
    assert_ptr_not_equal(find(&list, 10, &b), private);
    assert_ptr_not_equal(find(&list, 20, NULL), shared);
    session_list_free(&list);
    assert_null(list);
}

static bool is_in_flight(void *ctx, const struct session *session)
{
    return session == ctx;
}

static unsigned count(const struct session *list)
{
    unsigned n = 0;
    for (; list; list = list->next)
        n++;
    return n;
}

static void test_dropping(void **state)
{
    (void)state;
    struct session *list = NULL;
    struct id ids[3] = {{.b = {1}}, {.b = {2}}, {.b = {3}}};
    struct session_member member = {0};
    find(&list, 10, NULL);
    session_attach(&member, &find(&list, 10, &ids[0])->base);
    struct session *asked = &find(&list, 10, &ids[1])->base;
    find(&list, 10, &ids[2]);

    session_list_drop_unused(&list, is_in_flight, asked);
    assert_int_equal(count(list), 3); /* shared, in use, in flight */
    session_attach(&member, NULL);
    session_list_drop_unused(&list, is_in_flight, NULL);
    assert_int_equal(count(list), 1);
    session_list_free(&list);
}

static void renew(void *ctx, struct session *session, nanos now)
{
    unsigned *calls = ctx;
    session_keep(session, now, session->length);
    ++*calls;
}

static void test_renewing(void **state)
{
    (void)state;
    struct session *list = NULL;
    struct session_member m[2] = {0};
    unsigned calls = 0;
    struct session *one = &find(&list, 10, NULL)->base, *other = &find(&list, 20, NULL)->base;
    session_begin(one, 0, 9000);
    session_begin(other, 0, 90000);
    session_attach(&m[0], one);
    session_attach(&m[1], other);
    assert_int_equal(session_list_renew(list, 5000, renew, &calls), TIME_NEVER);

    session_set_waits(&m[0], true);
    assert_int_equal(session_list_renew(list, 1000, renew, &calls), 3000);
    assert_int_equal(calls, 0);
    session_set_waits(&m[1], true);
    assert_int_equal(session_list_renew(list, 3500, renew, &calls), 6500);
    assert_int_equal(calls, 1);
    assert_int_equal(session_list_renew(list, 3500, renew, &calls), 6500);
    assert_int_equal(calls, 1); /* one renewal, whoever asks */
    session_attach(&m[0], NULL);
    session_attach(&m[1], NULL);
    session_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("attempts with one ttl share a session, and a private one has one attempt",
                 test_sharing),
        SENTENCE("private sessions without members are freed, unless something is in flight",
                 test_dropping),
        SENTENCE("sessions with waiters are renewed when a third of their time is over",
                 test_renewing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
