/* local_stopped.c - a process is stopped inside a mutex of the table: whoever needs that part
 * answers at its deadline and names the process, everybody else goes on. */
#include "lib/actors.h"

#include "engines/local/shard.h"
#include "engines/local/table_ops.h"
#include "engines/local/wait_queue.h"
#include "sys/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* With this ttl one operation may take 50 ms; the rest is for a machine that is busy. */
enum {
    TTL_MS = 1000,
    OP_MS = 50,
    SLACK_MS = 400,
    SHORT_TTL_MS = 300,
    CYCLES = 1000,
    CYCLES_MS = 250
};

static uint32_t shard_of(const char *name)
{
    return shard_of_hash(resource_name_hash(name, strlen(name)));
}

/* A name whose shard is (or is not) the one of "stuck". */
static const char *find_name(bool same)
{
    static char name[2][32];
    for (int i = 0;; i++) {
        snprintf(name[same], sizeof name[same], "%s-%d", same ? "near" : "far", i);
        if ((shard_of(name[same]) == shard_of("stuck")) == same)
            return name[same];
    }
}

/* Stops inside the mutex of the shard that arg points to, and leaves it when it goes on. */
static void stop_inside(struct actor *me, void *arg)
{
    static struct table table;
    uint32_t shard = *(uint32_t *)arg;
    part_must(table_open(&table, stage_path(), 0600) == HF_OK);
    part_must(shard_lock(&table, shard, clock_boot() + NANOS_OF_MS(1000)) == HF_OK);
    raise(SIGSTOP);
    shard_unlock(&table, shard);
    part_says(me, &(struct answer){.what = ORDER_GO});
}

static struct actor *start_stopped(uint32_t shard)
{
    struct actor *a = actor_start_part(stop_inside, &shard);
    actor_await_stop(a);
    return a;
}

static void go_on(struct actor *stopped)
{
    actor_go_on(stopped);
    actor_answer(stopped, ORDER_GO, 0);
}

static void assert_blamed(const char *text, const struct actor *stopped)
{
    char process[40];
    snprintf(process, sizeof process, "process %d is stopped", (int)actor_pid(stopped));
    if (!strstr(text, process) || !strstr(text, stage_path()))
        fail_msg("\"%s\" does not say \"%s\" of %s", text, process, stage_path());
}

/* Acquires in this process; returns the status and how long it took. */
static hf_status acquire(const struct want *want, hf_lease **lease, int64_t *took_ms)
{
    struct hf_request request = request_of(want);
    int64_t from = now_ns();
    hf_status status = hf_acquire(stage_client(), &request, lease);
    *took_ms = (now_ns() - from) / 1000000;
    return status;
}

static void run_cycles(const char *name)
{
    int64_t from = now_ns(), took;
    hf_lease *lease;
    for (int i = 0; i < CYCLES; i++) {
        assert_int_equal(acquire(&(struct want){.name = name, .ttl_ms = TTL_MS}, &lease, &took),
                         HF_OK);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
    }
    assert_true(now_ns() - from < CYCLES_MS * 1000000LL);
}

/* G20 */
static void test_deadlines(void **state)
{
    (void)state;
    stage_client();
    struct actor *stopped = start_stopped(shard_of("stuck"));
    struct want want = {.name = find_name(true), .ttl_ms = TTL_MS};
    hf_lease *lease;
    int64_t took;
    assert_int_equal(acquire(&want, &lease, &took), HF_UNAVAILABLE);
    assert_blamed(hf_error_text(), stopped);
    assert_in_range(took, OP_MS, OP_MS + SLACK_MS);
    want.wait_ms = 300;
    assert_int_equal(acquire(&want, &lease, &took), HF_UNAVAILABLE);
    assert_blamed(hf_error_text(), stopped);
    assert_in_range(took, 300, 300 + OP_MS + SLACK_MS);
    run_cycles(find_name(false));
    go_on(stopped);
    want.wait_ms = 0;
    assert_int_equal(acquire(&want, &lease, &took), HF_OK);
    hf_lease_free(lease);
}

/* Those who were there before: a waiter in the queue answers at its deadline, what is held
 * elsewhere stays. */
