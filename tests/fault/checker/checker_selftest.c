/* checker_selftest.c - the judge of histories finds what is wrong, and names the invariant; what is
 * right it praises. Of each invariant there is a history that breaks it, and the nearest one that
 * does not. */
#include "checker/history_recording.h"
#include "lib/sentence.h"

#include <stdio.h>

enum { MS = 1000000, MOST = 16 };

/* ---- Words for events ---- */

#define AT(ms, kind, number, ...)                                                                  \
    {                                                                                              \
        .at = (ms) * (int64_t)MS, .what = kind, .who = number, __VA_ARGS__                         \
    }

/* Process p asks for u of c units of lock 0, and does not mind how long it takes. */
#define ASKS(ms, a, p, u, c, ...)                                                                  \
    AT(ms, H_ASKED, a, .process = p, .units = u, .capacity = c, .reach = 100 * MS, __VA_ARGS__)
#define ASK(ms, a, p, u, c, ...)                                                                   \
    ASKS(ms, a, p, u, c, .owner = a, .other = H_NOBODY, .until = H_NEVER, __VA_ARGS__)
#define ENTER(ms, a, who)                                                                          \
    ASKS(ms, a, 0, 1, 1, .owner = who, .flags = H_ENTERS, .other = H_NOBODY, .until = H_NEVER)
#define BESIDE(ms, a, p, number, one)                                                              \
    ASKS(ms, a, p, 1, 1, .lock = number, .owner = a, .other = one, .until = H_NEVER)
#define GRANT(ms, a, number, end, ...)                                                             \
    AT(ms, H_GRANTED, a, .token = number, .from = (ms) * (int64_t)MS,                              \
       .until = (end) * (int64_t)MS, __VA_ARGS__)
#define YES(ms, a, number, end)                                                                    \
    AT(ms, H_BELIEVES, a, .token = number, .from = (ms) * (int64_t)MS, .until = (end) * (int64_t)MS)
#define END(ms, a) AT(ms, H_ENDED, a), AT(ms, H_OVER, a)
#define FAULT(ms, kind, p, ...) AT(ms, H_FAULT, 0, .fault = kind, .process = p, __VA_ARGS__)
#define WROTE(ms, a, number, said) AT(ms, H_WROTE, a, .token = number, .flags = said)
#define SHOW(ms, what) AT(ms, H_SHOWN, 0, .sight = what)

/* Two that use lock 0 alone, one after the other. */
#define FIRST ASK(10, 0, 0, 1, 1), GRANT(20, 0, 1000, 120)
#define SECOND(ms, number) ASK(30, 1, 1, 1, 1), GRANT(ms, 1, number, 300)

struct written {
    struct history_event event[MOST];
    const char *complaint; /* NULL: there is nothing wrong */
};

static const struct history_rules exact = {
    .exact = true, .settles = 50 * MS, .recovery = 200 * MS, .inbox = 60000LL * MS};

static void judge_by(const struct history_rules *rules, const struct written *w)
{
    struct history *h = history_open();
    history_begin(h, rules);
    for (const struct history_event *e = w->event; e < w->event + MOST && e->what; e++)
        history_add(h, e);
    history_finish(h);
    const char *said = history_failure(h);
    if (w->complaint ? !strstr(said, w->complaint) : *said != 0)
        fail_msg("\"%s\" instead of \"%s\"", said, w->complaint ? w->complaint : "");
    history_close(h);
}

#define JUDGE(...) judge_by(&exact, &(struct written){__VA_ARGS__})

/* ---- What users are told ---- */

static void test_good(void **state)
{
    (void)state;
    JUDGE({FIRST, WROTE(40, 0, 1000, H_ADMITTED), END(50, 0), SECOND(60, 1001),
           WROTE(65, 1, 1001, H_ADMITTED), WROTE(66, 0, 1000, 0), END(70, 1)},
          NULL);
    JUDGE({FIRST, SECOND(120, 1001), END(121, 0), END(130, 1)}, NULL);
    JUDGE({{0}}, NULL);
}

