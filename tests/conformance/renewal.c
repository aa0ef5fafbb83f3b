/* renewal.c - leases over time: renewed in the background, bounded by max_hold, lost by our own
 * clock, warned of; and hf_with, which does all of it. */
#include "lib/engines.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static int64_t passed_ms(int64_t since_ns)
{
    return (now_ns() - since_ns) / 1000000;
}

/* G15 */
static void test_auto_renew(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome lost = {0};
    hf_lease *lease = take(client, ASK(.name = "w", .ttl_ms = ttl(400), .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    uint64_t token = hf_lease_token(lease);
    while (see(client, "w").since_ms < 2000) { /* five times its ttl */
        assert_true(hf_lease_ok(lease) && hf_lease_left_ms(lease) > 0);
        nap_us(5000);
    }
    assert_int_equal(hf_lease_token(lease), token);
    give(lease);
    assert_int_equal(atomic_load(&lost.calls), 0);
}

/* G13 */
static void test_lost_once(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome lost = {0};
    int64_t before = now_ns();
    hf_lease *lease = take(
        client, ASK(.name = "w", .ttl_ms = ttl(300), .on_lost = note_outcome, .lost_arg = &lost));
    assert_int_equal(await_outcome(&lost), HF_LOST);
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    assert_int_equal(hf_explain(client, ttl(300), &sheet), HF_OK);
    assert_true(passed_ms(before) >= sheet.stop_ms);
    assert_false(hf_lease_ok(lease));
    assert_refused(hf_extend(lease, 0), HF_LOST, "w");
    give(take(client, ASK(.name = "w", .wait_ms = HF_FOREVER)));
    assert_refused(hf_release(lease), HF_NOT_HELD, "w");
    hf_lease_free(lease);
    assert_int_equal(atomic_load(&lost.calls), 1);
}

/* G15 */
static void test_max_hold(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome lost = {0}, next;
    int64_t before = now_ns();
    hf_lease *lease =
        take(client, ASK(.name = "w", .ttl_ms = ttl(300), .max_hold_ms = 1000,
                         .flags = HF_AUTO_RENEW, .on_lost = note_outcome, .lost_arg = &lost));
    start_ask(client, ASK(.name = "w", .wait_ms = HF_FOREVER), &next);
    assert_int_equal(await_outcome(&lost), HF_LOST);
    int64_t held = passed_ms(before);
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    assert_int_equal(hf_explain(client, 1000, &sheet), HF_OK);
    assert_true(held >= sheet.stop_ms);
    assert_int_equal(await_outcome(&next), HF_OK);
    assert_true(passed_ms(before) >= sheet.stop_ms &&
                passed_ms(before) < 1000 + ACTOR_PATIENCE_MS / 2);
    hf_lease_free(lease);
    give(next.lease);
}

/* G13 */
static void test_no_loss_after_release(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome released = {0}, freed = {0}, last = {0};
    hf_lease *lease = take(client, ASK(.name = "a", .ttl_ms = ttl(150), .on_lost = note_outcome,
                                       .lost_arg = &released));
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(take(
        client, ASK(.name = "b", .ttl_ms = ttl(150), .on_lost = note_outcome, .lost_arg = &freed)));
    hf_lease *sentinel = take(
        client, ASK(.name = "c", .ttl_ms = ttl(300), .on_lost = note_outcome, .lost_arg = &last));
    await_outcome(&last); /* whatever was to come for the others would have come by now */
    assert_int_equal(atomic_load(&released.calls) + atomic_load(&freed.calls), 0);
    hf_lease_free(lease);
    hf_lease_free(sentinel);
}

/* The holder stands still while its time runs out: it has lost, and knows it as soon as it moves.
 */
static void test_stopped_holder(void **state)
{
    (void)state;
    struct actor *holder = actor_here();
    struct answer held = actor_holds(
        holder, 0, &(struct want){.name = "w", .ttl_ms = ttl(400), .flags = HF_AUTO_RENEW});
    actor_stop(holder);
    hf_lease *next = take(row_client(), ASK(.name = "w", .ttl_ms = 60000, .wait_ms = HF_FOREVER));
    assert_true(hf_lease_token(next) > held.token);
    actor_go_on(holder);
    assert_int_equal(actor_does(holder, ORDER_EXTEND, 0).status, HF_LOST);
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_NOT_HELD);
    assert_true(hf_lease_ok(next));
    assert_int_equal(see(row_client(), "w").token, hf_lease_token(next));
    give(next);
}

/* G14 */
static void test_never_revives(void **state)
{
    (void)state;
    if (!offers(NEED_BREAK))
        return;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    struct outcome lost = {0};
    hf_lease *lease = take(client, ASK(.name = "w", .ttl_ms = ttl(600), .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    int64_t before = now_ns();
    assert_int_equal(hf_break(other, "w", hf_lease_token(lease), "test"), HF_OK);
    hf_lease *next = take(other, ASK(.name = "w"));
    assert_int_equal(await_outcome(&lost), HF_LOST);
    assert_false(hf_lease_ok(lease));
    while (passed_ms(before) < 1200) { /* two ttls of renewals that do not happen */
        assert_int_equal(see(other, "w").token, hf_lease_token(next));
        nap_us(20000);
    }
    assert_int_equal(atomic_load(&lost.calls), 1);
    hf_lease_free(lease);
    give(next);
    close_client(other);
}

static void test_lost_fd(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "w", .ttl_ms = ttl(300)));
    struct pollfd fd = {.fd = hf_lease_fd(lease), .events = POLLIN};
    assert_true(fd.fd >= 0);
    assert_int_equal(hf_lease_fd(lease), fd.fd);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(poll(&fd, 1, ACTOR_PATIENCE_MS), 1);
    assert_false(hf_lease_ok(lease));
    hf_lease_free(lease);
    lease = take(client, ASK(.name = "w", .ttl_ms = ttl(300), .wait_ms = HF_FOREVER));
    while (hf_lease_ok(lease))
        nap_us(1000);
    fd.fd = hf_lease_fd(lease); /* asked for after the loss */
    assert_int_equal(poll(&fd, 1, 0), 1);
    hf_lease_free(lease);
    lease = take(client, ASK(.name = "w", .wait_ms = HF_FOREVER));
    fd.fd = hf_lease_fd(lease);
    assert_int_equal(hf_release(lease), HF_OK);
    assert_int_equal(poll(&fd, 1, 0), 0); /* given back is not lost */
    hf_lease_free(lease);
}

/* ---- Warned ---- */

struct warnings {
    _Atomic int warned, lost;
};

static void count_warnings(void *arg, const struct hf_log_event *event)
{
    struct warnings *warnings = arg;
    bool warned = strcmp(event->event, "warned") == 0;
    part_must(!warned ||
              (event->level == HF_LOG_WARN && event->token && strcmp(event->name, "w") == 0));
    atomic_fetch_add(&warnings->warned, warned);
    atomic_fetch_add(&warnings->lost, strcmp(event->event, "lost") == 0);
}

static void hold_with_log(struct actor *me, void *arg)
{
    hf_client *client;
    struct hf_client_options options = {
        .size = sizeof options, .on_log = count_warnings, .log_arg = arg};
    part_must(hf_open(engine_url(), &options, &client) == HF_OK);
    hf_lease *lease;
    part_must(hf_acquire(client, ASK(.name = "w", .ttl_ms = 3000, .flags = HF_AUTO_RENEW),
                         &lease) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_ACQUIRE, .token = hf_lease_token(lease)});
    part_awaits_go(me);
    part_says(me, &(struct answer){.what = ORDER_RELEASE, .status = hf_release(lease)});
    hf_lease_free(lease);
}

