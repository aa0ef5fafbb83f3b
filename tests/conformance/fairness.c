/* fairness.c - first come, first served; those who may barge; and what becomes of a queue whose
 * members go away. */
#include "lib/engines.h"

#include <stdio.h>

enum { QUEUE = 40 };

static void test_order(void **state)
{
    (void)state;
    if (!engine()->first_come)
        return;
    hf_client *client[2] = {row_client(), open_client(NULL, NULL)};
    struct outcome waiter[QUEUE];
    uint64_t last;
    hf_lease *held = take(client[0], ASK(.name = "f"));
    last = hf_lease_token(held);
    for (int i = 0; i < QUEUE; i++) {
        start_ask(client[i % 2], ASK(.name = "f", .wait_ms = HF_FOREVER), &waiter[i]);
        await_sight(client[0], "f", 1, i + 1);
    }
    for (int i = 0; i < QUEUE; i++) {
        give(held);
        assert_int_equal(await_outcome(&waiter[i]), HF_OK);
        assert_int_equal(look_at(client[0], "f").waiters, QUEUE - 1 - i);
        held = waiter[i].lease;
        assert_true(hf_lease_token(held) > last);
        last = hf_lease_token(held);
    }
    give(held);
    close_client(client[1]);
}

/* G2 */
static void test_processes_in_order(void **state)
{
    (void)state;
    enum { ACTORS = 6 };
    if (!engine()->first_come)
        return;
    struct actor *holder = actor_here(), *actor[ACTORS];
    for (int i = 0; i < ACTORS; i++)
        actor[i] = actor_here();
    struct answer last = actor_holds(holder, 0, &(struct want){.name = "f"});
    hf_client *client = row_client();
    for (int i = 0; i < ACTORS; i++) {
        actor_acquire(actor[i], 0, i % 2 ? ORDER_ACQUIRE : ORDER_START,
                      &(struct want){.name = "f", .wait_ms = HF_FOREVER});
        await_sight(client, "f", 1, i + 1);
    }
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    for (int i = 0; i < ACTORS; i++) {
        struct answer answer = actor_answer(actor[i], i % 2 ? ORDER_ACQUIRE : ORDER_START, 0);
        assert_int_equal(answer.status, HF_OK);
        assert_true(answer.token > last.token);
        last = answer;
        for (int j = i + 1; j < ACTORS; j++)
            assert_true(actor_is_silent(actor[j]));
        assert_int_equal(actor_does(actor[i], ORDER_RELEASE, 0).status, HF_OK);
    }
}

static void test_impatient_is_busy_behind_waiters(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !engine()->first_come)
        return;
    hf_client *client = row_client();
    struct hf_request *one = ASK(.name = "f", .kind = HF_SEMAPHORE, .capacity = 2);
    struct hf_request *both =
        ASK(.name = "f", .kind = HF_SEMAPHORE, .capacity = 2, .units = 2, .wait_ms = HF_FOREVER);
    hf_lease *held = take(client, one);
    struct outcome first;
    start_ask(client, both, &first);
    await_sight(client, "f", 1, 1);
    refuse(client, one, HF_BUSY, "f"); /* one is free, but not for those who come later */
    give(held);
    assert_int_equal(await_outcome(&first), HF_OK);
    give(first.lease);
}

static void test_barging(void **state)
{
    (void)state;
    if (!offers(NEED_SEMAPHORE) || !engine()->first_come || !offers(NEED_BARGING))
        return;
    hf_client *client = row_client();
    struct hf_request *barge =
        ASK(.name = "f", .kind = HF_SEMAPHORE, .capacity = 3, .flags = HF_BARGING);
    struct hf_request *all =
        ASK(.name = "f", .kind = HF_SEMAPHORE, .capacity = 3, .units = 3, .wait_ms = HF_FOREVER);
    hf_lease *held = take(client, barge);
    struct outcome first, late;
    start_ask(client, all, &first);
    await_sight(client, "f", 1, 1);
    hf_lease *passed = take(client, barge), *also = take(client, barge);
    refuse(client, barge, HF_BUSY, "f"); /* it does not fit: nothing to pass for */
    struct hf_request patient = *barge;
    patient.wait_ms = HF_FOREVER;
    start_ask(client, &patient, &late);
    await_sight(client, "f", 3, 2);
    give(held);
    assert_int_equal(atomic_load(&first.calls) + atomic_load(&late.calls),
                     0); /* queued it is as patient as others */
    give(passed);
    give(also);
    assert_int_equal(await_outcome(&first), HF_OK);
    assert_int_equal(atomic_load(&late.calls), 0);
    give(first.lease);
    assert_int_equal(await_outcome(&late), HF_OK);
    give(late.lease);
}