static void test_exclusion(void **state)
{
    (void)state;
    JUDGE({FIRST, SECOND(119, 1001), END(121, 0), END(130, 1)},
          "exclusion (G1 G5 G6 G35): at 119.000 ms 2 units are believed to be held of 1: a0 (token "
          "1000, until 120.000 "
          "ms) a1 (token 1001, until 300.000 ms)");
    JUDGE({FIRST, YES(100, 0, 1000, 200), SECOND(130, 1001), END(140, 0), END(150, 1)},
          "exclusion");
    JUDGE({FIRST, AT(30, H_LOST, 0, .flags = H_WISHED), AT(30, H_OVER, 0), SECOND(40, 1001),
           END(50, 1)},
          NULL);
    JUDGE({FIRST, AT(40, H_FOREIGN, 0, .until = 90 * MS), END(50, 0)}, "and another program");
    JUDGE({FIRST, AT(40, H_BROKEN, 0, .token = 1000), SECOND(50, 1001), END(60, 0), END(70, 1)},
          NULL);
}

static void test_units(void **state)
{
    (void)state;
    JUDGE({ASK(1, 0, 0, 2, 3), GRANT(2, 0, 10, 90), ASK(3, 1, 1, 1, 3), GRANT(4, 1, 11, 90),
           END(5, 0), END(5, 1)},
          NULL);
    JUDGE({ASK(1, 0, 0, 2, 3), GRANT(2, 0, 10, 90), ASK(3, 1, 1, 2, 3), GRANT(4, 1, 11, 90),
           END(5, 0), END(5, 1)},
          "4 units are believed to be held of 3");
    JUDGE({ASK(1, 0, 0, 1, 9), GRANT(2, 0, 10, 90), ASK(3, 1, 1, 9, 9), GRANT(4, 1, 11, 90),
           END(5, 0), END(5, 1)},
          "10 units are believed to be held of 9");
    JUDGE({ENTER(1, 0, 7), GRANT(2, 0, 10, 90), ENTER(3, 1, 7), GRANT(4, 1, 10, 90), END(5, 0),
           END(5, 1)},
          NULL);
    JUDGE({ASK(1, 0, 0, 1, 9), GRANT(2, 0, 10, 90),
           AT(3, H_CONVERTED, 0, .units = 9, .token = 11, .flags = H_FRESH), ASK(3, 1, 1, 1, 9),
           GRANT(4, 1, 12, 90), END(5, 0), END(5, 1)},
          "10 units are believed to be held of 9");
}

/* What the server lost may be good beside what it grants then, until it is asked, and for the reach
 * of 100 at most. */
static void test_doubt(void **state)
{
    (void)state;
    static const enum history_fault losing[] = {H_FORGOT, H_STALE, H_AHEAD};
    for (unsigned i = 0; i < sizeof losing / sizeof *losing; i++) {
        JUDGE({FIRST, FAULT(35, losing[i], H_ALL, .until = 36 * MS, .by = MS), ASK(40, 1, 1, 1, 1),
               GRANT(41, 1, 1001, 90), END(50, 0), END(50, 1)},
              NULL);
        JUDGE({FIRST, FAULT(35, losing[i], H_ALL, .until = 36 * MS, .by = MS),
               YES(37, 0, 1000, 120), ASK(40, 1, 1, 1, 1), GRANT(41, 1, 1001, 90), END(50, 0),
               END(50, 1)},
              "exclusion");
        JUDGE({FIRST, AT(30, H_BELIEVES, 0, .token = 1000, .until = 300 * MS),
               FAULT(35, losing[i], H_ALL, .until = 36 * MS, .by = MS), ASK(40, 1, 1, 1, 1),
               GRANT(137, 1, 1001, 190), END(150, 0), END(150, 1)},
              "exclusion");
    }
    JUDGE({FIRST, FAULT(35, H_BACK, H_ALL, .by = -MS), ASK(40, 1, 1, 1, 1), GRANT(41, 1, 1001, 90),
           END(50, 0), END(50, 1)},
          "exclusion");
    judge_by(&(struct history_rules){.exact = true, .quorum = true},
             &(struct written){{FIRST, FAULT(35, H_FORGOT, H_ALL), ASK(40, 1, 1, 1, 1),
                                GRANT(41, 1, 1001, 90), END(50, 0), END(50, 1)},
                               "exclusion"});
}

