/* local_lost.c - a lease that is lost says so exactly once: by time, because its process stood
 * still, and because the table is gone. What waited on such a table is told, too, and its handle is
 * as good as new. */
#include "engines/local/table_file.h"
#include "lib/actors.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TTL_MS = 600, SLACK_MS = 300 };

struct loss {
    _Atomic unsigned times;
    _Atomic int64_t at_ns;
    _Atomic int why;
};

static void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    struct loss *loss = arg;
    (void)lease;
    atomic_store(&loss->at_ns, now_ns());
    atomic_store(&loss->why, (int)why);
    atomic_fetch_add(&loss->times, 1);
}

static hf_status hold(hf_client *client, const struct want *want, struct loss *loss,
                      hf_lease **lease)
{
    struct hf_request request = request_of(want);
    request.on_lost = note_loss;
    request.lost_arg = loss;
    return hf_acquire(client, &request, lease);
}

static void await_loss(struct loss *loss)
{
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    while (!atomic_load(&loss->times) && now_ns() < end)
        nap_us(200);
}

/* ---- By time ---- */

static void hold_and_tell(struct actor *me, void *arg)
{
    static struct loss loss;
    hf_client *client = part_client();
    hf_lease *lease;
    part_must(hold(client, arg, &loss, &lease) == HF_OK);
    int fd = hf_lease_fd(lease);
    part_says(me, &(struct answer){.what = ORDER_GO, .id = 0, .token = hf_lease_token(lease)});
    part_awaits_go(me);
    await_loss(&loss);
    part_must(!hf_lease_ok(lease) && hf_lease_left_ms(lease) == 0);
    part_must(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1);
    part_must(hf_extend(lease, 0) == HF_LOST);
    part_must(hf_release(lease) == HF_NOT_HELD);
    part_must(hf_close(client, 1000) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO,
                                   .id = 1,
                                   .number = atomic_load(&loss.times),
                                   .status = atomic_load(&loss.why)});
}

/* G13 */
static void test_stopped_beyond_ttl(void **state)
{
    (void)state;
    struct want want = {.name = "l", .ttl_ms = 100, .flags = HF_AUTO_RENEW};
    struct actor *old = actor_start_part(hold_and_tell, &want), *next = actor_start();
    uint64_t token = actor_answer(old, ORDER_GO, 0).token;
    actor_stop(old);
    struct answer taken = actor_holds(next, 0, &(struct want){.name = "l", .wait_ms = 5000});
    assert_true(taken.token > token);
    actor_order(old, ORDER_GO, 0);
    actor_go_on(old);
    struct answer told = actor_answer(old, ORDER_GO, 1);
    assert_int_equal(told.number, 1);
    assert_int_equal(told.status, HF_LOST);
    assert_int_equal(actor_does(next, ORDER_LOOK, 0).status, HF_OK);
}

static void test_not_renewed(void **state)
{
    (void)state;
    struct want want = {.name = "l", .ttl_ms = 50};
    struct actor *old = actor_start_part(hold_and_tell, &want);
    actor_answer(old, ORDER_GO, 0);
    actor_order(old, ORDER_GO, 0);
    assert_int_equal(actor_answer(old, ORDER_GO, 1).number, 1);
    assert_int_equal(see(stage_client(), "l").holders, 0);
}

/* ---- By the loss of the table ---- */

static void note_end(hf_lease *lease, hf_status outcome, void *arg)
{
    _Atomic int *ends = arg;
    (void)lease;
    atomic_fetch_add(ends, outcome == HF_OK ? 1000 : 1);
}

/* Each outcome that is not a grant counts as one. */
static void await_ends(_Atomic int *ends, int count)
{
    int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL;
    while (atomic_load(ends) < count && now_ns() < end)
        nap_us(100);
    assert_true(atomic_load(ends) >= count);
}

/* G22 */
static void test_table_removed(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct loss renewed = {0}, kept = {0};
    hf_lease *a, *b;
    assert_int_equal(hold(client,
                          &(struct want){.name = "a", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW},
                          &renewed, &a),
                     HF_OK);
    assert_int_equal(hold(client, &(struct want){.name = "b", .ttl_ms = 60000}, &kept, &b), HF_OK);
    int64_t removed_at = now_ns();
    assert_int_equal(unlink(stage_path()), 0);
    await_loss(&renewed);
    await_loss(&kept); /* whatever its own ttl: the table is the same */
    assert_true(atomic_load(&renewed.at_ns) - removed_at < (TTL_MS / 3 + SLACK_MS) * 1000000LL);
    assert_false(hf_lease_ok(a) || hf_lease_ok(b));
    assert_int_equal(hf_release(a), HF_NOT_HELD);
    assert_int_equal(hf_extend(b, 0), HF_LOST);
    struct hf_request request = request_of(&(struct want){.name = "c"});
    hf_lease *c;
    assert_int_equal(hf_acquire(client, &request, &c), HF_UNAVAILABLE);
    assert_non_null(strstr(hf_error_text(), stage_path()));
    assert_int_equal(atomic_load(&renewed.times), 1);
    assert_int_equal(atomic_load(&kept.times), 1);
    hf_lease_free(a);
    hf_lease_free(b);
}

