/* reentrant.c - the same owner asks again: holds that are counted by attempts, each released by its
 * own. */
#include "lib/engines.h"

#include <stdio.h>
#include <string.h>

enum { LEVELS = 3 };

/* G7 */
/* A release is over when a majority has it: where there are several servers, the last one may still
 * show the level. */
static void await_depth(hf_client *client, uint32_t depth)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (depth_of(client, "r") != depth)
        assert_true(now_ns() < end);
}

static void test_nested(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *level[LEVELS];
    for (uint32_t i = 0; i < LEVELS; i++) {
        level[i] = take(client, ASK(.name = "r", .owner = "me"));
        assert_int_equal(depth_of(other, "r"), i + 1);
        assert_int_equal(hf_lease_token(level[i]), hf_lease_token(level[0]));
    }
    refuse(other, ASK(.name = "r", .owner = "you"), HF_BUSY, "r");
    for (uint32_t i = 0; i < LEVELS; i++) {
        await_depth(other, LEVELS - i);
        refuse(other, ASK(.name = "r"), HF_BUSY, "r");
        assert_int_equal(hf_release(level[i]), HF_OK);
    }
    give(take(other, ASK(.name = "r", .owner = "you")));
    for (int i = 0; i < LEVELS; i++)
        hf_lease_free(level[i]);
    close_client(other);
}

/* In each order of releasing, the first level first or last, the hold is whole until the last one
 * is gone. */
static void test_any_order(void **state)
{
    (void)state;
    static const int orders[6][LEVELS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client();
    for (int o = 0; o < 6; o++) {
        hf_lease *level[LEVELS];
        for (int i = 0; i < LEVELS; i++)
            level[i] = take(client, ASK(.name = "r", .owner = "me"));
        for (uint32_t i = 0; i < LEVELS; i++) {
            refuse(client, ASK(.name = "r", .owner = "you"), HF_BUSY, "r");
            await_depth(client, LEVELS - i);
            give(level[orders[o][i]]);
        }
        assert_int_equal(look_at(client, "r").holders, 0);
    }
}

static void test_fourth_release(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client();
    hf_lease *level[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        level[i] = take(client, ASK(.name = "r", .owner = "me"));
    assert_int_equal(hf_release(level[2]), HF_OK);
    assert_refused(hf_release(level[2]), HF_NOT_HELD,
                   "r"); /* a level that is gone takes no other along */
    assert_int_equal(depth_of(client, "r"), 2);
    assert_int_equal(hf_release(level[1]), HF_OK);
    assert_int_equal(hf_release(level[0]), HF_OK);
    hf_lease *next = take(client, ASK(.name = "r", .owner = "you"));
    assert_refused(hf_release(level[0]), HF_NOT_HELD, "r");
    await_depth(client, 1);
    assert_true(hf_lease_ok(next));
    give(next);
    for (int i = 0; i < LEVELS; i++)
        hf_lease_free(level[i]);
}

static void test_two_processes(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    struct hf_request *mine = ASK(.name = "r", .owner = "me", .ttl_ms = 60000);
    struct actor *a = actor_asking(mine), *b = actor_asking(mine);
    struct answer first = actor_answer(a, ORDER_ACQUIRE, 0),
                  second = actor_answer(b, ORDER_ACQUIRE, 0);
    assert_int_equal(first.status, HF_OK);
    assert_int_equal(second.status, HF_OK);
    /* On a quorum two that enter in the same moment may agree on different ones. */
    assert_true(first.token == second.token || engine()->is_quorum);
    hf_client *client = row_client();
    assert_int_equal(depth_of(client, "r"), 2);
    actor_order(a, ORDER_GO, 0);
    assert_int_equal(actor_answer(a, ORDER_RELEASE, 0).status, HF_OK);
    await_depth(client, 1);
    refuse(client, ASK(.name = "r"), HF_BUSY, "r");
    actor_order(b, ORDER_GO, 0);
    assert_int_equal(actor_answer(b, ORDER_RELEASE, 0).status, HF_OK);
    give(take(client, ASK(.name = "r")));
}

static void test_one_process_dies(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    struct hf_request *mine =
        ASK(.name = "r", .owner = "me", .ttl_ms = engine()->notices_death ? 60000 : 3000);
    struct actor *a = actor_asking(mine), *b = actor_asking(mine);
    struct answer first = actor_answer(a, ORDER_ACQUIRE, 0),
                  second = actor_answer(b, ORDER_ACQUIRE, 0);
    if (first.status != HF_OK || second.status != HF_OK)
        fail_msg("%s%s", first.text, second.text);
    hf_client *client = row_client();
    assert_int_equal(depth_of(client, "r"), 2);
    actor_kill(a);
    while (depth_of(client, "r") == 2)
        nap_us(1000);
    if (engine()->notices_death) {
        await_depth(client, 1);
        refuse(client, ASK(.name = "r"), HF_BUSY, "r");
    }
    actor_kill(b);
    give(take(client, ASK(.name = "r", .wait_ms = ACTOR_PATIENCE_MS)));
}

/* A message that arrives twice: the same attempt is asked for again by somebody who does not know
 * its outcome. */
/* G7 */
static void test_doubled(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client(), *again = open_client(NULL, NULL);
    hf_lease *level[LEVELS], *twice[LEVELS];
    char attempt[16];
    for (uint32_t i = 0; i < LEVELS; i++) {
        snprintf(attempt, sizeof attempt, "try %u", i);
        level[i] = take(client, ASK(.name = "r", .owner = "me", .attempt = attempt));
        twice[i] = take(again, ASK(.name = "r", .owner = "me", .attempt = attempt));
        assert_int_equal(hf_lease_token(twice[i]), hf_lease_token(level[0]));
        assert_int_equal(depth_of(client, "r"), i + 1);
    }
    for (uint32_t i = 0; i < LEVELS; i++) {
        assert_int_equal(hf_release(i % 2 ? twice[i] : level[i]), HF_OK);
        assert_int_equal(depth_of(client, "r"), LEVELS - 1 - i);
        assert_refused(hf_release(i % 2 ? level[i] : twice[i]), HF_NOT_HELD, "r");
        assert_int_equal(depth_of(client, "r"), LEVELS - 1 - i);
    }
    for (int i = 0; i < LEVELS; i++) {
        hf_lease_free(level[i]);
        hf_lease_free(twice[i]);
    }
    give(take(client, ASK(.name = "r", .owner = "you")));
    close_client(again);
}

static void test_never_shortens(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client();
    hf_lease *outer = take(client, ASK(.name = "r", .owner = "me", .ttl_ms = 60000));
    hf_lease *inner = take(client, ASK(.name = "r", .owner = "me", .ttl_ms = 1000));
    assert_true(look_at(client, "r").row[0].left_ms > 50000);
    give(inner);
    assert_true(look_at(client, "r").row[0].left_ms > 50000);
    assert_true(hf_lease_ok(outer) && hf_lease_left_ms(outer) > 50000);
    give(outer);
}

static void test_passes_its_own_waiters(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client();
    hf_lease *outer = take(client, ASK(.name = "r", .owner = "me"));
    struct outcome waiter;
    start_ask(client, ASK(.name = "r", .owner = "you", .wait_ms = HF_FOREVER), &waiter);
    await_sight(client, "r", -1, 1);
    hf_lease *inner = take(
        client, ASK(.name = "r", .owner = "me")); /* behind the waiter it would wait for itself */
    give(outer);
    assert_int_equal(atomic_load(&waiter.calls), 0);
    give(inner);
    assert_int_equal(await_outcome(&waiter), HF_OK);
    give(waiter.lease);
}

/* A second ask while the first one waits: both are granted when the owner's turn comes, and count.
 */
static void test_second_ask_joins_the_wait(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER))
        return;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "r", .owner = "you"));
    uint64_t before = hf_lease_token(held);
    struct outcome first, second;
    start_ask(client, ASK(.name = "r", .owner = "me", .wait_ms = HF_FOREVER), &first);
    start_ask(client, ASK(.name = "r", .owner = "me", .wait_ms = HF_FOREVER), &second);
    await_sight(client, "r", 1, 2);
    give(held);
    assert_int_equal(await_outcome(&first), HF_OK);
    assert_int_equal(await_outcome(&second), HF_OK);
    assert_int_equal(depth_of(client, "r"), 2);
    /* Two tries of a quorum run at the same moment, and either may finish without the other. */
    if (!engine()->is_quorum)
        assert_int_equal(hf_lease_token(first.lease), hf_lease_token(second.lease));
    assert_true(hf_lease_token(first.lease) > before && hf_lease_token(second.lease) > before);
    give(first.lease);
    await_depth(client, 1);
    give(second.lease);
    assert_int_equal(look_at(client, "r").holders, 0);
}

