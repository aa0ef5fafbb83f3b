/* kit_pipeline.c - tests of requests in flight and of dialling again. */
#include "engines/kit/pipeline.h"
#include "engines/kit/redial.h"

#include "lib/sentence.h"

#define MS NANOS_OF_MS(1)

struct asked {
    struct flight flight;
    int number;
};

static void add(struct pipeline *p, int number, uint64_t id)
{
    struct asked asked = {.flight = {.sent_at = number * MS, .patience = 100 * MS, .id = id},
                          .number = number};
    assert_true(pipeline_add(p, &asked, sizeof asked));
}

static int take(struct pipeline *p)
{
    struct asked asked;
    pipeline_take(p, &asked, sizeof asked);
    return asked.number;
}

/* Requests come and go so that the ring wraps and grows at every place. */
static void test_order(void **state)
{
    (void)state;
    struct pipeline p = {.size = sizeof(struct asked)};
    int sent = 0, answered = 0;
    for (int burst = 1; burst < 60; burst++) {
        for (int i = 0; i < burst; i++)
            add(&p, sent++, 0);
        for (uint32_t i = 0; i < p.count; i++)
            assert_int_equal(((struct asked *)pipeline_at(&p, i))->number, answered + (int)i);
        for (int i = 0; i < burst - burst % 3; i++)
            assert_int_equal(take(&p), answered++);
    }
    while (p.count)
        assert_int_equal(take(&p), answered++);
    assert_int_equal(answered, sent);
    pipeline_free(&p);
}

static void test_ids(void **state)
{
    (void)state;
    struct pipeline p = {.size = sizeof(struct asked)};
    struct asked asked;
    for (int i = 0; i < 11; i++)
        add(&p, i, 0), take(&p); /* so that the ring wraps below */
    for (int i = 0; i < 10; i++)
        add(&p, i, 100 + (uint64_t)i);
    assert_false(pipeline_take_id(&p, 99, &asked));
    assert_true(pipeline_take_id(&p, 107, &asked));
    assert_int_equal(asked.number, 7);
    assert_false(pipeline_take_id(&p, 107, &asked));
    assert_true(pipeline_take_id(&p, 100, &asked));
    assert_int_equal(asked.number, 0);
    static const int left[] = {1, 2, 3, 4, 5, 6, 8, 9};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        assert_int_equal(take(&p), left[i]);
    assert_int_equal(p.count, 0);
    pipeline_free(&p);
}

static void test_deadlines(void **state)
{
    (void)state;
    struct pipeline p = {.size = sizeof(struct asked)};
    add(&p, 1000, 0); /* sent at 1000 ms, patience 100 ms */
    static const struct {
        int received, answered, longest, due;
    } rows[] = {
        {0, 0, 0, 1100},       /* silent since it was sent */
        {1050, 0, 0, 1150},    /* bytes came */
        {1190, 0, 0, 1200},    /* but no whole reply for twice the patience */
        {1190, 1150, 0, 1290}, /* another request was answered */
        {1190, 0, 300, 1290},  /* a reply may take longer than that */
        {1590, 0, 300, 1600},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.received_at = rows[i].received * MS;
        p.answered_at = rows[i].answered * MS;
        assert_int_equal(pipeline_deadline(&p, 0, rows[i].longest * MS), rows[i].due * MS);
    }
    pipeline_free(&p);
}

/* ---- Dialling again ---- */

static void test_redial(void **state)
{
    (void)state;
    struct engine_limits limits = {.ttl_min_ms = 100, .ttl_max_ms = 1000};
    struct timing_overrides overrides = {.retry_min_ms = 50, .retry_max_ms = 400};
    struct redial redial = {0};
    nanos now = 1000 * MS, longest = 0;
    for (uint32_t i = 1; i <= 20; i++) {
        redial_lost(&redial, REDIAL_AFTER_FAILURE, now, &limits, &overrides, UINT32_MAX);
        assert_int_equal(redial.failures, i);
        assert_true(redial.dial_at - now >= longest && redial.dial_at - now <= 400 * MS);
        longest = redial.dial_at - now;
    }
    assert_true(longest > 350 * MS);

    redial_lost(&redial, REDIAL_AFTER_FAILURE, now, &limits, &overrides, 0);
    assert_true(redial.dial_at > now && redial.dial_at < now + 50 * MS);
    redial_lost(&redial, REDIAL_AFTER_CUT, now, &limits, &overrides, UINT32_MAX);
    assert_true(redial.failures == 2 && redial.dial_at > now && redial.dial_at <= now + 20 * MS);
    redial_lost(&redial, REDIAL_AFTER_LONG, now, &limits, &overrides, 0);
    assert_int_equal(redial.dial_at, now);
    assert_int_equal(redial.failures, 0);
}

static void test_redial_of_several(void **state)
{
    (void)state;
    enum { SERVERS = 3 };
    const struct engine_limits limits = {.ttl_min_ms = 100, .ttl_max_ms = 1000};
    const struct timing_overrides overrides = {.retry_min_ms = 20, .retry_max_ms = 400};
    struct redial redial = {0};
    nanos now = 1000 * MS, before = 0;

    for (uint32_t lost = 1; lost <= 6 * SERVERS; lost++) {
        redial_next_server(&redial, SERVERS, now, &limits, &overrides, UINT32_MAX);
        assert_int_equal(redial.failures, lost);
        nanos pause = redial.dial_at - now;
        bool ends_round = lost % SERVERS == 0;
        assert_true(ends_round ? pause >= before && pause <= 400 * MS && pause > 0 : pause == 0);
        before = ends_round ? pause : before;
    }
    assert_true(before > 300 * MS);

    /* a single server is dialled at once the first time, and then after a pause */
    redial = (struct redial){0};
    redial_next_server(&redial, 1, now, &limits, &overrides, UINT32_MAX);
    assert_int_equal(redial.dial_at, now);
    redial_next_server(&redial, 1, now, &limits, &overrides, UINT32_MAX);
    assert_true(redial.dial_at > now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("requests leave in the order in which they came", test_order),
        SENTENCE("a reply may name its request", test_ids),
        SENTENCE("a deadline moves with bytes, and only twice as far without a reply",
                 test_deadlines),
        SENTENCE("pauses between dials grow, and end with a connection that lasted", test_redial),
        SENTENCE("of several servers the next is dialled at once, and each round after a pause",
                 test_redial_of_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