static void test_tokens(void **state)
{
    (void)state;
    JUDGE({FIRST, END(25, 0), SECOND(30, 1000), END(40, 1)},
          "token order is grant order (G10 G36): a1 got token 1000");
    JUDGE({FIRST, END(25, 0), SECOND(30, 999), END(40, 1)}, "at 30.000 ms, after 1000");
    JUDGE({ASK(1, 0, 0, 1, 9), GRANT(2, 0, 10, 90), ASK(3, 1, 1, 1, 9), GRANT(4, 1, 9, 90),
           END(5, 0), END(5, 1)},
          NULL);
    JUDGE({ASK(1, 0, 0, 9, 9), GRANT(2, 0, 10, 90), END(3, 0), ASK(3, 1, 1, 1, 9),
           GRANT(4, 1, 9, 90), END(5, 1)},
          "token order");
    JUDGE({ASK(1, 0, 0, 1, 9), GRANT(2, 0, 10, 90), END(3, 0), ASK(3, 1, 1, 9, 9),
           GRANT(4, 1, 9, 90), END(5, 1)},
          "token order");
    JUDGE({ASK(1, 0, 0, 1, 9), GRANT(2, 0, 10, 90),
           AT(3, H_CONVERTED, 0, .units = 9, .token = 10, .flags = H_FRESH), END(5, 0)},
          "token order");
}

/* Lost data alone lets no token fall, nor does a clock that goes back; both together do, once. */
static void test_counter(void **state)
{
    (void)state;
    JUDGE({FIRST, END(25, 0), FAULT(26, H_FORGOT, H_ALL), SECOND(30, 999), END(40, 1)},
          "token order");
    JUDGE(
        {FIRST, END(25, 0), FAULT(26, H_BACK, H_ALL, .by = -90 * MS), SECOND(30, 999), END(40, 1)},
        "token order");
    JUDGE({FIRST, END(25, 0), FAULT(26, H_BACK, H_ALL, .by = -90 * MS), FAULT(27, H_FORGOT, H_ALL),
           SECOND(30, 999), END(40, 1)},
          NULL);
    JUDGE({FIRST, END(25, 0), FAULT(26, H_FORGOT, H_ALL), FAULT(27, H_BACK, H_ALL, .by = -90 * MS),
           SECOND(30, 999), END(40, 1)},
          NULL);
    JUDGE({FIRST, END(25, 0), FAULT(26, H_BACK, H_ALL, .by = -90 * MS), FAULT(27, H_FORGOT, H_ALL),
           SECOND(30, 999), END(40, 1), ASK(41, 2, 0, 1, 1), GRANT(42, 2, 998, 90), END(50, 2)},
          "a2 got token 998");
    JUDGE({FIRST, END(25, 0), FAULT(26, H_BACK, H_ALL, .by = -2 * MS), FAULT(29, H_FORGOT, H_ALL),
           SECOND(30, 999), END(40, 1)},
          "token order"); /* it had caught up */
    JUDGE({FIRST, END(25, 0), FAULT(26, H_FORGOT, H_ALL), SECOND(30, 1001), END(40, 1),
           FAULT(41, H_BACK, H_ALL, .by = -90 * MS), ASK(42, 2, 0, 1, 1), GRANT(43, 2, 999, 90),
           END(50, 2)},
          "a2 got token 999"); /* there was a counter again */
}

/* An owner that enters a hold of its own which old data brought back has the token of that; nobody
 * else has a lower one.
 */
static void test_revived(void **state)
{
    (void)state;
#define OWNER(ms, a, who, number) ENTER(ms, a, who), GRANT((ms) + 1, a, number, 300)
    JUDGE({OWNER(1, 0, 7, 10), END(5, 0), OWNER(6, 1, 8, 20), END(9, 1), FAULT(10, H_STALE, H_ALL),
           OWNER(11, 2, 7, 10), WROTE(13, 2, 10, 0), END(15, 2)},
          NULL);
    JUDGE({OWNER(1, 0, 7, 10), END(5, 0), OWNER(6, 1, 8, 20), END(9, 1), OWNER(11, 2, 7, 10),
           END(15, 2)},
          "a2 got token 10");
    JUDGE({OWNER(1, 0, 7, 10), END(5, 0), OWNER(6, 1, 8, 20), END(9, 1), FAULT(10, H_STALE, H_ALL),
           OWNER(11, 2, 9, 10), END(15, 2)},
          "a2 got token 10");
    JUDGE({OWNER(1, 0, 7, 10), END(5, 0), OWNER(6, 1, 8, 20), END(9, 1), FAULT(10, H_STALE, H_ALL),
           OWNER(11, 2, 7, 15), END(15, 2)},
          "a2 got token 15");
#undef OWNER
}

