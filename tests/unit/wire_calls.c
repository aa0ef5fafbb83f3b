/* wire_calls.c - the driver's other calls, one by one: news by the bell, mailboxes, flushing, answers that nobody waits
 * for, errands, watching, and an engine that does not open. */
#include "wire_stage.h"

/* ---- By the bell ---- */

static void test_bell(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    order.ask.queue = true;
    assert_false(submit(&order, HF_V_ACQUIRE, true, &news));
    await_told(&order, 1);
    assert_int_equal(order.cue[0], HF_N_QUEUED);
    while (toy_greetings(&stage.server, 1) == 0) /* the background thread drives line 1 from now on */
        usleep(200);
    push(&order);
    await_told(&order, 2);
    assert_int_equal(order.cue[1], HF_N_GRANTED);
    assert_int_equal(atomic_load(&stage.nudges), 2);
    forget(&order);
}

static void test_unattend(void **state)
{
    (void)state;
    struct order unread = an_order(), later = an_order();
    struct hf_news news;
    warm_up();
    assert_false(submit(&unread, HF_V_ACQUIRE, false, &news));
    park(&unread, PATIENCE); /* has its answer, and does not look */
    assert_int_equal(atomic_load(&stage.nudges), 0);
    hf_wire_unattend(stage.wire, &unread.ask);
    await_told(&unread, 1);
    assert_int_equal(unread.cue[0], HF_N_GRANTED);

    uint64_t heard = toy_heard(&stage.server);
    assert_false(submit(&later, HF_V_ACQUIRE, false, &news));
    usleep(20000);
    assert_int_equal(toy_heard(&stage.server), heard); /* it waits for the park */
    hf_wire_unattend(stage.wire, &later.ask);
    await_told(&later, 1);
    assert_int_equal(later.cue[0], HF_N_GRANTED);
    forget(&unread);
    forget(&later);
}

static void test_at_once(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    for (int bell = 0; bell < 2; bell++) {
        assert_true(submit(&order, HF_V_CHECK, bell, &news));
        assert_int_equal(news.cue, HF_N_EXTENDED);
        assert_false(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    }
    assert_int_equal(atomic_load(&stage.nudges), 0);
    forget(&order);
}

static void test_full_box(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    int hints = 0;
    assert_false(submit(&order, HF_V_LEAVE, false, &news)); /* RELEASED and ten hints: more than fits */
    assert_true(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    assert_int_equal(news.cue, HF_N_RELEASED);
    for (hf_nanos begun = hf_clock_boot(); hints < 7; hints++) {
        park(&order, PATIENCE); /* not for long: there is something unread */
        assert_true(hf_clock_boot() - begun < PATIENCE / 2);
        assert_true(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
        assert_int_equal(news.cue, HF_N_HINT);
    }
    assert_false(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    hf_nanos begun = hf_clock_boot();
    park(&order, HF_MS(30)); /* all is seen, those too that gave way */
    assert_true(hf_clock_boot() - begun >= HF_MS(30));
    forget(&order);
}

/* It has a slot for as long as something may be told of it, or what was told may still be read. */
static void test_rest(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    warm_up();
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    uint64_t slot = order.ask.slot;
    assert_false(submit(&order, HF_V_RELEASE, false, &news));
    assert_int_equal(await_news(&order), HF_N_GRANTED);
    assert_true(slot && order.ask.slot == slot); /* one more answer is due */
    assert_int_equal(await_news(&order), HF_N_RELEASED);
    assert_int_equal(order.ask.slot, 0);
    hf_nanos begun = hf_clock_boot();
    hf_wire_park(stage.wire, slot, order.ask.seen, begun + PATIENCE);
    assert_true(hf_clock_boot() - begun < PATIENCE / 2);

    assert_false(submit(&order, HF_V_RESIZE, false, &news));
    park(&order, PATIENCE);
    assert_true(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    assert_string_equal(news.text, "the toy has no answer");
    assert_true(order.ask.slot);
    assert_true(submit(&order, HF_V_CHECK, false, &news));
    assert_int_equal(order.ask.slot, 0);

    order.ask.queue = true;
    assert_int_equal(ask(&order, HF_V_ACQUIRE), HF_N_QUEUED);
    assert_true(order.ask.slot); /* a grant may follow */
    forget(&order);
}

static void test_flush(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    warm_up();
    uint64_t heard = toy_heard(&stage.server);
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    hf_wire_flush(stage.wire);
    await_heard(heard + 1);
    assert_int_equal(await_news(&order), HF_N_GRANTED);
    forget(&order);
}

static void test_orphans(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    warm_up();
    int answers = atomic_load(&toy->answers);
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    forget(&order);
    while (atomic_load(&toy->answers) == answers)
        usleep(200);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    assert_cheap_cycles(); /* and it lets go of the line */
}

static void test_recheck(void **state)
{
    (void)state;
    struct order order = an_order();
    warm_up();
    uint64_t attends = atomic_load(&stage.attends);
    assert_int_equal(atomic_load(&stage.rechecks), 0);
    atomic_store(&toy->wants_recheck, true); /* at its next tick, which is the caller's */
    cycle(&order);
    while (atomic_load(&stage.attends) == attends)
        usleep(200);
    assert_int_equal(atomic_load(&stage.rechecks), 1);
    forget(&order);
}

/* ---- Errands ---- */

static void count_row(void *arg, const struct hf_row *row)
{
    assert_string_equal(row->name, "row");
    ++*(int *)arg;
}

static void test_errands(void **state)
{
    (void)state;
    int rows = 0;
    hf_nanos now = hf_clock_boot();
    struct hf_seen what = {.name = "a-lock", .len = 6, .until = now + PATIENCE};
    assert_int_equal(hf_wire_list(stage.wire, &what, now, count_row, &rows), HF_OK);
    assert_int_equal(rows, 3);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 7, now), HF_OK);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 8, now), HF_NOT_HELD);
    assert_string_equal(hf_why_text(), "a-lock: nobody holds it with that token");
    assert_int_equal(hf_wire_resize(stage.wire, &what, 3, now), HF_UNAVAILABLE);
    assert_string_equal(hf_why_text(), "the toy has no answer");
    toy_hold_back(&stage.server, true);
    what.until = hf_clock_boot() + HF_MS(30);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 7, hf_clock_boot()), HF_UNAVAILABLE);
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    assert_int_equal(hf_wire_list(stage.wire, &what, hf_clock_boot(), count_row, &rows), HF_UNAVAILABLE);
    assert_int_equal(rows, 3);
    toy_hold_back(&stage.server, false);
}