static void test_queue_and_leases(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *waiter = actor_start();
    struct want kept = {.name = find_name(false), .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW};
    struct want stuck = {.name = "stuck", .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW};
    struct want hasty = {.name = "stuck", .ttl_ms = TTL_MS, .wait_ms = 500};
    uint64_t token = actor_holds(holder, 0, &kept).token;
    actor_holds(holder, 1, &stuck);
    actor_acquire(waiter, 0, ORDER_ACQUIRE, &hasty);
    await_sight(client, "stuck", 1, 1);
    struct actor *stopped = start_stopped(shard_of("stuck"));
    int64_t from = now_ns();
    struct answer late = actor_answer(waiter, ORDER_ACQUIRE, 0);
    assert_int_equal(late.status, HF_TIMEOUT);
    assert_blamed(late.text, stopped);
    assert_true(late.at_ns - from < (500 + OP_MS + SLACK_MS) * 1000000LL);
    struct sight seen;
    do {
        nap_us(20000);
        seen = see(client, kept.name);
        assert_int_equal(seen.token, token);
    } while (seen.since_ms < 4 * SHORT_TTL_MS);
    assert_int_equal(actor_does(holder, ORDER_LOOK, 0).status, HF_OK);
    assert_int_equal(actor_does(holder, ORDER_LOOK, 1).status, HF_LOST); /* nobody could renew it */
    go_on(stopped);
    actor_holds(waiter, 2, &(struct want){.name = "stuck", .ttl_ms = TTL_MS, .wait_ms = 2000});
    await_sight(client, "stuck", 1, 0); /* the place that was given up is gone, too */
}

static void test_registry(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *waiter = actor_start(), *victim = actor_start();
    struct want kept = {.name = "kept", .ttl_ms = SHORT_TTL_MS, .flags = HF_AUTO_RENEW};
    struct want handed = {.name = "handed", .ttl_ms = 60000, .wait_ms = HF_FOREVER};
    struct want orphan = {.name = "orphan", .ttl_ms = 60000};
    uint64_t token = actor_holds(holder, 0, &kept).token;
    actor_holds(victim, 0, &orphan);
    struct actor *stopped = start_stopped(LOCAL_REGISTRY);
    run_cycles("free");
    actor_holds(holder, 1, &handed);
    actor_acquire(waiter, 0, ORDER_ACQUIRE, &handed);
    await_sight(client, "handed", 1, 1);
    actor_does(holder, ORDER_RELEASE, 1);
    assert_int_equal(actor_answer(waiter, ORDER_ACQUIRE, 0).status, HF_OK);
    actor_kill(victim);
    actor_await_end(victim);
    actor_holds(waiter, 1, &orphan);
    hf_client *newcomer;
    assert_int_equal(hf_open(stage_url(), NULL, &newcomer), HF_UNAVAILABLE);
    assert_null(newcomer);
    assert_blamed(hf_error_text(), stopped);
    struct sight seen;
    do {
        nap_us(20000);
        seen = see(client, "kept");
        assert_int_equal(seen.token, token);
    } while (seen.since_ms < 2 * SHORT_TTL_MS);
    go_on(stopped);
    assert_int_equal(hf_open(stage_url(), NULL, &newcomer), HF_OK);
    assert_int_equal(hf_close(newcomer, 2000), HF_OK);
    assert_int_equal(actor_does(holder, ORDER_LOOK, 0).status, HF_OK);
}

/* Who closes meanwhile is not held up for longer than it said. */
static void test_close(void **state)
{
    (void)state;
    enum { CLOSE_MS = 300 };
    hf_client *client;
    hf_lease *lease;
    assert_int_equal(hf_open(stage_url(), NULL, &client), HF_OK);
    struct hf_request request = request_of(&(struct want){.name = "stuck", .ttl_ms = TTL_MS});
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    struct actor *stopped = start_stopped(shard_of("stuck"));
    int64_t from = now_ns();
    assert_int_equal(hf_close(client, CLOSE_MS), HF_IN_DOUBT);
    assert_non_null(strstr(hf_error_text(), "1 hold"));
    assert_true(now_ns() - from < (CLOSE_MS + OP_MS + SLACK_MS) * 1000000LL);
    go_on(stopped);
    int64_t took;
    assert_int_equal(acquire(&(struct want){.name = "stuck", .wait_ms = 2 * TTL_MS}, &lease, &took),
                     HF_OK);
    hf_lease_free(lease);
}

/* ---- Lists: they lock every part in turn ---- */

