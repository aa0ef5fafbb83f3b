/* io_calls.c - the driver's other calls, one by one: replies for the background thread, mailboxes,
 * flushing, replies that nobody waits for, admin calls, watching, and an engine that does not
 * open. */
#include "io_fixture.h"

/* ---- The background thread ---- */

static void test_background(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    order.op.queue = true;
    assert_false(submit(&order, OP_ACQUIRE, true, &reply));
    await_replies(&order, 1);
    assert_int_equal(order.kind[0], REPLY_QUEUED);
    while (toy_greetings(&stage.server, 1) ==
           0) /* the background thread drives connection 1 from now on */
        usleep(200);
    push(&order);
    await_replies(&order, 2);
    assert_int_equal(order.kind[1], REPLY_GRANTED);
    assert_int_equal(atomic_load(&stage.notifications), 2);
    forget(&order);
}

static void test_detach(void **state)
{
    (void)state;
    struct order unread = an_order(), later = an_order();
    struct engine_reply reply;
    warm_up();
    assert_false(submit(&unread, OP_ACQUIRE, false, &reply));
    park(&unread, PATIENCE); /* has its reply, and does not take it */
    assert_int_equal(atomic_load(&stage.notifications), 0);
    io_detach_caller(stage.io, &unread.op);
    await_replies(&unread, 1);
    assert_int_equal(unread.kind[0], REPLY_GRANTED);

    uint64_t received = toy_received(&stage.server);
    assert_false(submit(&later, OP_ACQUIRE, false, &reply));
    usleep(20000);
    assert_int_equal(toy_received(&stage.server), received); /* it waits for the park */
    io_detach_caller(stage.io, &later.op);
    await_replies(&later, 1);
    assert_int_equal(later.kind[0], REPLY_GRANTED);
    forget(&unread);
    forget(&later);
}

static void test_at_once(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    for (int in_background = 0; in_background < 2; in_background++) {
        assert_true(submit(&order, OP_CHECK, in_background, &reply));
        assert_int_equal(reply.kind, REPLY_EXTENDED);
        assert_false(io_take_reply(stage.io, &order.op, clock_boot(), &reply));
    }
    assert_int_equal(atomic_load(&stage.notifications), 0);
    forget(&order);
}

static void test_full_box(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    int hints = 0;
    assert_false(
        submit(&order, OP_LEAVE, false, &reply)); /* RELEASED and ten hints: more than fits */
    assert_true(io_take_reply(stage.io, &order.op, clock_boot(), &reply));
    assert_int_equal(reply.kind, REPLY_RELEASED);
    for (nanos begun = clock_boot(); hints < 7; hints++) {
        park(&order, PATIENCE); /* not for long: there is something unread */
        assert_true(clock_boot() - begun < PATIENCE / 2);
        assert_true(io_take_reply(stage.io, &order.op, clock_boot(), &reply));
        assert_int_equal(reply.kind, REPLY_NOTIFY);
    }
    assert_false(io_take_reply(stage.io, &order.op, clock_boot(), &reply));
    nanos begun = clock_boot();
    park(&order, NANOS_OF_MS(30)); /* all is seen, those too that gave way */
    assert_true(clock_boot() - begun >= NANOS_OF_MS(30));
    forget(&order);
}

/* An op has a slot as long as a reply may come, or the text of its last reply may be read. */
static void test_rest(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    warm_up();
    assert_false(submit(&order, OP_ACQUIRE, false, &reply));
    uint64_t slot = order.op.slot;
    assert_false(submit(&order, OP_RELEASE, false, &reply));
    assert_int_equal(await_reply(&order), REPLY_GRANTED);
    assert_true(slot && order.op.slot == slot); /* one more answer is due */
    assert_int_equal(await_reply(&order), REPLY_RELEASED);
    assert_int_equal(order.op.slot, 0);
    nanos begun = clock_boot();
    io_park(stage.io, slot, order.op.seen, begun + PATIENCE);
    assert_true(clock_boot() - begun < PATIENCE / 2);

    assert_false(submit(&order, OP_UPGRADE, false, &reply));
    park(&order, PATIENCE);
    assert_true(io_take_reply(stage.io, &order.op, clock_boot(), &reply));
    assert_string_equal(reply.text, "the toy has no answer");
    assert_true(order.op.slot);
    assert_true(submit(&order, OP_CHECK, false, &reply));
    assert_int_equal(order.op.slot, 0);

    order.op.queue = true;
    assert_int_equal(submit_and_wait(&order, OP_ACQUIRE), REPLY_QUEUED);
    assert_true(order.op.slot); /* a grant may follow */
    forget(&order);
}