/* A wait that ended with its table must be forgotten by the engine: a holder that has not noticed
 * hands the lock on to it later, when its handle may long be another's. Then two requests would
 * share one handle. */
static void assert_handles_differ(hf_client *client)
{
    enum { HANDLES = 40 };
    _Atomic int ends = 0;
    hf_lease *lease[HANDLES];
    struct hf_request request = request_of(&(struct want){.name = "z", .wait_ms = HF_FOREVER});
    for (int i = 0; i < HANDLES; i++) {
        assert_int_equal(hf_acquire_start(client, &request, note_end, &ends, &lease[i]), HF_OK);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(lease[i], lease[j]);
        await_ends(&ends, i < HANDLES / 2 ? i + 1
                                          : 0); /* the background thread has been round meanwhile */
    }
    await_ends(&ends, HANDLES);
    for (int i = 0; i < HANDLES; i++)
        hf_lease_free(lease[i]);
}

static void test_waits_on_a_removed_table(void **state)
{
    (void)state;
    enum { WAITS = 20 };
    _Atomic int ends = 0;
    struct loss loss = {0};
    hf_client *client = stage_client();
    struct actor *holder = actor_start();
    hf_lease *kept, *wait[WAITS];
    actor_holds(holder, 0, &(struct want){.name = "q", .ttl_ms = 60000});
    assert_int_equal(hold(client,
                          &(struct want){.name = "k", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW},
                          &loss, &kept),
                     HF_OK);
    struct hf_request patient =
        request_of(&(struct want){.name = "q", .wait_ms = HF_FOREVER, .ttl_ms = 60000});
    for (int i = 0; i < WAITS; i++)
        assert_int_equal(hf_acquire_start(client, &patient, note_end, &ends, &wait[i]), HF_OK);
    assert_int_equal(unlink(stage_path()), 0);
    await_loss(&loss);
    await_ends(&ends, WAITS);
    for (int i = WAITS - 1; i >= 0; i--)
        hf_lease_free(wait[i]);
    hf_lease_free(kept);
    actor_does(holder, ORDER_RELEASE, 0); /* it hands on to the first of them */
    assert_handles_differ(client);
    struct hf_counters counted = {.size = sizeof counted};
    assert_int_equal(hf_client_counters(client, &counted), HF_OK);
    assert_int_equal(counted.granted, 1);
    assert_int_equal(atomic_load(&ends), WAITS);
    assert_int_equal(atomic_load(&loss.times), 1);
}

/* ---- By force ---- */

/* Entries of any client that wait to be freed. */
static unsigned count_ended(void)
{
    struct table table;
    unsigned count = 0;
    assert_int_equal(table_open(&table, stage_path(), 0600), HF_OK);
    for (uint32_t i = 1; i < table_cells(&table); i++)
        count += cell_state(&table.cells[i]) == CELL_ENDED;
    table_close(&table);
    return count;
}

static void test_broken(void **state)
{
    (void)state;
    enum { HOLDS = 40 };
    hf_client *client = stage_client();
    struct loss loss[HOLDS] = {0};
    hf_lease *lease[HOLDS];
    for (int i = 0; i < HOLDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        assert_int_equal(
            hold(client, &(struct want){.name = name, .ttl_ms = 60000}, &loss[i], &lease[i]),
            HF_OK);
        assert_int_equal(hf_break(client, name, hf_lease_token(lease[i]), "test"), HF_OK);
        await_loss(&loss[i]);
        assert_int_equal(atomic_load(&loss[i].times), 1);
    }
    assert_int_equal(count_ended(), 0);
    for (int i = 0; i < HOLDS; i++)
        hf_lease_free(lease[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("a process that stood still beyond its ttl hears of its loss exactly once",
               test_stopped_beyond_ttl),
        STAGED("a lease that nobody renews is lost exactly once", test_not_renewed),
        STAGED("rm of the table loses every lease of a client within a third of the ttl, once",
               test_table_removed),
        STAGED("waits on a removed table end once and leave nothing behind",
               test_waits_on_a_removed_table),
        STAGED("a hold that is broken is lost at once, exactly once, and its cell is free again",
               test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
