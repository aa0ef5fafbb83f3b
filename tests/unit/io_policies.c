/* io_policies.c - each policy of the I/O driver can be turned off: callers get the same replies,
 * and the policy leaves no trace in what the threads call. */
#include "io_fixture.h"

#include "engines/io/io_policy.h"

#define ALL_ON                                                                                     \
    {                                                                                              \
        .spin = true, .recv_wait = true, .batch = true, .hand_on = true                            \
    }

static void open_with(struct io_policy policy, int64_t spin_us)
{
    struct io_policy all_on = ALL_ON;
    io_policy = policy;
    set_up_with(spin_us);
    io_policy = all_on;
}

/* ---- The same replies ---- */

enum { THREADS = 8, BACKGROUND_OPS = 16 };

static void *run_background_ops(void *arg)
{
    struct order orders[BACKGROUND_OPS];
    struct engine_reply reply;
    (void)arg;
    for (int i = 0; i < BACKGROUND_OPS; i++)
        orders[i] = an_order();

    for (int round = 0; round < ROUNDS / BACKGROUND_OPS; round++) {
        for (int i = 0; i < BACKGROUND_OPS; i++) {
            atomic_store(&orders[i].reply, 0);
            assert_false(submit(&orders[i], OP_ACQUIRE, true, &reply));
        }
        for (int i = 0; i < BACKGROUND_OPS; i++) {
            await_replies(&orders[i], 1);
            assert_int_equal(orders[i].kind[0], REPLY_GRANTED);
        }
    }
    for (int i = 0; i < BACKGROUND_OPS; i++)
        forget(&orders[i]);
    return NULL;
}

/* Callers that block, callers that do not, and one that waits in a queue meanwhile. */
static void run_all_sorts(struct io_policy policy)
{
    pthread_t threads[THREADS + 2];
    struct blocked queued;
    open_with(policy, 50);
    warm_up();
    uint64_t before = toy_received(&stage.server);
    start_blocked(&queued, true);
    await_received(before + 1);

    for (int i = 0; i < THREADS + 2; i++) {
        void *(*run)(void *) = i < THREADS ? run_cycles : run_background_ops;
        assert_int_equal(pthread_create(&threads[i], NULL, run, NULL), 0);
    }
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);

    push(&queued.order);
    join(&queued, REPLY_GRANTED);
    assert_int_equal(toy_received(&stage.server) - before, 1 + THREADS * ROUNDS * 2 + 2 * ROUNDS);
    assert_int_equal(toy->downs, 0);
    tear_down(NULL);
}

static void test_same_replies(void **state)
{
    (void)state;
    struct io_policy policy[] = {ALL_ON, ALL_ON, ALL_ON, ALL_ON, {.spin = false}};
    policy[0].spin = false;
    policy[1].recv_wait = false;
    policy[2].batch = false;
    policy[3].hand_on = false;
    for (size_t i = 0; i < sizeof policy / sizeof *policy; i++)
        run_all_sorts(policy[i]);
}

/* ---- What threads call ---- */

static struct counts count_cycles(struct io_policy policy, int64_t spin_us)
{
    open_with(policy, spin_us);
    warm_up();
    struct order order = an_order();
    cycle(&order);
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);

    struct counts made = {.polls = mine.polls - before.polls,
                          .checks = mine.checks - before.checks};
    forget(&order);
    tear_down(NULL);
    return made;
}

static void test_without_spin(void **state)
{
    (void)state;
    struct io_policy on = ALL_ON, off = ALL_ON;
    off.spin = false;
    if (process_cpu_count() > 1)
        assert_true(count_cycles(on, 1000000).checks >= 2 * CYCLES);
    assert_int_equal(count_cycles(off, 1000000).checks, 0);
}

static void test_without_recv_wait(void **state)
{
    (void)state;
    struct io_policy on = ALL_ON, off = ALL_ON;
    off.recv_wait = false;
    assert_true(count_cycles(on, 0).polls < CYCLES);
    assert_true(count_cycles(off, 0).polls >= 2 * CYCLES);
}

enum { CROWD = 40, CROWD_ROUNDS = 50 };

static void *run_crowd(void *sends)
{
    struct order order = an_order();
    for (int i = 0; i < CROWD_ROUNDS; i++)
        cycle(&order);
    forget(&order);
    atomic_fetch_add((_Atomic uint64_t *)sends, mine.sends);
    return NULL;
}

static uint64_t count_sends(struct io_policy policy)
{
    pthread_t threads[CROWD];
    _Atomic uint64_t sends = 0;
    open_with(policy, 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &sends), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    tear_down(NULL);
    return sends;
}

static void test_without_batch(void **state)
{
    (void)state;
    struct io_policy on = ALL_ON, off = ALL_ON;
    off.batch = false;
    uint64_t batched = count_sends(on), single = count_sends(off);
    printf("# %d requests: %d sends, without the policy %d\n", CROWD * CROWD_ROUNDS * 2,
           (int)batched, (int)single);
    assert_true(batched < single);
}

/* A caller drives, another sleeps, and the driver gets its reply first. Returns the number of polls
 * and receives of the other. */
static uint64_t drive_after_another(struct io_policy policy)
{
    struct blocked driver, sleeper;
    open_with(policy, 0);
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    start_blocked(&driver, false);
    await_received(received + 1);
    await_blocked(&driver);
    start_blocked(&sleeper, false);
    await_blocked(&sleeper);

    toy_answer_one(&stage.server);
    join(&driver, REPLY_GRANTED);
    usleep(50000); /* time to take the connection over */
    toy_hold_back(&stage.server, false);
    join(&sleeper, REPLY_GRANTED);
    tear_down(NULL);
    return sleeper.polls + sleeper.receives;
}

static void test_without_hand_on(void **state)
{
    (void)state;
    struct io_policy on = ALL_ON, off = ALL_ON;
    off.hand_on = false;
    assert_true(drive_after_another(on) > 0);
    assert_int_equal(drive_after_another(off), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "with each policy off, and with all off, every caller gets its own reply, once",
         .test_func = test_same_replies},
        {.name = "without spinning nobody checks before it sleeps", .test_func = test_without_spin},
        {.name = "without waits in recv() callers poll", .test_func = test_without_recv_wait},
        {.name = "without batching there are more sends", .test_func = test_without_batch},
        {.name = "without handing on the background thread reads for callers that sleep",
         .test_func = test_without_hand_on},
    };
    return cmocka_run_group_tests_name("policies of the I/O driver", tests, NULL, NULL);
}