static void test_flush(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    warm_up();
    uint64_t received = toy_received(&stage.server);
    assert_false(submit(&order, OP_ACQUIRE, false, &reply));
    io_flush(stage.io);
    await_received(received + 1);
    assert_int_equal(await_reply(&order), REPLY_GRANTED);
    forget(&order);
}

static void test_unclaimed(void **state)
{
    (void)state;
    struct order order = an_order();
    struct engine_reply reply;
    warm_up();
    int answers = atomic_load(&toy->answers);
    assert_false(submit(&order, OP_ACQUIRE, false, &reply));
    forget(&order);
    while (atomic_load(&toy->answers) == answers)
        usleep(200);
    assert_int_equal(atomic_load(&stage.notifications), 0);
    assert_cheap_cycles(); /* the background thread has left the connection */
}

static void test_recheck(void **state)
{
    (void)state;
    struct order order = an_order();
    warm_up();
    uint64_t returns = atomic_load(&stage.returns);
    assert_int_equal(atomic_load(&stage.rechecks), 0);
    atomic_store(&toy->wants_recheck, true); /* at its next tick, which is the caller's */
    cycle(&order);
    while (atomic_load(&stage.returns) == returns)
        usleep(200);
    assert_int_equal(atomic_load(&stage.rechecks), 1);
    forget(&order);
}

/* ---- Admin calls ---- */

static void count_row(void *arg, const struct hf_row *row)
{
    assert_string_equal(row->name, "row");
    ++*(int *)arg;
}

static void test_admin(void **state)
{
    (void)state;
    int rows = 0;
    nanos now = clock_boot();
    struct admin_target what = {.name = "a-lock", .len = 6, .until = now + PATIENCE};
    assert_int_equal(io_list(stage.io, &what, now, count_row, &rows), HF_OK);
    assert_int_equal(rows, 3);
    assert_int_equal(io_break_hold(stage.io, &what, 7, now), HF_OK);
    assert_int_equal(io_break_hold(stage.io, &what, 8, now), HF_NOT_HELD);
    assert_string_equal(error_text(), "a-lock: nobody holds it with that token");
    assert_int_equal(io_resize(stage.io, &what, 3, now), HF_UNAVAILABLE);
    assert_string_equal(error_text(), "the toy has no answer");
    toy_hold_back(&stage.server, true);
    what.until = clock_boot() + NANOS_OF_MS(30);
    assert_int_equal(io_break_hold(stage.io, &what, 7, clock_boot()), HF_UNAVAILABLE);
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    assert_int_equal(io_list(stage.io, &what, clock_boot(), count_row, &rows), HF_UNAVAILABLE);
    assert_int_equal(rows, 3);
    toy_hold_back(&stage.server, false);
}

static void test_watch(void **state)
{
    (void)state;
    uint32_t seen = 5;
    nanos begun = clock_boot();
    io_watch(stage.io, &seen, 0);
    io_watch(stage.io, &seen, begun + NANOS_OF_MS(20));
    nanos took = clock_boot() - begun;
    assert_true(took >= NANOS_OF_MS(20) && took < NANOS_OF_MS(190));
    io_watch(stage.io, &seen, TIME_NEVER);
    assert_true(clock_boot() - begun >= NANOS_OF_MS(220));
    assert_int_equal(seen, 8);
}

static void test_refused_open(void **state)
{
    (void)state;
    void *io = &stage;
    assert_int_equal(io_open(&io, NULL, &(struct settings){.value = {0}}, &stage.host, &toy_type),
                     HF_CONFIG);
    assert_null(io);
    assert_string_equal(error_text(), "the toy wants a URL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE(
            "replies to an op without a caller come to the background thread, which drives for it",
            test_background),
        ON_STAGE(
            "once the caller is detached, the background thread gets all replies, also unread ones",
            test_detach),
        ON_STAGE("a reply inside the submit is delivered once", test_at_once),
        ON_STAGE("a full mailbox drops notifications and keeps answers", test_full_box),
        ON_STAGE("an op without a reply to come keeps no slot", test_rest),
        ON_STAGE("a flush sends submitted requests", test_flush),
        ON_STAGE("a reply that nobody waits for is read by the background thread", test_unclaimed),
        ON_STAGE("a recheck reaches the background thread", test_recheck),
        ON_STAGE("admin calls list, break and resize, and end if no reply comes", test_admin),
        ON_STAGE("a watch returns after a fifth of a second, or at its time if that is sooner",
                 test_watch),
        ON_STAGE("an engine that does not open leaves nothing", test_refused_open),
    };
    return cmocka_run_group_tests_name("calls of the I/O driver", tests, NULL, NULL);
}
