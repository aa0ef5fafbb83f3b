/* wire_driver.c - whoever waits, drives: many at once, drivers that leave and hand on, that are woken or forgotten, and
 * times that come while somebody waits or nobody does. */
#include "wire_stage.h"

#include "net/link.h"

enum { THREADS = 8 };

/* ---- Many at once ---- */

/* Every other one by the bell, in batches. */
static void *run_bells(void *arg)
{
    enum { BATCH = 16 };
    struct order orders[BATCH];
    struct hf_news news;
    (void)arg;
    for (int i = 0; i < BATCH; i++)
        orders[i] = an_order();
    for (int round = 0; round < ROUNDS / BATCH; round++) {
        for (int i = 0; i < BATCH; i++) {
            atomic_store(&orders[i].news, 0);
            assert_false(submit(&orders[i], round % 2 ? HF_V_RELEASE : HF_V_ACQUIRE, true, &news));
        }
        for (int i = 0; i < BATCH; i++) {
            await_told(&orders[i], 1);
            assert_int_equal(orders[i].cue[0], round % 2 ? HF_N_RELEASED : HF_N_GRANTED);
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
        assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? run_cycles : run_bells, NULL), 0);
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_heard(&stage.server), THREADS * ROUNDS * 2 + 2 * ROUNDS);
    assert_int_equal(toy->downs, 0);
}

/* ---- Handing on ---- */

static void test_leaving_driver(void **state)
{
    (void)state;
    struct blocked driver, sleeper;
    struct hf_news news;
    struct order late = an_order(), late_too = an_order();
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server);
    start_blocked(&driver, false);
    await_heard(heard + 1);
    await_blocked(&driver);
    toy_hold_back(&stage.server, false);
    join(&driver, HF_N_GRANTED);
    assert_true(driver.polls > 0);

    /* The second one sleeps on a word while the first drives, and drives when that leaves: its answer comes after. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, true);
    await_heard(heard + 2);
    await_blocked(&driver);
    start_blocked(&sleeper, false);
    await_blocked(&sleeper);
    toy_hold_back(&stage.server, false);
    join(&sleeper, HF_N_GRANTED);
    push(&driver.order);
    join(&driver, HF_N_GRANTED);

    /* Nobody else parks: what comes by the bell is left to the background thread. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, false);
    await_heard(heard + 4);
    await_blocked(&driver);
    assert_false(submit(&late, HF_V_ACQUIRE, true, &news));
    hf_wire_wake(stage.wire, driver.order.ask.slot); /* comes back at once, and drives again */
    assert_false(submit(&late_too, HF_V_ACQUIRE, true, &news));
    await_heard(heard + 6);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    toy_hold_back(&stage.server, false);
    join(&driver, HF_N_GRANTED);
    await_told(&late, 1);
    await_told(&late_too, 1);
    forget(&late);
    forget(&late_too);
}

/* Each leaves when it has its answer, before the next one's comes; the last answer is for the bell. */
static void test_chain_of_drivers(void **state)
{
    (void)state;
    struct blocked chain[THREADS];
    struct order by_bell = an_order();
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server), slept = 0;
    for (int i = 0; i < THREADS; i++) {
        start_blocked(&chain[i], false);
        await_heard(heard + (uint64_t)i + 1);
        await_blocked(&chain[i]);
    }
    assert_false(submit(&by_bell, HF_V_ACQUIRE, true, &news));
    for (int i = 0; i < THREADS; i++) {
        toy_answer_one(&stage.server);
        join(&chain[i], HF_N_GRANTED);
        slept += chain[i].sleeps;
    }
    assert_true(slept > 0);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    toy_answer_one(&stage.server);
    await_told(&by_bell, 1);
    forget(&by_bell);
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

/* One that drives, and one that sleeps meanwhile: no answer comes. */
static void park_two(struct blocked *driver, struct blocked *sleeper)
{
    struct hf_news news;
    toy_hold_back(&stage.server, true);
    assert_false(submit(&driver->order, HF_V_ACQUIRE, false, &news));
    assert_false(submit(&sleeper->order, HF_V_ACQUIRE, false, &news));
    start_parked(driver);
    start_parked(sleeper);
}

static void test_wake(void **state)
{
    (void)state;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    park_two(&driver, &sleeper);
    hf_nanos begun = hf_clock_boot();
    hf_wire_wake(stage.wire, sleeper.order.ask.slot);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    hf_wire_wake(stage.wire, driver.order.ask.slot);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_true(hf_clock_boot() - begun < PATIENCE / 2);
    assert_true(driver.polls > 0 && driver.sleeps == 0);
    assert_true(sleeper.polls == 0 && sleeper.sleeps > 0);

    begun = hf_clock_boot();
    hf_wire_wake(stage.wire, driver.order.ask.slot); /* before it parks: counts once */
    park(&driver.order, PATIENCE);
    assert_true(hf_clock_boot() - begun < PATIENCE / 2);
    begun = hf_clock_boot();
    park(&driver.order, HF_MS(50));
    assert_true(hf_clock_boot() - begun >= HF_MS(50));
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_news(&driver.order), HF_N_GRANTED);
    assert_int_equal(await_news(&sleeper.order), HF_N_GRANTED);
    forget(&driver.order);
    forget(&sleeper.order);
    hf_wire_wake(stage.wire, 1); /* a slot that nobody has */
    hf_wire_park(stage.wire, 1, 0, HF_NEVER);
}

