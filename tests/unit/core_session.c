/* core_session.c - liveness that many holds share: what a renewal proves, when the next one is due,
 * and who belongs to a session. */
#include "core/session.h"

#include "lib/sentence.h"

#define S NANOS_OF_MS(1000)

static void test_only_a_proven_renewal_extends(void **state)
{
    (void)state;
    struct session s = {0};
    session_begin(&s, 10 * S, 9 * S);
    assert_int_equal(session_end(&s), 19 * S);

    session_keep(&s, 15 * S, 6 * S);
    assert_int_equal(session_end(&s), 19 * S); /* the server that answered may be deposed */
    session_prove(&s);
    assert_int_equal(session_end(&s), 21 * S); /* from its sending, by the ttl of its answer */
}

static void test_a_doubted_renewal_never_counts(void **state)
{
    (void)state;
    struct session s = {0};
    session_begin(&s, 10 * S, 9 * S);
    session_keep(&s, 15 * S, 9 * S);
    assert_true(session_is_kept_since(&s, 12 * S));
    session_drop_kept(&s);
    session_prove(&s);
    assert_int_equal(session_end(&s), 19 * S);
    assert_false(session_is_kept_since(&s, 12 * S));
}

static void test_a_late_answer_does_not_shorten(void **state)
{
    (void)state;
    struct session s = {0};
    session_begin(&s, 10 * S, 9 * S);
    session_keep(&s, 8 * S, 9 * S);
    session_prove(&s);
    assert_int_equal(session_end(&s), 19 * S);
}

static void test_a_session_in_its_last_third_is_renewed_before_a_request(void **state)
{
    (void)state;
    struct session s = {0};
    assert_false(session_is_fresh(&s, 0));
    session_begin(&s, 10 * S, 9 * S);
    assert_true(session_is_fresh(&s, 16 * S - 1));
    assert_false(session_is_fresh(&s, 16 * S));
}

static void test_a_session_of_others_counts_once_it_is_renewed(void **state)
{
    (void)state;
    struct session s = {0};
    session_begin(&s, 0, 9 * S);
    assert_false(session_is_fresh(&s, 3600 * S));
    /* nor on a machine that was started a moment ago */
    assert_false(session_is_fresh(&s, 1 * S));
    assert_int_equal(session_end(&s), 0);
    assert_false(session_is_kept_since(&s, -5 * S));
    session_keep(&s, 3600 * S, 9 * S);
    session_prove(&s);
    assert_true(session_is_fresh(&s, 3600 * S));
}

static void test_waiters_have_it_renewed_and_holds_do_not(void **state)
{
    (void)state;
    struct session s = {0};
    struct session_member hold = {0}, waiter = {0};
    session_begin(&s, 10 * S, 9 * S);
    session_attach(&hold, &s);
    assert_int_equal(session_renewal_due(&s), TIME_NEVER);
    session_attach(&waiter, &s);
    session_set_waits(&waiter, true);
    assert_int_equal(session_renewal_due(&s), 13 * S);
    session_keep(&s, 13 * S, 9 * S);
    assert_int_equal(session_renewal_due(&s), 16 * S);
    session_set_waits(&waiter, false); /* it is granted */
    assert_int_equal(session_renewal_due(&s), TIME_NEVER);
}

static void test_members_belong_to_one_session(void **state)
{
    (void)state;
    struct session a = {0}, b = {0};
    struct session_member m[3] = {0};
    for (int i = 0; i < 3; i++)
        session_attach(&m[i], &a);
    session_set_waits(&m[1], true);
    session_attach(&m[1], &b); /* a longer ttl */
    assert_int_equal(a.count, 2);
    assert_int_equal(a.waiters, 0);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.waiters, 1);
    session_attach(&m[1], &b);
    assert_int_equal(b.count, 1);
    session_attach(&m[0], NULL);
    assert_ptr_equal(a.members, &m[2]);
    session_attach(&m[2], NULL);
    assert_null(a.members);
    assert_int_equal(a.count, 0);
}

static void test_a_lost_session_loses_its_members_and_nobody_else(void **state)
{
    (void)state;
    struct session lost = {0}, other = {0};
    struct session_member mine[100] = {0}, theirs = {0};
    session_begin(&lost, 10 * S, 9 * S);
    session_begin(&other, 10 * S, 9 * S);
    session_attach(&theirs, &other);
    for (int i = 0; i < 100; i++) {
        session_attach(&mine[i], &lost);
        session_set_waits(&mine[i], i % 2);
    }
    session_end_all(&lost);
    int told = 0;
    for (; lost.members; told++)
        session_attach(lost.members, NULL);
    assert_int_equal(told, 100);
    assert_int_equal(lost.state, SESSION_NONE);
    assert_int_equal(session_end(&lost), 0);
    assert_int_equal(lost.count + lost.waiters, 0);
    assert_int_equal(session_renewal_due(&lost), TIME_NEVER);
    assert_int_equal(other.state, SESSION_ALIVE);
    assert_ptr_equal(other.members, &theirs);
}

static void test_a_session_that_is_being_made_is_not_made_twice(void **state)
{
    (void)state;
    struct session s = {.state = SESSION_ASKED_FOR};
    session_end_all(&s);
    assert_int_equal(s.state, SESSION_ASKED_FOR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("only a proven renewal extends a session, from when it was sent",
                 test_only_a_proven_renewal_extends),
        SENTENCE("a doubted renewal never counts", test_a_doubted_renewal_never_counts),
        SENTENCE("a late answer does not shorten a session", test_a_late_answer_does_not_shorten),
        SENTENCE("a session in its last third is renewed before a request",
                 test_a_session_in_its_last_third_is_renewed_before_a_request),
        SENTENCE("a session that another client made counts once it is renewed",
                 test_a_session_of_others_counts_once_it_is_renewed),
        SENTENCE("a session with waiters renews itself, one with holds does not",
                 test_waiters_have_it_renewed_and_holds_do_not),
        SENTENCE("a member belongs to one session", test_members_belong_to_one_session),
        SENTENCE("a lost session loses its members and nobody else",
                 test_a_lost_session_loses_its_members_and_nobody_else),
        SENTENCE("a session that is being made is not made twice",
                 test_a_session_that_is_being_made_is_not_made_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
