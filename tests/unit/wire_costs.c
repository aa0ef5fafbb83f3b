/* wire_costs.c - what a blocking cycle costs the one that makes it and everybody else: system calls, allocations, looks
 * before sleeping, sends for many at once. */
#include "wire_stage.h"

#include "engines/wire/inside.h"

static void test_costs(void **state)
{
    (void)state;
    warm_up();
    assert_true(mine.allocations > 0 && mine.sends > 0); /* the counters count */
    assert_cheap_cycles();
}

/* ---- Looking before sleeping ---- */

static int set_up_to_spin(void **state)
{
    (void)state;
    return set_up_with(1000000); /* however busy the machine is */
}

/* Where the machine has one CPU, nobody looks. */
static void test_looks_first(void **state)
{
    (void)state;
    warm_up();
    struct order order = an_order();
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    bool looks = hf_machine_cpus() > 1;
    assert_int_equal(mine.polls - before.polls, 0);
    assert_true(looks ? mine.looks - before.looks >= 2 * CYCLES : mine.looks == before.looks);
    assert_in_range(mine.receives - before.receives - (mine.looks - before.looks), 0, looks ? CYCLES : 3 * CYCLES);
    forget(&order);
}

static void test_spin_learns(void **state)
{
    (void)state;
    struct hf_spin spin = {0};
    int looks = 0;
    for (int wait = 0; wait < 100 << HF_SPIN_RESTS; wait++)
        if (hf_spin_pays(&spin)) {
            looks++;
            hf_spin_learn(&spin, false);
        }
    assert_in_range(looks, 100, 100 + HF_SPIN_RESTS); /* in vain: one wait in 2^RESTS */
    int waits = 0;
    for (int hits = 0; hits < 4; waits++)
        if (hf_spin_pays(&spin)) {
            hits++;
            hf_spin_learn(&spin, true);
        }
    assert_in_range(waits, 4, (1 << HF_SPIN_RESTS) + 100); /* the next look, and soon after it all of them */
    for (int wait = 0; wait < 10; wait++) {
        assert_true(hf_spin_pays(&spin));
        hf_spin_learn(&spin, true);
    }
    hf_spin_learn(&spin, false);
    assert_false(hf_spin_pays(&spin));
    assert_true(hf_spin_pays(&spin)); /* one that was in vain costs one */
}

/* ---- Beside others ---- */

static void test_queue_slows_nobody(void **state)
{
    (void)state;
    struct blocked waiter;
    warm_up();
    start_blocked(&waiter, true);
    await_heard(42);
    await_blocked(&waiter);
    assert_cheap_cycles();
    assert_false(atomic_load(&waiter.over));
    push(&waiter.order);
    join(&waiter, HF_N_GRANTED);
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
    assert_int_equal(toy_heard(&stage.server), CROWD * CROWD_ROUNDS * 2);
    printf("# %d requests, %d sends\n", CROWD * CROWD_ROUNDS * 2, (int)sends);
    /* Who was roused with others leaves it to the last of them, and TSan lets them come one by one. */
    assert_true(sends < CROWD * CROWD_ROUNDS * 2 * MOST_SENDS / 100);
}

/* Who is awake may have to wait for a CPU, on a busy machine or beside more urgent threads, for any length of time. */
static void set_coming(bool coming)
{
    struct hf_wire *wire = stage.wire;
    hf_latch_lock(&wire->io);
    wire->coming += coming ? 1 : UINT32_MAX;
    wire->read_at = coming ? hf_clock_boot() + PATIENCE : 0; /* however late it is: just now */
    hf_latch_unlock(&wire->io);
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
        await_heard((uint64_t)(42 + i));
        await_blocked(&waiting[i]);
    }
    set_coming(true);
    hf_nanos begun = hf_clock_boot();
    start_blocked(&last, false);
    await_heard(42 + WAITING);
    assert_in_range(hf_clock_boot() - begun, 0, PATIENCE / 10);
    set_coming(false);
    toy_hold_back(&stage.server, false);
    for (int i = 0; i < WAITING; i++)
        join(&waiting[i], HF_N_GRANTED);
    join(&last, HF_N_GRANTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("a blocking cycle is two sends, two receives, and concerns no other thread", test_costs),
        {.name = "a caller that waits alone looks before it sleeps",
         .test_func = test_looks_first,
         .setup_func = set_up_to_spin,
         .teardown_func = tear_down},
        {.name = "looking in vain rests longer and longer, and a few hits end that", .test_func = test_spin_learns},
        ON_STAGE("forty callers send together", test_together),
        ON_STAGE("what is left to one who is roused and does not come is sent even so", test_not_for_long),
        ON_STAGE("who waits in a queue on a line of its own slows nobody", test_queue_slows_nobody),
    };
    return cmocka_run_group_tests_name("what it costs to drive", tests, NULL, NULL);
}