/* Nobody can rouse one that dozes, and nobody needs to: it looks by itself in a moment. */
static void test_wake_in_a_doze(void **state)
{
    (void)state;
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    int dozed = 0;
    for (int i = 0; i < 20; i++) {
        struct blocked b = {.order = an_order()};
        assert_false(submit(&b.order, HF_V_ACQUIRE, false, &news));
        assert_int_equal(pthread_create(&b.thread, NULL, park_for_long, &b), 0);
        await_doze(&b);
        hf_nanos begun = hf_clock_boot();
        hf_wire_wake(stage.wire, b.order.ask.slot);
        assert_int_equal(pthread_join(b.thread, NULL), 0);
        assert_true(hf_clock_boot() - begun < PATIENCE / 2);
        assert_int_equal(b.sleeps, 0);
        dozed += b.polls == 0;
        forget(&b.order);
    }
    assert_true(dozed > 0);
    toy_hold_back(&stage.server, false);
}

/* What is due before a doze would be over is waited for with a poll, which is exact. */
static void test_no_doze_beyond_its_time(void **state)
{
    (void)state;
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    struct order order = an_order();
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    struct counts before = mine;
    park(&order, HF_MS(HF_LINK_DOZE_MS));
    assert_true(mine.polls > before.polls);
    assert_int_equal(mine.receives, before.receives);
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_news(&order), HF_N_GRANTED);
    forget(&order);
}

static void test_forgotten_while_parked(void **state)
{
    (void)state;
    struct hf_news news;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    park_two(&driver, &sleeper);
    uint64_t old = driver.order.ask.slot;
    forget(&driver.order);
    forget(&sleeper.order);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    struct order next = an_order(), after = an_order(); /* take the same records */
    assert_false(submit(&next, HF_V_ACQUIRE, false, &news));
    assert_false(submit(&after, HF_V_ACQUIRE, false, &news));
    assert_int_not_equal(next.ask.slot, old);
    assert_int_not_equal(after.ask.slot, old);
    hf_wire_park(stage.wire, old, 0, HF_NEVER);
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_news(&next), HF_N_GRANTED);
    assert_int_equal(await_news(&after), HF_N_GRANTED);
    forget(&next);
    forget(&after);
}

/* The engine gives up an ask at its time, whether a caller waits for it or nobody does. */
static void test_ticks(void **state)
{
    (void)state;
    struct order blocking = an_order(), by_bell = an_order();
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    hf_nanos begun = hf_clock_boot();
    blocking.ask.until = by_bell.ask.until = begun + HF_MS(60);
    by_bell.ask.bell = true;
    assert_false(hf_wire_submit(stage.wire, &blocking.ask, begun, &news));
    assert_false(hf_wire_submit(stage.wire, &by_bell.ask, begun, &news));
    park(&blocking, PATIENCE);
    assert_true(hf_wire_peek(stage.wire, &blocking.ask, hf_clock_boot(), &news));
    assert_int_equal(news.cue, HF_N_FAILED);
    assert_string_equal(news.text, "the toy has no answer");
    await_told(&by_bell, 1);
    assert_int_equal(by_bell.cue[0], HF_N_FAILED);
    hf_nanos took = hf_clock_boot() - begun;
    assert_true(took >= HF_MS(60) && took < PATIENCE / 2);

    atomic_store(&by_bell.news, 0);
    by_bell.ask.until = hf_clock_boot() + HF_MS(30);
    assert_false(hf_wire_submit(stage.wire, &by_bell.ask, hf_clock_boot(), &news));
    await_told(&by_bell, 1); /* by the background thread alone */
    assert_int_equal(by_bell.cue[0], HF_N_FAILED);
    toy_hold_back(&stage.server, false);
    forget(&blocking);
    forget(&by_bell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("eight blocking threads and two by the bell each hear their own answer, once", test_many),
        ON_STAGE("a driver that leaves hands its line on", test_leaving_driver),
        ON_STAGE("drivers that leave one after the other lose no answer", test_chain_of_drivers),
        ON_STAGE("a wake ends the park of a driver, of a sleeper, and of one that is about to park", test_wake),
        ON_STAGE("a wake ends the park of one that dozes, a moment later", test_wake_in_a_doze),
        ON_STAGE("nobody dozes when something is due before that would be over", test_no_doze_beyond_its_time),
        ON_STAGE("an ask that is forgotten ends its park, and its slot is not another's", test_forgotten_while_parked),
        ON_STAGE("the engine is ticked in time, by whoever is there", test_ticks),
    };
    return cmocka_run_group_tests_name("whoever waits, drives", tests, NULL, NULL);
}
