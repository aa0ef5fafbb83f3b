/* semaphore.c - permits that are owned and expire by themselves: weights, shrinking and growing,
 * never more than N. */
#include "lib/engines.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 5, THREADS = 6, TURNS = 300, PROCESSES = 6, PROCESS_TURNS = 60 };

#define UNITS(k, ...)                                                                              \
    ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = N, .units = (k), __VA_ARGS__)

static uint32_t used(hf_client *client)
{
    struct view seen = look_at(client, "s");
    return seen.holders ? seen.row[0].used : 0;
}

/* At rest exactly N are free: all of them can be taken at once, by ones, and not one more. */
static void assert_all_free(hf_client *client)
{
    hf_lease *one[N];
    assert_int_equal(look_at(client, "s").holders, 0);
    for (int i = 0; i < N; i++)
        one[i] = take(client, UNITS(1));
    refuse(client, UNITS(1), HF_BUSY, "s");
    for (int i = 0; i < N; i++)
        give(one[i]);
}

/* ---- k of N ---- */

/* Takes and gives back in every order of three weights, and checks what fits beside them. */
static void try_orders(hf_client *client, const uint32_t units[3])
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int in = 0; in < 6; in++)
        for (int out = 0; out < 6; out++) {
            hf_lease *lease[3] = {NULL};
            uint32_t held = 0;
            for (int i = 0; i < 3; i++) {
                int which = orders[in][i];
                if (held + units[which] > N) {
                    refuse(client, UNITS(units[which]), HF_BUSY, "s");
                    continue;
                }
                lease[which] = take(client, UNITS(units[which]));
                held += units[which];
                assert_int_equal(used(client), held);
            }
            for (int i = 0; i < 3; i++) {
                int which = orders[out][i];
                if (!lease[which])
                    continue;
                give(lease[which]);
                held -= units[which];
                assert_int_equal(used(client), held);
            }
        }
}

static void test_all_orders(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    for (uint32_t a = 1; a <= N; a++)
        for (uint32_t b = a; b <= N; b++)
            for (uint32_t c = b; c <= N; c++)
                try_orders(row_client(), (uint32_t[]){a, b, c});
    assert_all_free(row_client());
}

static void test_weights_wait(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !engine()->first_come)
        return;
    hf_client *client = row_client();
    hf_lease *two = take(client, UNITS(2)), *three = take(client, UNITS(3));
    struct outcome four, one;
    start_ask(client, UNITS(4, .wait_ms = HF_FOREVER), &four);
    await_sight(client, "s", 2, 1);
    start_ask(client, UNITS(1, .wait_ms = HF_FOREVER), &one);
    await_sight(client, "s", 2, 2);
    give(three); /* 3 are free: the small one would fit, but the big one came first */
    assert_int_equal(look_at(client, "s").waiters, 2);
    refuse(client, UNITS(1), HF_BUSY, "s");
    give(two);
    assert_int_equal(await_outcome(&four), HF_OK);
    assert_int_equal(await_outcome(&one), HF_OK);
    assert_int_equal(used(client), 5);
    give(four.lease);
    give(one.lease);
}

/* G6 */
static void test_late_and_double(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    hf_client *client = row_client();
    hf_lease *late = take(client, UNITS(N, .ttl_ms = ttl(100)));
    hf_lease *next =
        take(client, UNITS(3, .wait_ms = HF_FOREVER)); /* when the first one's time is over */
    assert_refused(hf_release(late), HF_NOT_HELD, "s");
    assert_int_equal(used(client), 3);
    assert_int_equal(hf_release(next), HF_OK);
    hf_lease *other = take(client, UNITS(2));
    assert_refused(hf_release(next), HF_NOT_HELD, "s");
    assert_refused(hf_release(late), HF_NOT_HELD, "s");
    assert_int_equal(used(client), 2);
    give(other);
    hf_lease_free(late);
    hf_lease_free(next);
    assert_all_free(client);
}