static void test_store(void **state)
{
    (void)state;
    JUDGE({FIRST, END(25, 0), SECOND(30, 1001), WROTE(31, 1, 1001, H_ADMITTED),
           WROTE(32, 1, 1000, H_ADMITTED), END(40, 1)},
          "guarded store (G11): at 32.000 ms token 1000 of a1 is accepted behind 1001");
    JUDGE({FIRST, WROTE(21, 0, 1000, 0), END(25, 0)},
          "a0 is alone with token 1000, and is refused");
    JUDGE({FIRST, WROTE(121, 0, 1000, 0), END(125, 0)}, NULL);
    JUDGE({FIRST, FAULT(26, H_FORGOT, H_ALL), WROTE(27, 0, 1000, 0), END(125, 0)}, NULL);
}

/* a1 hears that it waits; a2 asks after that, and has the lower token. */
#define PASSED(...)                                                                                \
    ASK(1, 0, 0, 1, 1), GRANT(2, 0, 10, 500), ASK(3, 1, 1, 1, 1), AT(4, H_QUEUED, 1),              \
        __VA_ARGS__ ASK(5, 2, 2, 1, 1), END(6, 0), GRANT(7, 2, 11, 500), END(8, 2),                \
        GRANT(9, 1, 12, 500), END(10, 1)

static void test_told_order(void **state)
{
    (void)state;
    JUDGE({PASSED()},
          "first come, as users are told (G2): a1 waited from 4.000 ms on when a2 asked");
    JUDGE({PASSED(FAULT(4, H_LINE, 1), )}, NULL);
    JUDGE({ASK(1, 0, 0, 1, 1), GRANT(2, 0, 10, 500), ASK(3, 1, 1, 1, 1), AT(4, H_QUEUED, 1),
           ASK(5, 2, 2, 1, 1, .flags = H_BARGES), END(6, 0), GRANT(7, 2, 11, 500), END(8, 2),
           GRANT(9, 1, 12, 500), END(10, 1)},
          NULL);
}

#define DUE(ms, a, p, end)                                                                         \
    ASKS(ms, a, p, 1, 1, .owner = a, .other = H_NOBODY, .until = (end) * (int64_t)MS,              \
         .slack = 2 * MS)

static void test_calls(void **state)
{
    (void)state;
    JUDGE({DUE(1, 0, 0, 10), AT(12, H_REFUSED, 0), AT(12, H_OVER, 0)}, NULL);
    JUDGE({DUE(1, 0, 0, 10), AT(13, H_REFUSED, 0), AT(13, H_OVER, 0)},
          "every call returns once and in time (G4 G20 G31): a0 ended at 13.000 ms, 3.000 ms after "
          "its deadline");
    JUDGE({DUE(1, 0, 0, 10), FAULT(5, H_PAUSED, 0, .until = 9 * MS), AT(16, H_REFUSED, 0),
           AT(16, H_OVER, 0)},
          NULL);
    JUDGE({DUE(1, 0, 0, 10), FAULT(5, H_PAUSED, 1, .until = 9 * MS), AT(16, H_REFUSED, 0),
           AT(16, H_OVER, 0)},
          "every call returns");
    JUDGE({DUE(1, 0, 0, 10)}, "a0, which was called at 1.000 ms, never returned");
    JUDGE({DUE(1, 0, 0, 10), FAULT(5, H_KILLED, 0)}, NULL);
    JUDGE({DUE(1, 0, 0, 10), FAULT(5, H_KILLED, 1)}, "never returned");
    JUDGE({FIRST, AT(30, H_REFUSED, 0), AT(30, H_OVER, 0)}, "every call returns");
    JUDGE({FIRST, AT(30, H_CALLED, 0, .until = 30 * MS, .slack = MS), AT(32, H_RETURNED, 0),
           END(33, 0)},
          "2.000 ms after its deadline");
    JUDGE({FIRST, AT(30, H_RETURNED, 0), END(33, 0)}, "without a call");
    JUDGE({FIRST}, "a0 (token 1000) never ended");
}

