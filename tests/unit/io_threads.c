/* io_threads.c - threads that wait do the I/O: many at once; drivers that leave and hand on, that
 * are woken or forgotten; times that come while a caller parks or nobody does. */
#include "io_fixture.h"

#include "net/conn.h"

enum { THREADS = 8 };

/* ---- Many at once ---- */

/* Ops without a caller, in batches. */
static void *run_background_ops(void *arg)
{
    enum { BATCH = 16 };
    struct order orders[BATCH];
    struct engine_reply reply;
    (void)arg;
    for (int i = 0; i < BATCH; i++)
        orders[i] = an_order();
    for (int round = 0; round < ROUNDS / BATCH; round++) {
        for (int i = 0; i < BATCH; i++) {
            atomic_store(&orders[i].reply, 0);
            assert_false(submit(&orders[i], round % 2 ? OP_RELEASE : OP_ACQUIRE, true, &reply));
        }
        for (int i = 0; i < BATCH; i++) {
            await_replies(&orders[i], 1);
            assert_int_equal(orders[i].kind[0], round % 2 ? REPLY_RELEASED : REPLY_GRANTED);
        }
    }
    for (int i = 0; i < BATCH; i++)
        forget(&orders[i]);
    return NULL;
}

static void test_many(void **state)
{
    (void)state;
    pthread_t threads[THREADS + 2];
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < THREADS ? run_cycles : run_background_ops, NULL),
            0);
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_received(&stage.server), THREADS * ROUNDS * 2 + 2 * ROUNDS);
    assert_int_equal(toy->downs, 0);
}

/* ---- Handing on ---- */

static void test_leaving_driver(void **state)
{
    (void)state;
    struct blocked driver, sleeper;
    struct engine_reply reply;
    struct order late = an_order(), late_too = an_order();
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    start_blocked(&driver, false);
    await_received(received + 1);
    await_blocked(&driver);
    toy_hold_back(&stage.server, false);
    join(&driver, REPLY_GRANTED);
    assert_true(driver.polls > 0);

    /* The second caller sleeps while the first one drives, and drives when that one leaves: its own
     * reply comes later. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, true);
    await_received(received + 2);
    await_blocked(&driver);
    start_blocked(&sleeper, false);
    await_blocked(&sleeper);
    toy_hold_back(&stage.server, false);
    join(&sleeper, REPLY_GRANTED);
    push(&driver.order);
    join(&driver, REPLY_GRANTED);

    /* Nobody else parks: the background thread reads for ops without a caller. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, false);
    await_received(received + 4);
    await_blocked(&driver);
    assert_false(submit(&late, OP_ACQUIRE, true, &reply));
    io_wake(stage.io, driver.order.op.slot); /* returns at once, and drives again */
    assert_false(submit(&late_too, OP_ACQUIRE, true, &reply));
    await_received(received + 6);
    assert_int_equal(atomic_load(&stage.notifications), 0);
    toy_hold_back(&stage.server, false);
    join(&driver, REPLY_GRANTED);
    await_replies(&late, 1);
    await_replies(&late_too, 1);
    forget(&late);
    forget(&late_too);
}

/* Each caller leaves with its reply before the next reply comes. The last reply is for an op
 * without a caller. */
static void test_chain_of_drivers(void **state)
{
    (void)state;
    struct blocked chain[THREADS];
    struct order in_background = an_order();
    struct engine_reply reply;
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server), slept = 0;
    for (int i = 0; i < THREADS; i++) {
        start_blocked(&chain[i], false);
        await_received(received + (uint64_t)i + 1);
        await_blocked(&chain[i]);
    }
    assert_false(submit(&in_background, OP_ACQUIRE, true, &reply));
    for (int i = 0; i < THREADS; i++) {
        toy_answer_one(&stage.server);
        join(&chain[i], REPLY_GRANTED);
        slept += chain[i].sleeps;
    }
    assert_true(slept > 0);
    assert_int_equal(atomic_load(&stage.notifications), 0);
    toy_answer_one(&stage.server);
    await_replies(&in_background, 1);
    forget(&in_background);
    toy_hold_back(&stage.server, false);
}

/* ---- Waking, times ---- */

static void *park_for_long(void *arg)
{
    struct blocked *b = arg;
    b->counts = &mine;
    atomic_store(&b->id, gettid());
    park(&b->order, PATIENCE);
    b->polls = atomic_load(&mine.polls);
    b->sleeps = atomic_load(&mine.sleeps);
    atomic_store(&b->over, true);
    return NULL;
}

static void start_parked(struct blocked *b)
{
    assert_int_equal(pthread_create(&b->thread, NULL, park_for_long, b), 0);
    await_blocked(b);
    assert_false(atomic_load(&b->over));
}

/* One caller drives, another sleeps meanwhile, and no reply comes. */
static void park_two(struct blocked *driver, struct blocked *sleeper)
{
    struct engine_reply reply;
    toy_hold_back(&stage.server, true);
    assert_false(submit(&driver->order, OP_ACQUIRE, false, &reply));
    assert_false(submit(&sleeper->order, OP_ACQUIRE, false, &reply));
    start_parked(driver);
    start_parked(sleeper);
}