/* It stands still until two thirds of its time are over, and has a third to make up for it. */
static void test_warned(void **state)
{
    (void)state;
    struct warnings *warnings = shared_page(sizeof *warnings);
    struct actor *holder = actor_start_part(hold_with_log, warnings);
    struct answer held = actor_answer(holder, ORDER_ACQUIRE, 0);
    actor_stop(holder);
    hf_client *client = row_client();
    if (engine()->hides_left)
        nap_us(2100000); /* of 3 s: the time left cannot be seen from outside */
    while (!engine()->hides_left && see(client, "w").left_ms > 900)
        nap_us(1000);
    assert_int_equal(atomic_load(&warnings->warned), 0);
    actor_go_on(holder);
    await_count(&warnings->warned, 1);
    while (see(client, "w").left_ms < 1500) {
        assert_int_equal(see(client, "w").token, held.token);
        nap_us(1000);
    }
    actor_order(holder, ORDER_GO, 0);
    assert_int_equal(actor_answer(holder, ORDER_RELEASE, 0).status, HF_OK);
    assert_int_equal(atomic_load(&warnings->warned), 1);
    assert_int_equal(atomic_load(&warnings->lost), 0);
}

/* ---- hf_with ---- */

static int work(hf_lease *lease, void *arg)
{
    int64_t end = now_ns() + *(int64_t *)arg * 1000000;
    while (now_ns() < end && hf_lease_ok(lease))
        nap_us(1000);
    return hf_lease_ok(lease) ? 42 : 13;
}

