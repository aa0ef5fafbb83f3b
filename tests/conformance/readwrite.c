/* readwrite.c - readers together, a writer alone, nobody starves; downgrade and upgrade. */
#include "lib/engines.h"

#include <stdio.h>

enum { READERS = 500, CHURNERS = 3, WRITES = 20 };

#define READ(...) ASK(.name = "rw", .kind = HF_READ, __VA_ARGS__)
#define WRITE(...) ASK(.name = "rw", .kind = HF_WRITE, __VA_ARGS__)

/* ---- 500 readers ---- */

struct hall {
    _Atomic int inside, most, entered, failed;
};

static void walk_in(hf_lease *lease, hf_status outcome, void *arg)
{
    struct hall *hall = arg;
    (void)lease;
    int inside = atomic_fetch_add(&hall->inside, 1) + 1;
    if (inside > atomic_load(&hall->most)) /* callbacks run one at a time */
        atomic_store(&hall->most, inside);
    atomic_fetch_add(&hall->failed, outcome != HF_OK);
    atomic_fetch_add(&hall->entered, 1);
}

static void start_batch(hf_client *client, hf_lease **batch, struct hall *hall)
{
    for (int i = 0; i < READERS; i++)
        if (hf_acquire_start(client, READ(.wait_ms = HF_FOREVER), walk_in, hall, &batch[i]) !=
            HF_OK)
            fail_msg("%s", hf_error_text());
}

static void end_batch(hf_lease **batch, struct hall *hall)
{
    for (int i = 0; i < READERS; i++) {
        atomic_fetch_sub(&hall->inside, 1);
        give(batch[i]);
    }
}

/* What has been entered by now, all that was due before it having been done. */
static void assert_nobody_entered(hf_client *client, struct hall *hall, uint32_t waiting)
{
    await_sight(client, "rw", -1, (int)waiting);
    assert_int_equal(atomic_load(&hall->entered), 0);
}

static void test_five_hundred(void **state)
{
    (void)state;
    static hf_lease *first[READERS], *second[READERS];
    if (!offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client();
    struct hall before = {0}, after = {0};
    struct outcome writer;
    start_batch(client, first, &before);
    await_count(&before.entered, READERS);
    assert_int_equal(atomic_load(&before.most), READERS);
    assert_int_equal(see(client, "rw").holders, READERS);
    start_ask(client, WRITE(.wait_ms = HF_FOREVER), &writer);
    await_sight(client, "rw", READERS, 1);
    start_batch(client, second, &after);
    assert_nobody_entered(client, &after, READERS + 1);
    end_batch(first, &before);
    assert_int_equal(await_outcome(&writer), HF_OK);
    assert_nobody_entered(client, &after, READERS);
    uint64_t token = hf_lease_token(writer.lease);
    give(writer.lease);
    await_count(&after.entered, READERS);
    assert_int_equal(atomic_load(&after.most), READERS);
    assert_int_equal(atomic_load(&before.failed) + atomic_load(&after.failed), 0);
    assert_true(hf_lease_token(second[0]) > token);
    end_batch(second, &after);
}

/* ---- Who excludes whom ---- */

/* G5 */
static void test_exclusion(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *a = take(client, READ(.ttl_ms = 60000)), *b = take(other, READ(.ttl_ms = 60000));
    assert_true(hf_lease_token(b) > hf_lease_token(a));
    refuse(other, WRITE(.ttl_ms = 60000), HF_BUSY, "rw");
    give(a);
    refuse(client, WRITE(.ttl_ms = 60000), HF_BUSY, "rw");
    give(b);
    hf_lease *writer = take(other, WRITE(.ttl_ms = 60000));
    refuse(client, READ(.ttl_ms = 60000), HF_BUSY, "rw");
    refuse(client, WRITE(.ttl_ms = 60000), HF_BUSY, "rw");
    give(writer);
    close_client(other);
}

static void test_reader_cannot_release_writer(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE))
        return;
    bool converts = offers(NEED_CONVERT);
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *reader = take(client, READ(.ttl_ms = ttl(100)));
    hf_lease *writer = take(other, WRITE(.wait_ms = HF_FOREVER)); /* the reader's time is over */
    if (converts)
        assert_refused(hf_downgrade(reader), HF_LOST, "rw");
    assert_refused(hf_release(reader), HF_NOT_HELD, "rw");
    hf_lease_free(reader);
    assert_true(hf_lease_ok(writer));
    struct view seen = look_at(client, "rw");
    assert_int_equal(seen.row[0].token, hf_lease_token(writer));
    assert_int_equal(seen.row[0].kind, HF_WRITE);
    refuse(client, READ(.ttl_ms = ttl(100)), HF_BUSY, "rw");
    give(writer);
    close_client(other);
}