static void test_loss(void **state)
{
    (void)state;
#define KEPT(flag, ...)                                                                            \
    ASK(1, 0, 0, 1, 1, .flags = flag), GRANT(2, 0, 10, 102, .slack = 102 * MS),                    \
        __VA_ARGS__ AT(50, H_LOST, 0), AT(50, H_OVER, 0)
    JUDGE(
        {KEPT(H_RENEWS)},
        "no loss while well (G13 G15): a0 lost its lease (token 10) at 50.000 ms although nothing");
    JUDGE({KEPT(0)}, "before the ttl was over");
    JUDGE({KEPT(H_RENEWS, FAULT(40, H_LINE, 0), )}, NULL);
    JUDGE({KEPT(H_RENEWS, FAULT(40, H_LINE, 1), )}, "no loss while well");
    JUDGE({KEPT(H_RENEWS, AT(40, H_BROKEN, 0, .token = 10), )}, NULL);
    JUDGE({KEPT(H_RENEWS | H_BOUNDED)}, NULL);
    JUDGE({FIRST, AT(30, H_LOST, 0, .flags = H_WISHED), AT(31, H_LOST, 0, .flags = H_WISHED),
           AT(32, H_OVER, 0)},
          "told twice");
}

static void test_revival(void **state)
{
    (void)state;
    JUDGE({FIRST, YES(119, 0, 1000, 200), END(150, 0)}, NULL);
    JUDGE(
        {FIRST, YES(120, 0, 1000, 200), END(150, 0)},
        "what is over stays over (G14): a0 was over at 120.000 ms and is good again at 120.000 ms");
    JUDGE({FIRST, AT(30, H_ENDED, 0), YES(40, 0, 1000, 200), AT(150, H_OVER, 0)},
          "good after its end");
}

static void test_waiting(void **state)
{
    (void)state;
#define LEFT_WAITING(ms, ...)                                                                      \
    FIRST, ASK(30, 1, 1, 1, 1), FAULT(50, H_KILLED, 0), __VA_ARGS__ GRANT(ms, 1, 1001, 900),       \
        END(900, 1)
    JUDGE({LEFT_WAITING(350)}, NULL); /* a bound of 200, and a reach of 100 */
    JUDGE({LEFT_WAITING(351)},
          "nobody waits for the dead (G3 G17): a1 waited until 351.000 ms, and nobody had it for");
    JUDGE({LEFT_WAITING(351, FAULT(60, H_LINE, 1), )}, NULL);
}

static void test_embrace(void **state)
{
    (void)state;
    JUDGE({ASK(1, 0, 0, 1, 1), GRANT(2, 0, 10, 900), ASK(3, 1, 1, 1, 1, .lock = 1),
           GRANT(4, 1, 10, 900), BESIDE(5, 2, 0, 1, 0), AT(6, H_QUEUED, 2), BESIDE(7, 3, 1, 0, 1),
           AT(8, H_QUEUED, 3)},
          "no deadlock between two names (G8): a3 and a2 have one of two names each");
}

static void test_sequence(void **state)
{
    (void)state;
    JUDGE({GRANT(1, 0, 10, 90)}, "something happens to a0, which nobody asked for");
    JUDGE({FIRST, ASK(30, 0, 0, 1, 1)}, "a0 asked twice");
}

/* ---- What the server shows ---- */

#define HOLD(a, number, end)                                                                       \
    {                                                                                              \
        .attempt = a, .token = number, .units = 1, .end_us = (end)*1000                            \
    }
#define PLACE(a, number, end)                                                                      \
    {                                                                                              \
        .attempt = a, .arrival = number, .due_us = (end)*1000, .alive = (end) > 6                  \
    }

/* A lock for one, which a2 has, and for which a0 and a1 have asked; `is` follows `was`. */
static void judge_sights(const struct history_sight *was, const struct history_sight *is,
                         const char *complaint)
{
    judge_by(&exact, &(struct written){{ASK(1, 0, 0, 1, 1), ASK(1, 1, 1, 1, 1), ASK(1, 2, 2, 1, 1),
                                        GRANT(2, 2, 1, 900), SHOW(10, was), SHOW(20, is),
                                        FAULT(20, H_KILLED, 0), FAULT(20, H_KILLED, 1),
                                        FAULT(20, H_KILLED, 2)},
                                       complaint});
}

/* So many units are in use, and process p, or H_NOBODY, asked for it. */
#define SIGHT(u, p, ...)                                                                           \
    &(const struct history_sight)                                                                  \
    {                                                                                              \
        .there = true, .capacity = 1, .used = u, .by = p, __VA_ARGS__                              \
    }