static void test_wake(void **state)
{
    (void)state;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    park_two(&driver, &sleeper);
    nanos begun = clock_boot();
    io_wake(stage.io, sleeper.order.op.slot);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    io_wake(stage.io, driver.order.op.slot);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_true(clock_boot() - begun < PATIENCE / 2);
    assert_true(driver.polls > 0 && driver.sleeps == 0);
    assert_true(sleeper.polls == 0 && sleeper.sleeps > 0);

    begun = clock_boot();
    io_wake(stage.io, driver.order.op.slot); /* before it parks: counts once */
    park(&driver.order, PATIENCE);
    assert_true(clock_boot() - begun < PATIENCE / 2);
    begun = clock_boot();
    park(&driver.order, NANOS_OF_MS(50));
    assert_true(clock_boot() - begun >= NANOS_OF_MS(50));
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_reply(&driver.order), REPLY_GRANTED);
    assert_int_equal(await_reply(&sleeper.order), REPLY_GRANTED);
    forget(&driver.order);
    forget(&sleeper.order);
    io_wake(stage.io, 1); /* a slot that nobody has */
    io_park(stage.io, 1, 0, TIME_NEVER);
}

/* A thread in recv() cannot be woken; it sees the wake when its recv() ends. */
static void test_wake_in_recv(void **state)
{
    (void)state;
    struct engine_reply reply;
    warm_up();
    toy_hold_back(&stage.server, true);
    int received_only = 0;
    for (int i = 0; i < 20; i++) {
        struct blocked b = {.order = an_order()};
        assert_false(submit(&b.order, OP_ACQUIRE, false, &reply));
        assert_int_equal(pthread_create(&b.thread, NULL, park_for_long, &b), 0);
        await_asleep(&b);
        nanos begun = clock_boot();
        io_wake(stage.io, b.order.op.slot);
        assert_int_equal(pthread_join(b.thread, NULL), 0);
        assert_true(clock_boot() - begun < PATIENCE / 2);
        assert_int_equal(b.sleeps, 0);
        received_only += b.polls == 0;
        forget(&b.order);
    }
    assert_true(received_only > 0);
    toy_hold_back(&stage.server, false);
}

/* If something is due before a recv() would end, the caller polls, which is exact. */
static void test_no_recv_beyond_its_time(void **state)
{
    (void)state;
    struct engine_reply reply;
    warm_up();
    toy_hold_back(&stage.server, true);
    struct order order = an_order();
    assert_false(submit(&order, OP_ACQUIRE, false, &reply));
    struct counts before = mine;
    park(&order, NANOS_OF_MS(CONN_RECV_WAIT_MS));
    assert_true(mine.polls > before.polls);
    assert_int_equal(mine.receives, before.receives);
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_reply(&order), REPLY_GRANTED);
    forget(&order);
}

static void test_forgotten_while_parked(void **state)
{
    (void)state;
    struct engine_reply reply;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    park_two(&driver, &sleeper);
    uint64_t old = driver.order.op.slot;
    forget(&driver.order);
    forget(&sleeper.order);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    struct order next = an_order(), after = an_order(); /* take the same mailboxes */
    assert_false(submit(&next, OP_ACQUIRE, false, &reply));
    assert_false(submit(&after, OP_ACQUIRE, false, &reply));
    assert_int_not_equal(next.op.slot, old);
    assert_int_not_equal(after.op.slot, old);
    io_park(stage.io, old, 0, TIME_NEVER);
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_reply(&next), REPLY_GRANTED);
    assert_int_equal(await_reply(&after), REPLY_GRANTED);
    forget(&next);
    forget(&after);
}

/* The engine gives up an op at its time, with and without a caller. */
static void test_ticks(void **state)
{
    (void)state;
    struct order blocking = an_order(), in_background = an_order();
    struct engine_reply reply;
    warm_up();
    toy_hold_back(&stage.server, true);
    nanos begun = clock_boot();
    blocking.op.until = in_background.op.until = begun + NANOS_OF_MS(60);
    in_background.op.in_background = true;
    assert_false(io_submit(stage.io, &blocking.op, begun, &reply));
    assert_false(io_submit(stage.io, &in_background.op, begun, &reply));
    park(&blocking, PATIENCE);
    assert_true(io_take_reply(stage.io, &blocking.op, clock_boot(), &reply));
    assert_int_equal(reply.kind, REPLY_FAILED);
    assert_string_equal(reply.text, "the toy has no answer");
    await_replies(&in_background, 1);
    assert_int_equal(in_background.kind[0], REPLY_FAILED);
    nanos took = clock_boot() - begun;
    assert_true(took >= NANOS_OF_MS(60) && took < PATIENCE / 2);

    atomic_store(&in_background.reply, 0);
    in_background.op.until = clock_boot() + NANOS_OF_MS(30);
    assert_false(io_submit(stage.io, &in_background.op, clock_boot(), &reply));
    await_replies(&in_background, 1); /* by the background thread alone */
    assert_int_equal(in_background.kind[0], REPLY_FAILED);
    toy_hold_back(&stage.server, false);
    forget(&blocking);
    forget(&in_background);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("eight blocking threads and two without callers each get their own replies, once",
                 test_many),
        ON_STAGE("a driver that leaves hands its connection on", test_leaving_driver),
        ON_STAGE("drivers that leave one after the other lose no reply", test_chain_of_drivers),
        ON_STAGE("a wake ends the park of a driver, of a sleeper, and of one that is about to park",
                 test_wake),
        ON_STAGE("a wake ends the park of a caller in recv(), a moment later", test_wake_in_recv),
        ON_STAGE("nobody waits in recv() beyond the time at which something is due",
                 test_no_recv_beyond_its_time),
        ON_STAGE("an op that is forgotten ends its park, and its slot is not given to another op",
                 test_forgotten_while_parked),
        ON_STAGE("the engine is ticked in time, by a caller or by the background thread",
                 test_ticks),
    };
    return cmocka_run_group_tests_name("threads of the I/O driver", tests, NULL, NULL);
}