static void test_crashed_reader(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE))
        return;
    int64_t ttl = engine()->notices_death ? 60000 : 1500;
    struct actor *reader = actor_here(), *crash = actor_here(), *writer = actor_here();
    actor_holds(
        reader, 0,
        &(struct want){.name = "rw", .kind = HF_READ, .flags = HF_AUTO_RENEW, .ttl_ms = ttl});
    actor_holds(crash, 0, &(struct want){.name = "rw", .kind = HF_READ, .ttl_ms = ttl});
    hf_client *client = row_client();
    assert_int_equal(look_at(client, "rw").holders, 2);
    actor_kill(crash);
    await_sight(client, "rw", 1, 0);
    assert_int_equal(actor_does(reader, ORDER_LOOK, 0).status, HF_OK);
    actor_acquire(writer, 0, ORDER_START,
                  &(struct want){.name = "rw", .kind = HF_WRITE, .wait_ms = HF_FOREVER});
    await_sight(client, "rw", 1, 1);
    assert_int_equal(actor_does(reader, ORDER_RELEASE, 0).status, HF_OK);
    assert_int_equal(actor_answer(writer, ORDER_START, 0).status, HF_OK);
}

/* Readers that come and go without a gap do not keep a writer out, nor writers readers. */
struct churn {
    _Atomic int stop, turns;
};

static void come_and_go(struct actor *me, void *arg)
{
    struct churn *churn = arg;
    hf_client *client;
    part_must(hf_open(engine_url(), NULL, &client) == HF_OK);
    hf_lease *last = NULL, *next = NULL;
    while (!atomic_load(&churn->stop)) {
        if (last)
            part_must(hf_release(last) == HF_OK);
        hf_lease_free(last);
        part_must(hf_acquire(client, READ(.wait_ms = ACTOR_PATIENCE_MS), &next) == HF_OK);
        last = next;
        atomic_fetch_add(&churn->turns, 1);
    }
    hf_lease_free(last);
    part_says(me, &(struct answer){.what = ORDER_GO, .status = hf_close(client, 5000)});
}

static void test_no_starvation(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !engine()->first_come)
        return;
    struct churn *churn = shared_page(sizeof *churn);
    struct actor *reader[CHURNERS];
    for (int i = 0; i < CHURNERS; i++)
        reader[i] = actor_start_part(come_and_go, churn);
    await_count(&churn->turns, 100);
    hf_client *client = row_client();
    for (int i = 0; i < WRITES; i++) {
        int turns = atomic_load(&churn->turns);
        hf_lease *writer = take(client, WRITE(.wait_ms = ACTOR_PATIENCE_MS));
        give(writer);
        await_count(&churn->turns, turns + 2 * CHURNERS); /* and the readers went on behind it */
    }
    atomic_store(&churn->stop, 1);
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(actor_answer(reader[i], ORDER_GO, 0).status, HF_OK);
}

/* G5 */
static void test_adjacent_readers(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !engine()->first_come)
        return;
    hf_client *client = row_client();
    hf_lease *held = take(client, WRITE(.ttl_ms = 60000));
    struct outcome queue[5]; /* reader, reader, writer, reader, reader */
    for (int i = 0; i < 5; i++) {
        start_ask(client, i == 2 ? WRITE(.wait_ms = HF_FOREVER) : READ(.wait_ms = HF_FOREVER),
                  &queue[i]);
        await_sight(client, "rw", 1, i + 1);
    }
    give(held);
    assert_int_equal(await_outcome(&queue[0]), HF_OK);
    assert_int_equal(await_outcome(&queue[1]), HF_OK);
    struct view seen = look_at(client, "rw");
    assert_int_equal(seen.holders, 2);
    assert_int_equal(seen.waiters, 3);
    give(queue[0].lease);
    assert_int_equal(look_at(client, "rw").waiters, 3);
    give(queue[1].lease);
    assert_int_equal(await_outcome(&queue[2]), HF_OK);
    assert_int_equal(look_at(client, "rw").waiters, 2);
    give(queue[2].lease);
    assert_int_equal(await_outcome(&queue[3]), HF_OK);
    assert_int_equal(await_outcome(&queue[4]), HF_OK);
    give(queue[3].lease);
    give(queue[4].lease);
}