static void test_shown_order(void **state)
{
    (void)state;
    const struct history_sight *queue =
        SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(2, 1, 900)}, .places = 2,
              .place = {PLACE(0, 1, 900), PLACE(1, 2, 900)});
    judge_sights(queue,
                 SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(0, 2, 900)}, .places = 1,
                       .place = {PLACE(1, 2, 900)}),
                 NULL);
    judge_sights(queue,
                 SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(1, 2, 900)}, .places = 1,
                       .place = {PLACE(0, 1, 900)}),
                 "first come, by queue number (G2): a1 is let in at 20.000 ms before a0");
    judge_sights(SIGHT(1, H_NOBODY, .places = 1, .place = {PLACE(0, 1, 5)}),
                 SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(0, 2, 900)}, .clock_us = 6000),
                 "the dead hold up nobody (G3): a0 let its time pass");
    judge_sights(SIGHT(1, H_NOBODY, .places = 1, .place = {PLACE(0, 1, 5)}),
                 SIGHT(1, 0, .holds = 1, .hold = {HOLD(0, 2, 900)}, .clock_us = 6000), NULL);
}

static void test_turns(void **state)
{
    (void)state;
    const struct history_sight *one = SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(2, 1, 900)},
                                            .places = 1, .place = {PLACE(0, 1, 900)});
    judge_sights(one, SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(2, 1, 900)}),
                 "a turn is kept (G3 G4): a0 lost its place in the queue at 20.000 ms");
    judge_sights(one,
                 SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(1, 1, 900)}, .places = 1,
                       .place = {PLACE(0, 1, 900)}),
                 "a1 is let in at 20.000 ms before a0");
    judge_sights(SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(0, 1, 900)}),
                 SIGHT(0, H_NOBODY, .holds = 0), "a0 lost its turn (token 1)");
    judge_sights(one,
                 SIGHT(2, H_NOBODY, .holds = 2, .hold = {HOLD(2, 1, 900), HOLD(0, 2, 900)},
                       .places = 1, .place = {PLACE(0, 1, 900)}),
                 "a0 holds, and waits in the queue");
    judge_sights(one,
                 SIGHT(0, H_NOBODY, .holds = 1, .hold = {HOLD(2, 1, 900)}, .places = 1,
                       .place = {PLACE(0, 1, 901)}),
                 "a release hands over (G3): a0 is first in line and fits");
}

static void test_leaving(void **state)
{
    (void)state;
    const struct history_sight *held = SIGHT(1, H_NOBODY, .holds = 1, .hold = {HOLD(0, 1000, 900)});
    const struct history_sight *queued =
        SIGHT(1, H_NOBODY, .places = 1, .place = {PLACE(0, 1, 900)}, .plain = true);
    JUDGE(
        {FIRST, END(30, 0), SHOW(40, held)},
        "who is over has nothing (G4 G38): a0 is over and still holds (token 1000, at 40.000 ms)");
    JUDGE({FIRST, END(30, 0), SHOW(40, queued)}, "still waits in the queue");
    JUDGE({FIRST, AT(30, H_ENDED, 0), AT(30, H_OVER, 0, .flags = H_DOUBT), SHOW(40, held)}, NULL);
    JUDGE({FIRST, END(30, 0), FAULT(35, H_STALE, H_ALL), SHOW(40, held)}, NULL);
    JUDGE({FIRST, FAULT(30, H_KILLED, 0), SHOW(330, held)}, NULL);
    JUDGE(
        {FIRST, FAULT(30, H_KILLED, 0), SHOW(331, held)},
        "recovery after a death (G17 G6): a0 (token 1000) is dead for 301.000 ms and still holds");
    JUDGE({FIRST, AT(30, H_ENDED, 0, .flags = H_LEFT), AT(30, H_OVER, 0, .flags = H_LEFT),
           SHOW(331, held)},
          "recovery after a death");
}