static void count_row(void *arg, const struct hf_row *row)
{
    (void)row;
    ++*(int *)arg;
}

/* Several parts are shut: the list has one deadline for all of them, names the first, and shows
 * nothing rather than less than all. */
static void test_list_of_stopped_parts(void **state)
{
    (void)state;
    enum { LIST_MS = 500 }; /* op_timeout of the default ttl */
    hf_client *client = stage_client();
    struct hf_page page = {.size = sizeof page, .names = 10};
    char next[HF_NAME_MAX + 1];
    int rows = 0;
    hf_lease *lease = must_acquire(client, &(struct want){.name = find_name(false)});
    struct actor *stopped[] = {start_stopped(20), start_stopped(40), start_stopped(60)};

    int64_t from = now_ns();
    assert_int_equal(hf_list(client, NULL, count_row, &rows), HF_UNAVAILABLE);
    assert_blamed(hf_error_text(), stopped[0]);
    assert_in_range((now_ns() - from) / 1000000, LIST_MS, LIST_MS + SLACK_MS);
    from = now_ns();
    assert_int_equal(hf_list_page(client, &page, count_row, &rows, next), HF_UNAVAILABLE);
    assert_blamed(hf_error_text(), stopped[0]);
    assert_in_range((now_ns() - from) / 1000000, LIST_MS, LIST_MS + SLACK_MS);
    assert_int_equal(rows, 0);

    for (unsigned i = 0; i < 3; i++)
        go_on(stopped[i]);
    assert_int_equal(hf_list(client, NULL, count_row, &rows), HF_OK);
    assert_int_equal(rows, 1);
    hf_lease_free(lease);
}

/* Holds the last part, and after it is told to go on for a moment more. */
static void leave_slowly(struct actor *me, void *arg)
{
    static struct table table;
    (void)arg;
    part_must(table_open(&table, stage_path(), 0600) == HF_OK);
    part_must(shard_lock(&table, LOCAL_SHARDS - 1, clock_boot() + NANOS_OF_MS(1000)) == HF_OK);
    raise(SIGSTOP);
    part_says(me, &(struct answer){.what = ORDER_GO});
    nap_us(OP_MS * 1000);
    shard_unlock(&table, LOCAL_SHARDS - 1);
    part_says(me, &(struct answer){.what = ORDER_GO});
}

struct slow_list {
    struct actor *stopped;
    int rows;
};

static void take_row_slowly(void *arg, const struct hf_row *row)
{
    struct slow_list *list = arg;
    (void)row;
    nap_us(4 * OP_MS * 1000);
    actor_go_on(list->stopped);
    actor_answer(list->stopped, ORDER_GO, 0);
    list->rows++;
}

/* The deadline is for waiting: a list of many names takes the time that it takes, and a part that
 * is shut for a moment after that is waited for. */
static void test_list_that_takes_long(void **state)
{
    (void)state;
    static struct table table;
    hf_lease *lease = must_acquire(stage_client(), &(struct want){.name = "listed"});
    assert_true(shard_of("listed") < LOCAL_SHARDS - 1);
    struct slow_list list = {.stopped = actor_start_part(leave_slowly, NULL)};
    actor_await_stop(list.stopped);
    assert_int_equal(table_open(&table, stage_path(), 0600), HF_OK);

    nanos now = clock_boot();
    struct admin_target all = {
        .which = LIST_PREFIX, .name = "", .until = now + NANOS_OF_MS(3 * OP_MS)};
    assert_int_equal(table_list(&table, &all, now, take_row_slowly, &list), HF_OK);
    assert_int_equal(list.rows, 1);
    actor_answer(list.stopped, ORDER_GO, 0);
    table_close(&table);
    hf_lease_free(lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("calls that need a part in which a process is stopped answer at their deadline and "
               "name it",
               test_deadlines),
        STAGED("a waiter there answers at its deadline and leases elsewhere are renewed",
               test_queue_and_leases),
        STAGED("clients that were there before go on while one is stopped inside the registry",
               test_registry),
        STAGED("closing is bounded while a process is stopped inside the part of a hold",
               test_close),
        STAGED("a list over several such parts has one deadline for all and names the first",
               test_list_of_stopped_parts),
        STAGED("a list that took long still waits for a part that is shut for a moment",
               test_list_that_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