/* ---- Conversion ---- */

static void test_upgrade_of_the_sole_reader(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client();
    hf_lease *passed = take(client, READ(.ttl_ms = 60000)),
             *reader = take(client, READ(.ttl_ms = 60000));
    hf_lease *later = take(client, READ(.ttl_ms = 60000));
    uint64_t highest = hf_lease_token(later), own = hf_lease_token(reader);
    give(passed);
    give(later);
    assert_int_equal(hf_upgrade(reader), HF_OK);
    assert_true(hf_lease_token(reader) > highest && highest > own);
    assert_true(hf_lease_ok(reader));
    struct view seen = look_at(client, "rw");
    assert_int_equal(seen.row[0].kind, HF_WRITE);
    assert_int_equal(seen.row[0].token, hf_lease_token(reader));
    refuse(client, READ(.ttl_ms = 60000), HF_BUSY, "rw");
    assert_int_equal(hf_extend(reader, 0), HF_OK);
    give(reader);
    give(take(client, WRITE(.ttl_ms = 60000)));
}

/* G5 */
static void test_upgrade_of_one_among_two(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    hf_lease *a = take(client, READ(.ttl_ms = 60000)), *b = take(other, READ(.ttl_ms = 60000));
    uint64_t token = hf_lease_token(a);
    int64_t before = now_ns();
    assert_refused(hf_upgrade(a), HF_BUSY, "rw");
    assert_refused(hf_upgrade(b), HF_BUSY, "rw");
    assert_true(now_ns() - before <
                5000000000); /* it never waits, so two of them cannot wait for each other */
    assert_true(hf_lease_ok(a) && hf_lease_ok(b));
    assert_int_equal(hf_lease_token(a), token);
    assert_int_equal(look_at(client, "rw").holders, 2);
    give(b);
    assert_int_equal(hf_upgrade(a), HF_OK);
    give(a);
    close_client(other);
}

/* A waiting writer does not stop an upgrade: it would wait for a reader that waits for it. */
static void test_upgrade_before_waiters(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client();
    hf_lease *reader = take(client, READ(.ttl_ms = 60000));
    struct outcome writer;
    start_ask(client, WRITE(.wait_ms = HF_FOREVER), &writer);
    await_sight(client, "rw", -1, 1);
    assert_int_equal(hf_upgrade(reader), HF_OK);
    assert_int_equal(atomic_load(&writer.calls), 0);
    uint64_t token = hf_lease_token(reader);
    give(reader);
    assert_int_equal(await_outcome(&writer), HF_OK);
    assert_true(hf_lease_token(writer.lease) > token);
    give(writer.lease);
}

/* G5 */
static void test_downgrade(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client();
    hf_lease *writer = take(client, WRITE(.ttl_ms = 60000));
    uint64_t token = hf_lease_token(writer);
    struct outcome readers[2];
    for (int i = 0; i < 2; i++)
        start_ask(client, READ(.wait_ms = HF_FOREVER), &readers[i]);
    await_sight(client, "rw", 1, 2);
    assert_int_equal(hf_downgrade(writer), HF_OK);
    assert_int_equal(hf_lease_token(writer), token);
    for (int i = 0; i < 2; i++)
        assert_int_equal(await_outcome(&readers[i]), HF_OK);
    assert_int_equal(look_at(client, "rw").holders, 3);
    assert_int_equal(hf_downgrade(writer), HF_OK); /* a reader already */
    assert_refused(hf_upgrade(writer), HF_BUSY, "rw");
    give(writer);
    give(readers[0].lease);
    give(readers[1].lease);
    give(take(client, WRITE(.ttl_ms = 60000)));
}