static void test_rest(void **state)
{
    (void)state;
#define FOUND(ms, kind, whose, ...) AT(ms, H_REST, (uint32_t)(whose), .thing = kind, __VA_ARGS__)
    JUDGE({FIRST, END(30, 0), FOUND(40, H_KEY, H_NOBODY, .until = MS),
           FOUND(40, H_INBOX, H_NOBODY, .until = MS)},
          NULL);
    JUDGE({FOUND(40, H_KEY, H_NOBODY, .until = H_NEVER, .text = "lock:a")},
          "nothing is left at rest (G4 G6 G38): the key lock:a has no end");
    JUDGE({FOUND(40, H_INBOX, H_NOBODY, .until = 60001LL * MS, .text = "box")},
          "the inbox box lives for 60001 ms");
    JUDGE({FOUND(40, H_PERMIT, H_NOBODY, .until = MS)},
          "all are gone, and somebody holds at the end");
    JUDGE({FIRST, END(30, 0), FOUND(40, H_PERMIT, 0, .until = MS)},
          "a0 is over and still holds at the end");
    JUDGE({FIRST, END(30, 0), FOUND(40, H_WAITER, 0, .until = MS)},
          "a0 is over and still waits at the end");
}

/* ---- What is written down by several ---- */

static void test_recording(void **state)
{
    (void)state;
    struct recording *r = recording_open(64);
    struct history *h = history_open();
    static const struct history_event told[] = {
        GRANT(20, 0, 10, 30), ASK(1, 0, 0, 1, 1),   YES(60, 0, 10, 70), END(80, 0),
        ASK(2, 1, 1, 1, 1),   GRANT(40, 1, 11, 50), END(50, 1)};
    for (unsigned i = 0; i < sizeof told / sizeof *told; i++)
        record_event(r, &told[i]);
    atomic_store(&r->attempts, 2);
    assert_non_null(strstr(recording_judge(r, h, &(struct history_rules){0}),
                           "exclusion")); /* a0 was good at 40 */
    atomic_store(&r->at[5].number, 0);    /* whoever wrote it was killed meanwhile */
    assert_non_null(
        strstr(recording_judge(r, h, &(struct history_rules){0}), "a1, which nobody asked for"));
    history_close(h);
    recording_close(r);
}

static void test_held(void **state)
{
    (void)state;
    static const struct {
        int64_t from, to;
        uint32_t lock;
        bool overlaps;
    } others[] = {{5, 10, 1, false}, {20, 25, 1, false}, {5, 25, 2, false}, {5, 11, 1, true},
                  {19, 25, 1, true}, {12, 13, 1, true},  {5, 25, 1, true},  {10, 20, 1, true}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool first = others[i].from <= 10;
        struct recording *r = recording_open(64);
        char why[400];
        RECORD(r, .at = 10, .what = H_HELD, .lock = 1, .token = first ? 9 : 7, .until = 20,
               .from = 10);
        RECORD(r, .at = others[i].from, .what = H_HELD, .lock = others[i].lock, .token = 8,
               .until = others[i].to, .from = others[i].from);
        assert_int_equal(two_held(r, why, sizeof why), others[i].overlaps);
        assert_true(!*why || strstr(why, "exclusion") || strstr(why, "token order"));
        recording_close(r);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("a history without a flaw is praised", test_good),
        SENTENCE("two that are good together are found", test_exclusion),
        SENTENCE("more permits than there are, and a writer beside readers, are found", test_units),
        SENTENCE("what the server lost may be good until it is asked, and for its reach",
                 test_doubt),
        SENTENCE("a token that did not rise is found", test_tokens),
        SENTENCE("tokens fall only when data are lost while the clock is behind, and once",
                 test_counter),
        SENTENCE(
            "who enters its own hold that old data brought back has its old token, and nobody else",
            test_revived),
        SENTENCE("a store that let the past in, or kept the present out, is found", test_store),
        SENTENCE("who was passed though it waited is found", test_told_order),
        SENTENCE("a call that returns late, twice or never is found", test_calls),
        SENTENCE("a loss without a reason is found", test_loss),
        SENTENCE("what comes back to life is found", test_revival),
        SENTENCE("who waits for the dead is found", test_waiting),
        SENTENCE("two who wait for each other are found", test_embrace),
        SENTENCE("events that cannot follow each other are found", test_sequence),
        SENTENCE("who passes in the server's queue is found", test_shown_order),
        SENTENCE("a lost place, a lost turn and an idle lock are found", test_turns),
        SENTENCE("what outlives its user in the server is found", test_leaving),
        SENTENCE("what is left at rest is found", test_rest),
        SENTENCE("what several wrote down is put in order, and holes are seen", test_recording),
        SENTENCE("times that overlap are found", test_held),
    };
    return cmocka_run_group_tests_name("the judge of histories", tests, NULL, NULL);
}
