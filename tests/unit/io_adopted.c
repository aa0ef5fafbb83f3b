/* io_adopted.c - descriptors that a library owns: the driver polls them as connections, and never
 * reads, writes or closes them. */
#include "io_fixture.h"

/* ---- Replies ---- */

static void library_cycle(struct order *order)
{
    assert_int_equal(submit_and_wait(order, OP_EXTEND), REPLY_EXTENDED);
}

static void test_parked_caller(void **state)
{
    (void)state;
    struct order order = an_order();
    for (int i = 0; i < CYCLES; i++)
        library_cycle(&order);
    assert_int_equal(toy_received(&stage.server), CYCLES);
    assert_int_equal(toy_greetings(&stage.server, 2), 1);
    assert_true(mine.polls > 0);
    assert_int_equal(atomic_load(&stage.notifications), 0);
    forget(&order);
}

static void test_background_thread(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    assert_false(submit(&order, OP_EXTEND, true, &reply));
    await_replies(&order, 1);
    assert_int_equal(order.kind[0], REPLY_EXTENDED);
    forget(&order);
}

static void *run_library_cycles(void *arg)
{
    struct order order = an_order();
    (void)arg;
    for (int i = 0; i < ROUNDS; i++)
        library_cycle(&order);
    forget(&order);
    return NULL;
}

static void test_beside_connections(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[2 * THREADS];
    for (int i = 0; i < 2 * THREADS; i++) {
        void *(*run)(void *) = i % 2 ? run_cycles : run_library_cycles;
        assert_int_equal(pthread_create(&threads[i], NULL, run, NULL), 0);
    }
    for (int i = 0; i < 2 * THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_received(&stage.server), THREADS * ROUNDS * 3);
}

/* ---- Interest, and ends ---- */

static void start_library_op(struct blocked *b)
{
    *b = (struct blocked){.order = an_order(), .verb = OP_EXTEND};
    assert_int_equal(pthread_create(&b->thread, NULL, block, b), 0);
}

/* The library has more to send than the socket takes, while a caller polls for reading alone. */
static void test_writable(void **state)
{
    (void)state;
    enum { BALLAST = 6 << 20 };
    struct blocked driver;
    struct order heavy = an_order();
    struct engine_reply reply;
    char *ballast = malloc(BALLAST);
    memset(ballast, 'x', BALLAST);
    toy_hold_back(&stage.server, true);
    start_library_op(&driver);
    await_received(1);
    await_blocked(&driver);

    toy_order(&stage.server);
    stage.server.deaf = true;
    toy_go(&stage.server);
    heavy.op.label = ballast;
    heavy.op.label_len = BALLAST;
    uint64_t short_sends = mine.short_sends;
    assert_false(submit(&heavy, OP_EXTEND, true, &reply));
    assert_true(mine.short_sends > short_sends);
    toy_order(&stage.server);
    stage.server.deaf = false;
    toy_go(&stage.server);
    await_received(2);

    toy_hold_back(&stage.server, false);
    join(&driver, REPLY_EXTENDED);
    await_replies(&heavy, 1);
    assert_int_equal(heavy.kind[0], REPLY_EXTENDED);
    forget(&heavy);
    free(ballast);
}

static void test_replaced_while_polled(void **state)
{
    (void)state;
    struct order order = an_order();
    for (int i = 0; i < 20; i++) {
        struct blocked waiting;
        uint64_t received = toy_received(&stage.server);
        toy_hold_back(&stage.server, true);
        start_library_op(&waiting);
        await_received(received + 1);
        await_blocked(&waiting);

        toy_hold_back(&stage.server, false);
        atomic_store(&toy->library_reconnects, true);
        library_cycle(&order);
        assert_int_equal(pthread_join(waiting.thread, NULL), 0);
        bool answered = waiting.kind == REPLY_EXTENDED; /* the reply may have come first */
        assert_true(answered || waiting.kind == REPLY_UNKNOWN);
    }
    assert_int_equal(toy_greetings(&stage.server, 2), 21);
    forget(&order);
}

static void test_cut_by_the_server(void **state)
{
    (void)state;
    struct blocked waiting;
    struct order order = an_order();
    toy_hold_back(&stage.server, true);
    start_library_op(&waiting);
    await_received(1);
    await_blocked(&waiting);
    toy_order(&stage.server);
    stage.server.cut = 2;
    toy_go(&stage.server);
    join(&waiting, REPLY_UNKNOWN);

    toy_hold_back(&stage.server, false);
    library_cycle(&order);
    assert_int_equal(toy_greetings(&stage.server, 2), 2);
    assert_int_equal(toy->downs, 0); /* the library found out by itself */
    forget(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("a parked caller polls a descriptor that a library owns", test_parked_caller),
        ON_STAGE("the background thread polls it for ops without a caller", test_background_thread),
        ON_STAGE("threads on connections and on a library get their own replies",
                 test_beside_connections),
        ON_STAGE("a driver that polls is woken when the library wants to write", test_writable),
        ON_STAGE("a descriptor may be closed and replaced while a thread polls it",
                 test_replaced_while_polled),
        ON_STAGE("the library sees that the server cut its connection", test_cut_by_the_server),
    };
    return cmocka_run_group_tests_name("descriptors that a library owns", tests, NULL, NULL);
}