static void test_conversion_of_others(void **state)
{
    (void)state;
    if (!offers(NEED_CONVERT))
        return;
    hf_lease *mutex = take(row_client(), ASK(.name = "m"));
    assert_refused(hf_upgrade(mutex), HF_INVALID, "m");
    assert_refused(hf_downgrade(mutex), HF_INVALID, "m");
    assert_true(hf_lease_ok(mutex));
    give(mutex);
    hf_lease *reader = take(row_client(), READ(.ttl_ms = 60000));
    assert_int_equal(hf_release(reader), HF_OK);
    assert_refused(hf_upgrade(reader), HF_NOT_HELD, "rw");
    hf_lease_free(reader);
}

/* ---- Conversions that only start ---- */

static hf_status convert_by(hf_status (*start)(hf_lease *, hf_done_fn *, void *), hf_lease *lease)
{
    struct outcome outcome = {.status = -1, .lease = lease};
    hf_status status = start(lease, note_outcome, &outcome);
    if (status != HF_OK)
        return status;

    status = await_outcome(&outcome);
    assert_int_equal(atomic_load(&outcome.calls), 1);
    return status;
}

static void test_conversions_that_start(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client();
    hf_lease *a = take(client, ASK(.name = "rw", .kind = HF_READ)),
             *b = take(client, ASK(.name = "rw", .kind = HF_READ));
    assert_int_equal(convert_by(hf_upgrade_start, a), HF_BUSY);
    give(b);

    uint64_t token = hf_lease_token(a);
    assert_int_equal(convert_by(hf_upgrade_start, a), HF_OK);
    assert_true(hf_lease_token(a) > token && hf_lease_token(a) < 1ull << 53);
    refuse(client, ASK(.name = "rw", .kind = HF_READ), HF_BUSY, "rw");
    assert_int_equal(convert_by(hf_downgrade_start, a), HF_OK);
    give(take(client, ASK(.name = "rw", .kind = HF_READ)));
    assert_int_equal(hf_upgrade(a), HF_OK);
    give(a);

    hf_lease *mutex = take(client, ASK(.name = "m"));
    assert_refused(convert_by(hf_upgrade_start, mutex), HF_INVALID, "m");
    assert_refused(hf_upgrade_start(mutex, NULL, NULL), HF_INVALID, "done");
    give(mutex);
}

/* Each ends once, the conversion with its own outcome or with HF_NOT_HELD. */
static void test_release_behind_conversion(void **state)
{
    (void)state;
    if (!offers(NEED_READ_WRITE) || !offers(NEED_CONVERT))
        return;
    hf_client *client = row_client();
    for (int i = 0; i < 50; i++) {
        hf_lease *lease = take(client, ASK(.name = "rw", .kind = HF_READ, .wait_ms = 5000));
        struct outcome upgraded = {.status = -1, .lease = lease}, released = upgraded;
        assert_int_equal(hf_upgrade_start(lease, note_outcome, &upgraded), HF_OK);
        assert_int_equal(hf_release_start(lease, note_outcome, &released), HF_OK);
        hf_status status = await_outcome(&upgraded);
        assert_true(status == HF_OK || status == HF_NOT_HELD);
        assert_int_equal(await_outcome(&released), HF_OK);
        assert_int_equal(atomic_load(&upgraded.calls), 1);
        hf_lease_free(lease);
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("500 readers are inside at once, a writer between two batches, later readers behind it",
            test_five_hundred),
        ROW("readers share, and exclude a writer; a writer excludes all", test_exclusion),
        ROW("a reader cannot release a writer's hold", test_reader_cannot_release_writer),
        ROW("a crashed reader's hold ends by itself though others keep reading",
            test_crashed_reader),
        ROW("readers without a gap do not starve a writer, nor do writers starve readers",
            test_no_starvation),
        ROW("readers that stand next to each other enter together, and not past a writer",
            test_adjacent_readers),
        ROW("the sole reader is upgraded, with a new and higher token",
            test_upgrade_of_the_sole_reader),
        ROW("an upgrade of one among two answers busy, and the read hold stays",
            test_upgrade_of_one_among_two),
        ROW("an upgrade does not wait for a waiting writer", test_upgrade_before_waiters),
        ROW("a downgrade keeps its token and lets waiting readers in at once", test_downgrade),
        ROW("only a held read-write lock can be converted", test_conversion_of_others),
        ROW("a conversion that only starts ends as one that blocks", test_conversions_that_start),
        ROW("a release behind a conversion that only starts: each ends once",
            test_release_behind_conversion),
    };
    return JUDGE(rows);
}