static int be_broken(hf_lease *lease, void *arg)
{
    if (hf_break(arg, hf_lease_name(lease), hf_lease_token(lease), "test") != HF_OK)
        return 1;
    while (hf_lease_ok(lease))
        nap_us(1000);
    return 2;
}

static void test_with(void **state)
{
    (void)state;
    hf_client *client = row_client();
    int result = 0;
    int64_t work_ms = 900;
    assert_int_equal(hf_with(client, ASK(.name = "a", .ttl_ms = ttl(300)), work, &work_ms, &result),
                     HF_OK);
    assert_int_equal(result, 42); /* renewed while it ran */
    assert_int_equal(look_at(client, "a").holders, 0);
    hf_lease *held = take(client, ASK(.name = "a"));
    result = 7;
    assert_refused(hf_with(client, ASK(.name = "a"), work, &work_ms, &result), HF_BUSY, "a");
    assert_int_equal(result, 7);
    give(held);
    assert_int_equal(hf_with(client, ASK(.name = "a"), work, &(int64_t){0}, NULL), HF_OK);
    if (!offers(NEED_BREAK))
        return;
    assert_refused(hf_with(client, ASK(.name = "a"), be_broken, client, &result), HF_LOST, "a");
    assert_int_equal(result, 2);
}

static void test_sheet(void **state)
{
    (void)state;
    static const int64_t ttls[] = {1000, 10000, 30000, 60000};
    for (size_t i = 0; i < sizeof ttls / sizeof *ttls; i++) {
        struct hf_timing_sheet sheet = {.size = sizeof sheet};
        assert_int_equal(hf_explain(row_client(), ttls[i], &sheet), HF_OK);
        assert_int_equal(sheet.ttl_ms, ttls[i]);
        assert_true(0 < sheet.renew_ms && sheet.renew_ms < sheet.warn_ms &&
                    sheet.warn_ms <= sheet.stop_ms);
        assert_int_equal(sheet.stop_ms + sheet.drift_ms, sheet.ttl_ms);
        assert_true(sheet.renew_ms + 2 * sheet.op_timeout_ms < sheet.stop_ms); /* two tries fit */
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a watchdog lease outlives its ttl five times and keeps its token", test_auto_renew),
        ROW("a lease that is not renewed is lost by our own clock, once, and not early",
            test_lost_once),
        ROW("max_hold bounds the renewal, and the next in line has it then", test_max_hold),
        ROW("what was released or freed is never reported as lost", test_no_loss_after_release),
        ROW("a holder that was stopped beyond its ttl has lost, and frees nobody else's hold",
            test_stopped_holder),
        ROW("renewal never revives what was taken away", test_never_revives),
        ROW("the descriptor of a lease is readable when it is lost, and only then", test_lost_fd),
        ROW("a renewal that is late is warned of once, and then made", test_warned),
        ROW("hf_with renews while the work runs, releases after it, and tells of a loss",
            test_with),
        ROW("the timing sheet adds up, and two renewals fit", test_sheet),
    };
    return JUDGE(rows);
}
