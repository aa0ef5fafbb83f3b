/* io_listening.c - connections on which the server may speak unasked: somebody always reads them,
 * and closing does not wait for them. */
#include "io_fixture.h"

/* The engine listens to connection 1 from now on; no op waits there. */
static void listen_now(void)
{
    struct order order = an_order();
    warm_up();
    atomic_store(&toy->listens, true);
    cycle(&order); /* the driver asks the engine after every call */
    forget(&order);
}

static void push_unasked(int pushes)
{
    static const struct order nobody = {.op.token = 7};
    push(&nobody);
    for (nanos begun = clock_boot(); atomic_load(&toy->pushes) < pushes;) {
        if (clock_boot() - begun > PATIENCE)
            fail_msg("nobody read what the server said");
        usleep(200);
    }
}

static void test_read_at_once(void **state)
{
    (void)state;
    listen_now();
    for (int i = 1; i <= 50; i++)
        push_unasked(i);
    assert_int_equal(atomic_load(&stage.notifications), 0);
}

/* A caller that parks for an op on that connection drives it, and hands it on when it leaves. */
static void test_handed_on(void **state)
{
    (void)state;
    listen_now();
    for (int i = 1; i <= 20; i++) {
        struct blocked queued;
        uint64_t received = toy_received(&stage.server);
        start_blocked(&queued, true);
        await_received(received + 1);
        await_blocked(&queued);
        push_unasked(2 * i - 1);
        push(&queued.order);
        join(&queued, REPLY_GRANTED);
        push_unasked(2 * i);
    }
}

static void test_again_after_a_cut(void **state)
{
    (void)state;
    listen_now();
    toy_order(&stage.server);
    stage.server.cut = 1;
    toy_go(&stage.server);
    while (toy_greetings(&stage.server, 1) < 2)
        usleep(200); /* the background thread saw the end, and dialled */
    push_unasked(1);
}

static void test_closing(void **state)
{
    (void)state;
    listen_now();
    atomic_store(&stage.stop, true);
    io_background_wake(stage.io);
    assert_int_equal(pthread_join(stage.background, NULL), 0);

    nanos begun = clock_boot();
    io_finish(stage.io, begun + PATIENCE);
    assert_true(clock_boot() - begun < NANOS_OF_MS(250)); /* it waits 500 ms for replies */
    io_close(stage.io);
    toy_stop(&stage.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("the background thread reads what a server says unasked", test_read_at_once),
        ON_STAGE("a caller on such a connection hands it on", test_handed_on),
        ON_STAGE("an end is noticed, and the next connection read", test_again_after_a_cut),
        {.name = "closing does not wait for a subscription",
         .test_func = test_closing,
         .setup_func = set_up},
    };
    return cmocka_run_group_tests_name("connections on which a server speaks unasked", tests, NULL,
                                       NULL);
}
