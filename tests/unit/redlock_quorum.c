/* redlock_quorum.c - votes folded into one answer (G35). */
#include "engines/redlock/quorum.h"
#include "lib/sentence.h"

#define O VOTE_OPEN
#define Y VOTE_YES
#define N VOTE_NO
#define F VOTE_FAILED
#define U VOTE_UNCOUNTED

static struct quorum quorum_of(unsigned servers, const enum vote *votes)
{
    struct quorum q;
    quorum_open(&q, servers);
    for (unsigned i = 0; i < servers; i++)
        q.vote[i] = votes[i];
    return q;
}

static enum quorum_verdict verdict_of(unsigned servers, const enum vote *votes)
{
    struct quorum q = quorum_of(servers, votes);
    return quorum_verdict(&q);
}
#define VERDICT(...)                                                                               \
    verdict_of(sizeof((enum vote[]){__VA_ARGS__}) / sizeof(enum vote), (enum vote[]){__VA_ARGS__})

static void test_majority(void **state)
{
    (void)state;
    static const unsigned needed[] = {0, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    for (unsigned servers = 1; servers <= QUORUM_SERVERS_MAX; servers++) {
        assert_int_equal(quorum_majority(servers), needed[servers]);
        assert_true(2 * quorum_majority(servers) > servers); /* any two of them share a server */
    }
}

static void test_verdict(void **state)
{
    (void)state;
    assert_int_equal(VERDICT(O), QUORUM_OPEN);
    assert_int_equal(VERDICT(Y), QUORUM_WON);
    assert_int_equal(VERDICT(N), QUORUM_LOST);
    assert_int_equal(VERDICT(Y, Y, O, O, O), QUORUM_OPEN);
    assert_int_equal(VERDICT(Y, Y, Y, O, O), QUORUM_WON); /* the slow are not waited for */
    assert_int_equal(VERDICT(Y, Y, N, F, O), QUORUM_OPEN);
    assert_int_equal(VERDICT(Y, Y, N, F, U), QUORUM_LOST);
    assert_int_equal(VERDICT(N, N, N, O, O), QUORUM_LOST); /* nor when it cannot come any more */
    assert_int_equal(VERDICT(U, U, U, U, U), QUORUM_LOST);
    assert_int_equal(VERDICT(Y, Y, O, O), QUORUM_OPEN); /* half of an even number is no majority */
    assert_int_equal(VERDICT(Y, Y, N, N), QUORUM_LOST);
    assert_int_equal(VERDICT(Y, Y, Y, N), QUORUM_WON);
}

/* All votes that five servers can cast: never both a majority of yeses and LOST, never a verdict
 * that an open vote could still change. */
static void test_all_votes(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 5 * 5 * 5 * 5 * 5; code++) {
        enum vote votes[5];
        for (unsigned i = 0, rest = code; i < 5; i++, rest /= 5)
            votes[i] = (enum vote)(rest % 5);
        struct quorum q = quorum_of(5, votes), best = q, worst = q;
        for (unsigned i = 0; i < 5; i++)
            if (q.vote[i] == VOTE_OPEN) {
                best.vote[i] = VOTE_YES;
                worst.vote[i] = VOTE_NO;
            }
        enum quorum_verdict verdict = quorum_verdict(&q);
        if (verdict == QUORUM_OPEN) {
            assert_int_equal(quorum_verdict(&best), QUORUM_WON);
            assert_int_equal(quorum_verdict(&worst), QUORUM_LOST);
        } else {
            assert_int_equal(quorum_verdict(&best), verdict);
            assert_int_equal(quorum_verdict(&worst), verdict);
        }
        assert_int_equal(verdict == QUORUM_WON, quorum_count(&q, VOTE_YES) >= 3);
    }
}

/* Busy is not silence: three that answer could have been a majority. */
static void test_silent(void **state)
{
    (void)state;
    struct quorum q = quorum_of(5, (enum vote[]){Y, Y, F, F, N});
    assert_false(quorum_is_silent(&q));
    q = quorum_of(5, (enum vote[]){Y, Y, F, F, U});
    assert_true(quorum_is_silent(&q));
    q = quorum_of(4, (enum vote[]){Y, Y, F, F});
    assert_true(quorum_is_silent(&q));
    q = quorum_of(1, (enum vote[]){N});
    assert_false(quorum_is_silent(&q));
}

/* Those that refuse are enough when the others are no majority: then no vote that is open or away
 * matters. */
static void test_refused(void **state)
{
    (void)state;
    struct quorum q = quorum_of(5, (enum vote[]){Y, Y, N, N, F});
    assert_false(quorum_is_refused(&q));
    q = quorum_of(5, (enum vote[]){O, O, N, N, N});
    assert_true(quorum_is_refused(&q));
    q = quorum_of(4, (enum vote[]){Y, Y, N, N});
    assert_true(quorum_is_refused(&q));
    q = quorum_of(4, (enum vote[]){Y, Y, N, F});
    assert_false(quorum_is_refused(&q));
    q = quorum_of(1, (enum vote[]){N});
    assert_true(quorum_is_refused(&q));
}

static void test_left(void **state)
{
    (void)state;
    assert_int_equal(quorum_left((nanos[]){7}, 1), 7);
    assert_int_equal(quorum_left((nanos[]){0}, 1), 0);
    assert_int_equal(quorum_left((nanos[]){9, 1, 5, 7, 3}, 5), 5); /* three have five and more */
    assert_int_equal(quorum_left((nanos[]){0, 0, 5, 7, 0}, 5), 0);
    assert_int_equal(quorum_left((nanos[]){4, 4, 4, 0, 0}, 5), 4);
    assert_int_equal(quorum_left((nanos[]){1, 2, 3, 4}, 4), 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("any two majorities share a server", test_majority),
        SENTENCE("a verdict comes as soon as nothing can change it", test_verdict),
        SENTENCE("no votes of five servers make a verdict that is wrong or late", test_all_votes),
        SENTENCE("too few that answer are not the same as too many that refuse", test_silent),
        SENTENCE("so many refuse that the others are no majority", test_refused),
        SENTENCE("the time that a majority has left is what its poorest has", test_left),
    };
    return cmocka_run_group_tests_name("core: quorum", tests, NULL, NULL);
}