/* G6 */
static void test_each_expires(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    hf_client *client = row_client();
    hf_lease *brief = take(client, UNITS(2, .ttl_ms = ttl(100))),
             *lasting = take(client, UNITS(3, .ttl_ms = 60000));
    hf_lease *next = take(client, UNITS(2, .wait_ms = HF_FOREVER));
    assert_true(hf_lease_ok(lasting));
    assert_int_equal(used(client), 5);
    hf_lease_free(brief); /* had ended: its units are not given back twice */
    assert_int_equal(used(client), 5);
    give(lasting);
    give(next);
    assert_all_free(client);
}

static void test_too_many(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    refuse(row_client(), UNITS(N + 1), HF_TOO_BIG, "6");
    refuse(row_client(), UNITS(N + 1, .wait_ms = HF_FOREVER), HF_TOO_BIG, "6");
    refuse(row_client(), ASK(.name = "s", .kind = HF_SEMAPHORE), HF_INVALID, "capacity");
    refuse(row_client(), ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = HF_CAPACITY_MAX + 1),
           HF_INVALID, "1048577");
}

/* ---- Resize ---- */

/* G6 */
static void test_shrink(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_RESIZE))
        return;
    hf_client *client = row_client();
    hf_lease *permit[N];
    for (int i = 0; i < N; i++)
        permit[i] = take(client, UNITS(1));
    assert_int_equal(hf_resize(client, "s", 2), HF_OK);
    for (int i = 0; i < N; i++)
        assert_true(hf_lease_ok(permit[i])); /* nobody is revoked */
    struct outcome waiter;
    start_ask(client, UNITS(1, .wait_ms = HF_FOREVER), &waiter);
    await_sight(client, "s", N, 1);
    for (int i = 0; i < 3; i++) { /* 5 permits become 2: the first three that come back are gone */
        give(permit[i]);
        struct view seen = look_at(client, "s");
        assert_int_equal(seen.waiters, 1);
        assert_int_equal(seen.row[0].capacity, 2);
    }
    give(permit[3]);
    assert_int_equal(await_outcome(&waiter), HF_OK);
    refuse(client, UNITS(1), HF_BUSY, "s");
    give(permit[4]);
    give(waiter.lease);
}

static void test_grow(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_RESIZE))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *all = take(client, UNITS(N));
    struct outcome two, three;
    start_ask(other, UNITS(2, .wait_ms = HF_FOREVER), &two);
    await_sight(client, "s", 1, 1);
    start_ask(other, UNITS(3, .wait_ms = HF_FOREVER), &three);
    await_sight(client, "s", 1, 2);
    assert_int_equal(hf_resize(client, "s", N + 2), HF_OK);
    assert_int_equal(await_outcome(&two), HF_OK);
    assert_int_equal(look_at(client, "s").waiters, 1);
    assert_int_equal(hf_resize(client, "s", N + 5), HF_OK);
    assert_int_equal(await_outcome(&three), HF_OK);
    assert_int_equal(used(client), N + 5);
    give(all);
    give(two.lease);
    give(three.lease);
    close_client(other);
}

static void test_shrink_below_a_waiter(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !offers(NEED_RESIZE))
        return;
    hf_client *client = row_client();
    hf_lease *held = take(client, UNITS(1));
    struct outcome big, small;
    start_ask(client, UNITS(N, .wait_ms = HF_FOREVER), &big);
    await_sight(client, "s", 1, 1);
    start_ask(client, UNITS(1, .wait_ms = HF_FOREVER), &small);
    await_sight(client, "s", 1, 2);
    assert_int_equal(hf_resize(client, "s", 2), HF_OK);
    assert_int_equal(await_outcome(&big),
                     HF_TOO_BIG); /* it would wait for ever, and those behind it too */
    assert_int_equal(await_outcome(&small), HF_OK);
    hf_lease_free(big.lease);
    give(small.lease);
    give(held);
}