/* The first in line goes away, in each of its ways: those behind it move up, and the lock is not
 * lost. */
/* G3 */
static void test_the_first_goes(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct actor *doomed = actor_here();
    hf_lease *held = take(client, ASK(.name = "f"));
    struct outcome cancelled, freed, timed, last;
    actor_acquire(doomed, 0, ORDER_START, &(struct want){.name = "f", .wait_ms = HF_FOREVER});
    await_sight(client, "f", 1, 1);
    start_ask(client, ASK(.name = "f", .wait_ms = HF_FOREVER), &cancelled);
    start_ask(client, ASK(.name = "f", .wait_ms = HF_FOREVER), &freed);
    start_ask(client, ASK(.name = "f", .wait_ms = 300), &timed);
    start_ask(client, ASK(.name = "f", .wait_ms = HF_FOREVER), &last);
    await_sight(client, "f", 1, 5);
    if (engine()->notices_death) {
        actor_kill(doomed);
        await_sight(client, "f", 1, -1);
    } else {
        actor_order(doomed, ORDER_CANCEL, 0);
    }
    assert_int_equal(hf_cancel(cancelled.lease), HF_OK);
    hf_lease_free(freed.lease);
    assert_int_equal(await_outcome(&cancelled), HF_CANCELLED);
    assert_int_equal(await_outcome(&freed), HF_CANCELLED);
    assert_int_equal(await_outcome(&timed), HF_TIMEOUT);
    await_sight(client, "f", 1, 1);
    if (engine()->first_come)
        assert_int_equal(look_at(client, "f").row[1].place, 1);
    give(held);
    assert_int_equal(await_outcome(&last), HF_OK);
    hf_lease_free(cancelled.lease);
    hf_lease_free(timed.lease);
    give(last.lease);
}

static void test_expiry_wakes(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "f", .ttl_ms = ttl(300)));
    struct outcome first, second;
    start_ask(client, ASK(.name = "f", .ttl_ms = ttl(300), .wait_ms = HF_FOREVER), &first);
    await_sight(client, "f", 1, 1);
    start_ask(client, ASK(.name = "f", .ttl_ms = ttl(300), .wait_ms = HF_FOREVER), &second);
    assert_int_equal(await_outcome(&first), HF_OK); /* nobody released */
    assert_int_equal(hf_lease_left_ms(held), 0);
    assert_int_equal(await_outcome(&second), HF_OK);
    assert_true(!engine()->first_come || atomic_load(&second.token) > atomic_load(&first.token));
    hf_lease_free(held);
    hf_lease_free(first.lease);
    hf_lease_free(second.lease);
}

static void test_tickets(void **state)
{
    (void)state;
    enum { WAITERS = 5 };
    if (!engine()->first_come)
        return;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "f"));
    struct outcome waiter[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        start_ask(client, ASK(.name = "f", .wait_ms = HF_FOREVER), &waiter[i]);
        await_sight(client, "f", 1, i + 1);
    }
    struct view seen = look_at(client, "f");
    assert_int_equal(seen.row[0].place, 0);
    for (uint32_t i = 1; i <= WAITERS; i++) {
        assert_int_equal(seen.row[i].role, HF_WAITER);
        assert_int_equal(seen.row[i].place, i);
        assert_true(seen.row[i].ticket > 0 &&
                    (i == 1 || seen.row[i].ticket > seen.row[i - 1].ticket));
    }
    give(held);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(await_outcome(&waiter[i]), HF_OK);
        assert_int_equal(look_at(client, "f").row[0].ticket, seen.row[i + 1].ticket);
        give(waiter[i].lease);
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("40 waits of two clients are granted in the order in which they came", test_order),
        ROW("six processes, blocked or not, are granted in the order in which they came",
            test_processes_in_order),
        ROW("who does not wait is busy behind those who do, even where it would fit",
            test_impatient_is_busy_behind_waiters),
        ROW("barging passes waiters when it fits, and queues behind them when not", test_barging),
        ROW("whoever leaves the queue, by cancel, free, time or death, holds up nobody",
            test_the_first_goes),
        ROW("the end of a ttl wakes the next in line, and the one after", test_expiry_wakes),
        ROW("waiters are shown in order with rising tickets, which they keep as holders",
            test_tickets),
    };
    return JUDGE(rows);
}
