/* queue_order.c - the queue keeps its order between processes: exclusive, weighted, readers and
 * writers; and a late release harms nobody. */
#include "lib/actors.h"

#include <string.h>

enum { WAITERS = 50, PROCESSES = 6 };

static const struct want patient = {.name = "q", .wait_ms = HF_FOREVER, .ttl_ms = 60000};

/* Waiters come from all processes in turn, blocking and asynchronous ones mixed. */
static enum order_kind manner(unsigned waiter)
{
    return waiter % 3 == 0 ? ORDER_START : ORDER_ACQUIRE;
}

/* G2 */
static void test_fifty_in_order(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *actor[PROCESSES], *holder = actor_start();
    for (unsigned p = 0; p < PROCESSES; p++)
        actor[p] = actor_start();
    uint64_t token = actor_holds(holder, 0, &patient).token;
    for (unsigned w = 0; w < WAITERS; w++) {
        actor_acquire(actor[w % PROCESSES], w, manner(w), &patient);
        await_sight(client, "q", 1, (int)w + 1);
    }
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    for (unsigned w = 0; w < WAITERS; w++) {
        struct actor *next = actor[w % PROCESSES];
        struct answer granted = actor_answer(next, manner(w), w);
        assert_int_equal(granted.status, HF_OK);
        assert_true(granted.token > token);
        token = granted.token;
        struct sight seen = see(client, "q");
        assert_int_equal(seen.holders, 1);
        assert_int_equal(seen.token, token);
        assert_int_equal(seen.waiters, WAITERS - 1 - w);
        for (unsigned p = 0; p < PROCESSES; p++)
            assert_true(actor_is_silent(actor[p]));
        assert_int_equal(actor_does(next, ORDER_RELEASE, w).status, HF_OK);
    }
    assert_int_equal(see(client, "q").holders, 0);
}

static void test_leaving_the_middle(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *others = actor_start();
    struct want hasty = patient;
    hasty.wait_ms = 60;
    actor_holds(holder, 0, &patient);
    actor_acquire(others, 1, ORDER_ACQUIRE, &patient);
    await_sight(client, "q", 1, 1);
    actor_acquire(others, 2, ORDER_ACQUIRE, &hasty);
    await_sight(client, "q", 1, 2);
    actor_acquire(others, 3, ORDER_START, &patient);
    await_sight(client, "q", 1, 3);
    actor_acquire(others, 4, ORDER_ACQUIRE, &patient);
    await_sight(client, "q", 1, 4);
    struct answer late = actor_answer(others, ORDER_ACQUIRE, 2);
    assert_int_equal(late.status, HF_TIMEOUT);
    assert_non_null(strstr(late.text, "60 ms"));
    assert_int_equal(actor_does(others, ORDER_CANCEL, 3).status, HF_OK);
    assert_int_equal(actor_answer(others, ORDER_START, 3).status, HF_CANCELLED);
    assert_int_equal(see(client, "q").waiters, 2);
    actor_does(holder, ORDER_RELEASE, 0);
    assert_int_equal(actor_answer(others, ORDER_ACQUIRE, 1).status, HF_OK);
    assert_true(actor_is_silent(others));
    actor_does(others, ORDER_RELEASE, 1);
    assert_int_equal(actor_answer(others, ORDER_ACQUIRE, 4).status, HF_OK);
}

static void test_late_release(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *old = actor_start(), *next = actor_start();
    struct want brief = {.name = "q", .ttl_ms = 50};
    uint64_t first = actor_holds(old, 0, &brief).token;
    struct answer taken = actor_holds(next, 0, &patient);
    assert_true(taken.token > first);
    struct answer release = actor_does(old, ORDER_RELEASE, 0);
    assert_int_equal(release.status, HF_NOT_HELD);
    assert_non_null(strstr(release.text, "q: "));
    assert_int_equal(see(client, "q").token, taken.token);
    assert_int_equal(see(client, "q").pid, actor_pid(next));
    assert_int_equal(actor_does(next, ORDER_LOOK, 0).status, HF_OK);
    assert_int_equal(actor_does(next, ORDER_EXTEND, 0).status, HF_OK);
}

/* The old owner does not know yet that its time is over: the order to release waits for it when it
 * goes on. */