static void test_resize_of_others(void **state)
{
    (void)state;
    if (!offers(NEED_RESIZE))
        return;
    hf_client *client = row_client();
    assert_refused(hf_resize(client, "nobody", 3), HF_NOT_HELD, "nobody");
    hf_lease *mutex = take(client, ASK(.name = "m"));
    assert_refused(hf_resize(client, "m", 3), HF_MISMATCH, "m");
    assert_refused(hf_resize(client, "m", 0), HF_INVALID, "capacity: 0");
    refuse(client, ASK(.name = "m"), HF_BUSY, "m");
    give(mutex);
}

/* ---- Never more than N at once ---- */

struct gate {
    hf_client *client;
    _Atomic int inside, most, wrong, seats;
};

/* Units that are valid now, counted while the lease is good on both sides of the count. */
static void pass_once(hf_client *client, struct gate *gate, unsigned *seed)
{
    int units = 1 + rand_r(seed) % N;
    hf_lease *lease;
    hf_status status = hf_acquire(client,
                                  UNITS((uint32_t)units, .ttl_ms = turn_ttl_ms(),
                                        .wait_ms = rand_r(seed) % 3 ? HF_FOREVER : 0),
                                  &lease);
    if (status == HF_BUSY)
        return;
    int inside = atomic_fetch_add(&gate->inside, units) + units;
    for (int most = atomic_load(&gate->most); inside > most;)
        if (atomic_compare_exchange_weak(&gate->most, &most, inside))
            break;
    atomic_fetch_add(&gate->wrong, status != HF_OK || !hf_lease_ok(lease));
    atomic_fetch_sub(&gate->inside, units);
    if (rand_r(seed) % 2)
        atomic_fetch_add(&gate->wrong, hf_release(lease) != HF_OK);
    hf_lease_free(lease);
}

static void *pass_in_a_thread(void *arg)
{
    struct gate *gate = arg;
    unsigned seed = (unsigned)atomic_fetch_add(&gate->seats, 1);
    for (int i = 0; i < rounds(TURNS); i++)
        pass_once(gate->client, gate, &seed);
    return NULL;
}

static void assert_gate(struct gate *gate)
{
    assert_int_equal(atomic_load(&gate->wrong), 0);
    assert_true(atomic_load(&gate->most) <= N && atomic_load(&gate->most) > 1);
    assert_int_equal(atomic_load(&gate->inside), 0);
    assert_all_free(row_client());
}

static void test_threads(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    struct gate gate = {.client = row_client()};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, pass_in_a_thread, &gate), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_gate(&gate);
}

static void pass_in_a_process(struct actor *me, void *arg)
{
    hf_client *client;
    struct gate *gate = arg;
    unsigned seed = (unsigned)atomic_fetch_add(&gate->seats, 1);
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    for (int i = 0; i < rounds(PROCESS_TURNS); i++)
        pass_once(client, gate, &seed);
    part_says(me, &(struct answer){.what = ORDER_GO, .status = hf_close(client, 5000)});
}

/* G1 */
static void test_processes(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE))
        return;
    struct gate *gate = shared_page(sizeof *gate);
    struct actor *process[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        process[i] = actor_start_part(pass_in_a_process, gate);
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(actor_answer(process[i], ORDER_GO, 0).status, HF_OK);
    assert_gate(gate);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("k of N units are taken and given back in all orders of all weights", test_all_orders),
        ROW("a heavy request waits in its turn, and light ones do not pass it", test_weights_wait),
        ROW("late and double releases are not held and free nothing", test_late_and_double),
        ROW("every permit expires by itself", test_each_expires),
        ROW("more units than the capacity is an error at once, named with its number",
            test_too_many),
        ROW("shrinking while held revokes nobody and takes effect as permits come back",
            test_shrink),
        ROW("growing lets waiters in at once", test_grow),
        ROW("shrinking below what a waiter asked for refuses it, and those behind it go on",
            test_shrink_below_a_waiter),
        ROW("only a semaphore in use can be resized", test_resize_of_others),
        ROW("never more than N are valid at once with 6 threads, and at rest exactly N are free",
            test_threads),
        ROW("never more than N are valid at once with 6 processes, and at rest exactly N are free",
            test_processes),
    };
    return JUDGE(rows);
}
