/* io_costs.c - the costs of a blocking cycle, for its caller and for other threads: system calls,
 * allocations, checks before sleeping, sends for many callers at once. */
#include "io_fixture.h"

#include "engines/io/io_internal.h"

static void test_costs(void **state)
{
    (void)state;
    warm_up();
    assert_true(mine.allocations > 0 && mine.sends > 0); /* the counters count */
    assert_cheap_cycles();
}

/* ---- Spinning ---- */

static int set_up_to_spin(void **state)
{
    (void)state;
    return set_up_with(1000000); /* however busy the machine is */
}

/* On a machine with one CPU nobody spins. */
static void test_spins_first(void **state)
{
    (void)state;
    warm_up();
    struct order order = an_order();
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    bool checks = process_cpu_count() > 1;
    assert_int_equal(mine.polls - before.polls, 0);
    assert_true(checks ? mine.checks - before.checks >= 2 * CYCLES : mine.checks == before.checks);
    assert_in_range(mine.receives - before.receives - (mine.checks - before.checks), 0,
                    checks ? CYCLES : 3 * CYCLES);
    forget(&order);
}

static void test_spin_learns(void **state)
{
    (void)state;
    struct io_spin spin = {0};
    int checks = 0;
    for (int wait = 0; wait < 100 << IO_SPIN_MISSES_MAX; wait++)
        if (io_spin_pays(&spin)) {
            checks++;
            io_spin_learn(&spin, false);
        }
    assert_in_range(checks, 100,
                    100 + IO_SPIN_MISSES_MAX); /* misses only: one wait in 2^MISSES_MAX */
    int waits = 0;
    for (int hits = 0; hits < 4; waits++)
        if (io_spin_pays(&spin)) {
            hits++;
            io_spin_learn(&spin, true);
        }
    assert_in_range(
        waits, 4, (1 << IO_SPIN_MISSES_MAX) + 100); /* the next spin, and soon after it all waits */
    for (int wait = 0; wait < 10; wait++) {
        assert_true(io_spin_pays(&spin));
        io_spin_learn(&spin, true);
    }
    io_spin_learn(&spin, false);
    assert_false(io_spin_pays(&spin));
    assert_true(io_spin_pays(&spin)); /* one miss costs one wait */
}

/* ---- Beside others ---- */

static void test_queue_slows_nobody(void **state)
{
    (void)state;
    struct blocked waiter;
    warm_up();
    start_blocked(&waiter, true);
    await_received(42);
    await_blocked(&waiter);
    assert_cheap_cycles();
    assert_false(atomic_load(&waiter.over));
    push(&waiter.order);
    join(&waiter, REPLY_GRANTED);
}

enum { CROWD = 40, CROWD_ROUNDS = 100 };

static void *run_crowd(void *sends)
{
    struct order order = an_order();
    for (int i = 0; i < CROWD_ROUNDS; i++)
        cycle(&order);
    forget(&order);
    atomic_fetch_add((_Atomic uint64_t *)sends, mine.sends);
    return NULL;
}

#ifdef __SANITIZE_THREAD__
#define MOST_SENDS 95
#else
#define MOST_SENDS 50 /* of a hundred requests */
#endif

static void test_together(void **state)
{
    (void)state;
    pthread_t threads[CROWD];
    _Atomic uint64_t sends = 0;
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &sends), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_received(&stage.server), CROWD * CROWD_ROUNDS * 2);
    printf("# %d requests, %d sends\n", CROWD * CROWD_ROUNDS * 2, (int)sends);
    /* Callers woken together leave the flush to the last one; with TSan they return one by one.
     */
    assert_true(sends < CROWD * CROWD_ROUNDS * 2 * MOST_SENDS / 100);
}

/* A woken caller may wait for a CPU for any length of time, on a busy machine or beside threads of
 * a higher priority. */
static void set_coming(bool waking)
{
    struct io *io = stage.io;
    small_mutex_lock(&io->lock);
    io->waking += waking ? 1 : UINT32_MAX;
    io->read_at = waking ? clock_boot() + PATIENCE : 0; /* as if a connection had just been read */
    small_mutex_unlock(&io->lock);
}

enum { WAITING = 12 }; /* so many that one more request is no batch */

static void test_not_for_long(void **state)
{
    (void)state;
    struct blocked waiting[WAITING], last;
    warm_up();
    toy_hold_back(&stage.server, true);
    for (int i = 0; i < WAITING; i++) {
        start_blocked(&waiting[i], false);
        await_received((uint64_t)(42 + i));
        await_blocked(&waiting[i]);
    }
    set_coming(true);
    nanos begun = clock_boot();
    start_blocked(&last, false);
    await_received(42 + WAITING);
    assert_in_range(clock_boot() - begun, 0, PATIENCE / 10);
    set_coming(false);
    toy_hold_back(&stage.server, false);
    for (int i = 0; i < WAITING; i++)
        join(&waiting[i], REPLY_GRANTED);
    join(&last, REPLY_GRANTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("a blocking cycle is two sends, two receives, and concerns no other thread",
                 test_costs),
        {.name = "a single caller spins before it sleeps",
         .test_func = test_spins_first,
         .setup_func = set_up_to_spin,
         .teardown_func = tear_down},
        {.name = "misses make spins ever rarer, and a few hits end that",
         .test_func = test_spin_learns},
        ON_STAGE("forty callers send together", test_together),
        ON_STAGE("a flush that is left to a caller that does not return happens even so",
                 test_not_for_long),
        ON_STAGE("a waiter in a queue, on a connection of its own, slows nobody",
                 test_queue_slows_nobody),
    };
    return cmocka_run_group_tests_name("costs of the I/O driver", tests, NULL, NULL);
}