static void test_watch(void **state)
{
    (void)state;
    uint32_t seen = 5;
    hf_nanos begun = hf_clock_boot();
    hf_wire_watch(stage.wire, &seen, 0);
    hf_wire_watch(stage.wire, &seen, begun + HF_MS(20));
    hf_nanos took = hf_clock_boot() - begun;
    assert_true(took >= HF_MS(20) && took < HF_MS(190));
    hf_wire_watch(stage.wire, &seen, HF_NEVER);
    assert_true(hf_clock_boot() - begun >= HF_MS(220));
    assert_int_equal(seen, 8);
}

static void test_refused_open(void **state)
{
    (void)state;
    void *wire = &stage;
    assert_int_equal(hf_wire_open(&wire, NULL, &(struct hf_settings){.value = {0}}, &stage.host, &toy_type), HF_CONFIG);
    assert_null(wire);
    assert_string_equal(hf_why_text(), "the toy wants a URL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("news by the bell come to the background thread, which drives when nobody else does", test_bell),
        ON_STAGE("from unattend on news come by the bell, those too that were not read", test_unattend),
        ON_STAGE("what is answered at once is told once", test_at_once),
        ON_STAGE("a full mailbox drops hints and keeps answers", test_full_box),
        ON_STAGE("an ask with which nothing goes on keeps nothing here", test_rest),
        ON_STAGE("a flush sends what was submitted", test_flush),
        ON_STAGE("an answer that nobody waits for is read by the background thread", test_orphans),
        ON_STAGE("a recheck reaches the background thread", test_recheck),
        ON_STAGE("errands list, break and resize, and end when no answer comes", test_errands),
        ON_STAGE("a watch looks after a fifth of a second, or earlier if told so", test_watch),
        ON_STAGE("an engine that does not open leaves nothing", test_refused_open),
    };
    return cmocka_run_group_tests_name("what the driver offers beside waiting", tests, NULL, NULL);
}
