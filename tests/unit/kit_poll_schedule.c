/* kit_poll_schedule.c - tests of when local waiters poll a server that notifies nobody. */
#include "engines/kit/poll_schedule.h"

#include "lib/sentence.h"

#define MS NANOS_OF_MS(1)

static uint32_t drawn;

static uint32_t draw(void *ctx)
{
    (void)ctx;
    return drawn++;
}

static const struct wire_engine_host host = {.random = draw};
static struct poll_schedule schedule;

static struct engine_op on(const char *name)
{
    return (struct engine_op){.name = name, .name_len = (uint16_t)strlen(name)};
}

static nanos queue(struct poll_waiter *waiter, const char *name, int64_t arrival, bool is_new,
                   struct poll_waiter **scout)
{
    struct engine_op op = on(name);
    struct poll_queued queued = {.arrival = arrival,
                                 .asked_at = 1000 * MS,
                                 .often = 50 * MS,
                                 .longest = 1600 * MS,
                                 .is_new = is_new};
    return poll_schedule_next(&schedule, waiter, &op, &queued, &host, scout);
}

static void test_first_polls_often(void **state)
{
    (void)state;
    struct poll_waiter first = {0}, second = {0}, other = {0}, *scout;
    assert_int_equal(queue(&first, "a", 1, true, &scout), 1050 * MS);
    assert_null(scout);
    assert_true(queue(&second, "a", 2, true, &scout) > 1050 * MS);
    assert_null(scout);
    assert_int_equal(queue(&second, "a", 2, false, &scout), 2600 * MS); /* as late as it may */
    assert_int_equal(queue(&other, "b", 9, true, &scout), 1050 * MS);   /* another lock */

    assert_ptr_equal(poll_schedule_leave(&first), &second); /* it polls often from now on */
    assert_int_equal(queue(&second, "a", 2, false, &scout), 1050 * MS);
    assert_null(poll_schedule_leave(&second));
    assert_null(poll_schedule_leave(&second));
    assert_null(poll_schedule_leave(&other));
}

/* The place of a waiter may be known late, or be lost and taken again behind others. */
static void test_order_of_arrival(void **state)
{
    (void)state;
    struct poll_waiter late = {0}, early = {0}, *scout;
    struct engine_op op = on("a");
    queue(&late, "a", 20, true, &scout);
    assert_int_equal(queue(&early, "a", 10, true, &scout), 1050 * MS);
    assert_ptr_equal(poll_schedule_first(&schedule, &op), &early);
    queue(&early, "a", 30, false, &scout);
    assert_ptr_equal(scout, &late); /* it is the first again */
    assert_ptr_equal(poll_schedule_first(&schedule, &op), &late);
    poll_schedule_leave(&early);
    poll_schedule_leave(&late);
    assert_null(poll_schedule_first(&schedule, &op));
}

/* Sixteen parts of the longest pause: each is used, and none lies before the request. */
static void test_spread(void **state)
{
    (void)state;
    struct poll_waiter first = {0}, behind[64] = {0}, *scout;
    unsigned parts = 0;
    queue(&first, "a", 1, true, &scout);
    for (int i = 0; i < 64; i++) {
        nanos at = queue(&behind[i], "a", 2 + i, true, &scout);
        assert_true(at > 1000 * MS && at <= 2600 * MS);
        assert_int_equal(at % (100 * MS), 0); /* those of one part ask together */
        parts |= 1u << at / (100 * MS) % 16;
    }
    assert_int_equal(parts, 0xffff);
    poll_schedule_free(&schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("the first waiter polls often, those behind it rarely", test_first_polls_often),
        SENTENCE("the first is who came first, whenever that is known", test_order_of_arrival),
        SENTENCE("first polls of waiters behind are spread", test_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