/* G16 */
static void test_late_release_after_stop(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *old = actor_start(), *next = actor_start();
    struct want brief = {.name = "q", .ttl_ms = 100, .flags = HF_AUTO_RENEW};
    uint64_t first = actor_holds(old, 0, &brief).token;
    actor_stop(old);
    struct answer taken = actor_holds(next, 0, &patient);
    assert_true(taken.token > first);
    actor_order(old, ORDER_RELEASE, 0);
    actor_go_on(old);
    assert_int_equal(actor_answer(old, ORDER_RELEASE, 0).status, HF_NOT_HELD);
    assert_int_equal(see(client, "q").token, taken.token);
    assert_int_equal(actor_does(next, ORDER_LOOK, 0).status, HF_OK);
}

static struct want permits(uint32_t units, int64_t wait_ms)
{
    return (struct want){.name = "s",
                         .kind = HF_SEMAPHORE,
                         .capacity = 4,
                         .units = units,
                         .wait_ms = wait_ms,
                         .ttl_ms = 60000};
}

/* G2 */
static void test_small_behind_big(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *a = actor_start(), *b = actor_start();
    struct want three = permits(3, 0), all = permits(4, HF_FOREVER), one = permits(1, HF_FOREVER);
    actor_holds(a, 0, &three);
    actor_acquire(b, 1, ORDER_ACQUIRE, &all);
    await_sight(client, "s", 1, 1);
    actor_acquire(a, 2, ORDER_START, &one); /* would fit */
    await_sight(client, "s", 1, 2);
    actor_acquire(b, 3, ORDER_ACQUIRE, &one);
    await_sight(client, "s", 1, 3);
    struct want now = permits(1, 0);
    actor_acquire(b, 4, ORDER_ACQUIRE, &now);
    assert_int_equal(actor_answer(b, ORDER_ACQUIRE, 4).status, HF_BUSY);
    assert_int_equal(see(client, "s").used, 3);
    assert_true(actor_is_silent(a) && actor_is_silent(b));
    actor_does(a, ORDER_RELEASE, 0);
    assert_int_equal(actor_answer(b, ORDER_ACQUIRE, 1).status, HF_OK);
    assert_int_equal(see(client, "s").used, 4);
    assert_int_equal(see(client, "s").waiters, 2);
    actor_does(b, ORDER_RELEASE, 1);
    struct answer first = actor_answer(a, ORDER_START, 2),
                  second = actor_answer(b, ORDER_ACQUIRE, 3);
    assert_int_equal(first.status, HF_OK);
    assert_int_equal(second.status, HF_OK);
    assert_true(first.token < second.token);
    assert_int_equal(see(client, "s").used, 2);
}

static void test_readers_and_writers(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *a = actor_start(), *b = actor_start();
    static const hf_kind arrivals[] = {HF_READ, HF_READ,  HF_WRITE, HF_READ,
                                       HF_READ, HF_WRITE, HF_READ};
    struct want want = {.name = "rw", .wait_ms = HF_FOREVER, .ttl_ms = 60000};
    for (uint32_t i = 0; i < 7; i++) {
        want.kind = arrivals[i];
        actor_acquire(i % 2 ? a : b, i, ORDER_ACQUIRE, &want);
        await_sight(client, "rw", i < 2 ? (int)i + 1 : 2, i < 2 ? 0 : (int)i - 1);
    }
    /* Who is in at the same time, from first to last. */
    static const uint32_t together[][2] = {{0, 1}, {2, 2}, {3, 4}, {5, 5}, {6, 6}};
    uint64_t token = 0;
    for (unsigned g = 0; g < 5; g++) {
        uint32_t first = together[g][0], last = together[g][1];
        for (uint32_t i = first; i <= last; i++) {
            struct answer in = actor_answer(i % 2 ? a : b, ORDER_ACQUIRE, i);
            assert_int_equal(in.status, HF_OK);
            assert_true(in.token > token);
            token = in.token;
        }
        assert_int_equal(see(client, "rw").holders, last - first + 1);
        assert_int_equal(see(client, "rw").waiters, 6 - last);
        assert_true(actor_is_silent(a) && actor_is_silent(b));
        for (uint32_t i = first; i <= last; i++)
            actor_does(i % 2 ? a : b, ORDER_RELEASE, i);
    }
    assert_int_equal(see(client, "rw").holders, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("50 waiters of 6 processes are granted in the order in which they came",
               test_fifty_in_order),
        STAGED("who leaves the queue from its middle changes the order of nobody",
               test_leaving_the_middle),
        STAGED("a release by an owner whose lease ended says so and changes nothing",
               test_late_release),
        STAGED("a stopped owner that goes on and releases says so and changes nothing",
               test_late_release_after_stop),
        STAGED("a small request never passes a big one that came before", test_small_behind_big),
        STAGED("adjacent readers enter together and a writer between them alone",
               test_readers_and_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
