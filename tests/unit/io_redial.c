/* io_redial.c - connections of the driver that break, are dialled again, are refused, or are full.
 */
#include "io_fixture.h"

#include <dirent.h>

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- Connections that break ---- */

static void test_hung_up_while_polled(void **state)
{
    (void)state;
    struct blocked quick, queued;
    struct order breaker = an_order();
    struct engine_reply reply;
    warm_up();
    int descriptors = open_descriptors();
    for (int i = 0; i < 20; i++) {
        uint64_t received = toy_received(&stage.server);
        start_blocked(&queued, true);
        await_received(received + 1);
        await_blocked(&queued);
        toy_hold_back(&stage.server, true);
        start_blocked(&quick, false);
        await_received(received + 2);
        (i % 2 ? await_asleep : await_blocked)(&quick);
        /* Twice: nobody polls the connections that the first one dials. */
        assert_true(submit(&breaker, OP_DOWNGRADE, false, &reply));
        assert_true(submit(&breaker, OP_DOWNGRADE, false, &reply));
        join(&quick, REPLY_UNKNOWN);
        join(&queued, REPLY_UNKNOWN);
        toy_hold_back(&stage.server, false);
        run_cycles(NULL);
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(toy->downs, 0);
    forget(&breaker);
}

static void test_cut_by_the_server(void **state)
{
    (void)state;
    struct blocked waiting;
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    start_blocked(&waiting, false);
    await_received(received + 1);
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    join(&waiting, REPLY_UNKNOWN);
    assert_int_equal(toy->downs, 1);
    assert_int_equal(toy->down_status, HF_UNAVAILABLE);
    assert_non_null(strstr(toy->down_why, "the server closed the connection"));
    toy_hold_back(&stage.server, false);
    struct order order = an_order(); /* dialled again at its tick */
    cycle(&order);
    assert_int_equal(toy_greetings(&stage.server, 0), 2);
    forget(&order);
}

static void test_closed_while_idle(void **state)
{
    (void)state;
    struct order order = an_order();
    warm_up();
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    usleep(1100000); /* connections that were idle for less are not read */
    cycle(&order);
    assert_int_equal(atomic_load(&toy->downs), 1);
    assert_int_equal(toy_greetings(&stage.server, 0), 2);
    forget(&order);
}

static void test_dialled_by_another(void **state)
{
    (void)state;
    struct blocked waiter;
    struct order order = an_order();
    warm_up();
    atomic_store(&toy->patient, true);
    start_blocked(&waiter, true);
    await_received(42);
    await_blocked(&waiter);
    toy_order(&stage.server);
    stage.server.cut = 1;
    toy_go(&stage.server);
    while (atomic_load(&toy->downs) == 0)
        usleep(200);
    await_blocked(&waiter);
    cycle(&order);
    while (toy_greetings(&stage.server, 1) < 2)
        usleep(200);
    push(&waiter.order);
    join(&waiter, REPLY_GRANTED);
    forget(&order);
}

static void test_refused_dial(void **state)
{
    (void)state;
    struct order order = an_order(), in_background = an_order();
    struct engine_reply reply;
    strcpy(toy->address.port, "1");
    assert_int_equal(submit_and_wait(&order, OP_ACQUIRE), REPLY_UNKNOWN);
    assert_string_equal(toy->down_why, "127.0.0.1:1: connection refused");
    toy->address.tls = true; /* fails inside the dial */
    strcpy(toy->address.ca, "/nonexistent/ca");
    assert_int_equal(submit_and_wait(&order, OP_ACQUIRE), REPLY_UNKNOWN);
    assert_int_equal(toy->down_status, HF_CONFIG);
    assert_false(submit(&in_background, OP_ACQUIRE, true, &reply));
    await_replies(&in_background, 1);
    assert_int_equal(in_background.kind[0], REPLY_UNKNOWN);
    forget(&in_background);
    forget(&order);
}

/* ---- More than the socket takes ---- */

static void test_back_pressure(void **state)
{
    (void)state;
    enum { BALLAST = 6 << 20 };
    struct blocked driver;
    struct order heavy = an_order();
    struct engine_reply reply;
    char *ballast = malloc(BALLAST);
    memset(ballast, 'x', BALLAST);
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    start_blocked(&driver, false); /* polls for reading alone */
    await_received(received + 1);
    await_blocked(&driver);
    toy_order(&stage.server);
    stage.server.deaf = true;
    toy_go(&stage.server);
    heavy.op.label = ballast;
    heavy.op.label_len = BALLAST;
    uint64_t short_sends = mine.short_sends;
    assert_false(submit(&heavy, OP_ACQUIRE, true, &reply));
    assert_true(mine.short_sends > short_sends); /* it did not fit */
    toy_order(&stage.server);
    stage.server.deaf = false;
    toy_go(&stage.server);
    await_received(received +
                   2); /* all of it, sent by the driver, whose own reply is not there yet */
    assert_false(atomic_load(&driver.over));
    toy_hold_back(&stage.server, false);
    join(&driver, REPLY_GRANTED);
    await_replies(&heavy, 1);
    assert_int_equal(heavy.kind[0], REPLY_GRANTED);
    forget(&heavy);
    free(ballast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE(
            "a connection that is hung up while a thread waits on it is closed by its driver, once",
            test_hung_up_while_polled),
        ON_STAGE("a connection that the server cuts is dialled again at its time",
                 test_cut_by_the_server),
        ON_STAGE("a connection that was closed while idle does not fail the next op",
                 test_closed_while_idle),
        ON_STAGE("a connection that another thread dials is driven by the caller that waits for it",
                 test_dialled_by_another),
        ON_STAGE("a dial that fails at once is reported later, with the cause", test_refused_dial),
        ON_STAGE("a driver that polls is woken to wait for room in the socket", test_back_pressure),
    };
    return cmocka_run_group_tests_name("connections of the I/O driver", tests, NULL, NULL);
}