/* Two asks of an owner wait, one to read and one to write: a writer that is let in beside its own
 * reader would write while others read. */
static void test_writer_beside_own_reader(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER) || !offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *held = take(other, ASK(.name = "r", .kind = HF_WRITE));
    struct outcome reads, writes;
    start_ask(client, ASK(.name = "r", .kind = HF_READ, .owner = "me", .wait_ms = HF_FOREVER),
              &reads);
    await_sight(client, "r", 1, 1);
    start_ask(client, ASK(.name = "r", .kind = HF_WRITE, .owner = "me", .wait_ms = HF_FOREVER),
              &writes);
    await_sight(client, "r", 1, 2);
    give(held);
    assert_int_equal(await_outcome(&reads), HF_OK);
    assert_int_equal(await_outcome(&writes), HF_MISMATCH);
    give(take(other, ASK(.name = "r", .kind = HF_READ)));
    give(reads.lease);
    hf_lease_free(writes.lease);
    assert_int_equal(look_at(client, "r").holders, 0);
    close_client(other);
}

static void test_semaphore_owner(void **state)
{
    (void)state;
    if (!offers(NEED_OWNER) || !offers(NEED_SEMAPHORE))
        return;
    hf_client *client = row_client();
    struct hf_request *mine =
        ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = 3, .units = 2, .owner = "me");
    hf_lease *outer = take(client, mine), *inner = take(client, mine);
    assert_int_equal(look_at(client, "s").row[0].used, 2); /* once, however often it is asked for */
    give(outer);
    refuse(client, ASK(.name = "s", .kind = HF_SEMAPHORE, .capacity = 3, .units = 2), HF_BUSY, "s");
    give(inner);
    assert_int_equal(look_at(client, "s").holders, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("three levels count to three, keep one token, and keep others out until the last is "
            "released",
            test_nested),
        ROW("levels may be released in any order", test_any_order),
        ROW("the fourth release of three levels is an error and changes nothing",
            test_fourth_release),
        ROW("two processes with the same owner count two", test_two_processes),
        ROW("of two processes with the same owner one dies, and the other still holds",
            test_one_process_dies),
        ROW("a message that arrives twice does not count twice, at each of three levels",
            test_doubled),
        ROW("re-entry never shortens the time left", test_never_shortens),
        ROW("re-entry does not queue behind others", test_passes_its_own_waiters),
        ROW("a second ask while the first waits is granted with it",
            test_second_ask_joins_the_wait),
        ROW("an owner that waits to read and to write reads, and does not write beside others",
            test_writer_beside_own_reader),
        ROW("an owner's units of a semaphore are taken once", test_semaphore_owner),
    };
    return JUDGE(rows);
}
