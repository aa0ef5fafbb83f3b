/* callback_calls.c - the ways to call: blocking, asynchronous, cancelled, from inside callbacks.
 * Usage: calling [CANCELS]. Starts no process, so that it can run under TSan. */
#include "lib/engines.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RELAYS = 50 };

static int cancels = 20000;

#define PATIENT(...) ASK(.wait_ms = HF_FOREVER, __VA_ARGS__)

/* ---- Blocking and asynchronous ---- */

/* G31 */
static void test_done_once(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct outcome granted, busy, timed;
    start_ask(client, ASK(.name = "a"), &granted);
    assert_int_equal(await_outcome(&granted), HF_OK);
    assert_int_equal(atomic_load(&granted.token), hf_lease_token(granted.lease));
    start_ask(client, ASK(.name = "a"), &busy);
    assert_int_equal(await_outcome(&busy), HF_BUSY);
    start_ask(client, ASK(.name = "a", .wait_ms = 100), &timed);
    assert_int_equal(await_outcome(&timed), HF_TIMEOUT);
    assert_refused(hf_cancel(granted.lease), HF_NOT_HELD, "a");
    assert_refused(hf_release(busy.lease), HF_NOT_HELD, "a");
    assert_int_equal(hf_lease_token(timed.lease), 0);
    hf_lease_free(busy.lease);
    hf_lease_free(timed.lease);
    give(granted.lease);
    assert_int_equal(granted.calls + busy.calls + timed.calls, 3);
}

static void never_called(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_refused_never_calls(void **state)
{
    (void)state;
    hf_client *client = row_client();
    _Atomic int calls = 0;
    hf_lease *lease = (hf_lease *)(uintptr_t)1;
    assert_refused(hf_acquire_start(client, ASK(.name = ""), never_called, &calls, &lease),
                   HF_INVALID, "name");
    assert_null(lease);
    struct outcome after;
    start_ask(client, ASK(.name = "a"), &after);
    await_outcome(&after);
    assert_int_equal(atomic_load(&calls), 0);
    give(after.lease);
}

/* ---- Cancelling ---- */

static void *cancel_it(void *arg)
{
    return hf_cancel(arg) == HF_OK ? arg : NULL;
}

static void test_cancel_from_another_thread(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "a"));
    struct outcome waiter;
    start_ask(client, PATIENT(.name = "a"), &waiter);
    await_sight(client, "a", 1, 1);
    pthread_t thread;
    void *cancelled;
    assert_int_equal(pthread_create(&thread, NULL, cancel_it, waiter.lease), 0);
    pthread_join(thread, &cancelled);
    assert_ptr_equal(cancelled, waiter.lease);
    assert_int_equal(await_outcome(&waiter), HF_CANCELLED);
    assert_refused(hf_cancel(waiter.lease), HF_NOT_HELD, "a");
    assert_int_equal(look_at(client, "a").waiters, 0);
    hf_lease_free(waiter.lease);
    give(held);
}

struct duel {
    hf_client *client;
    hf_lease *held;
    pthread_barrier_t start, over;
    bool stop;
    int head_start;
};

/* One side gives the lock to the waiter, the other side cancels it. */
static void *release_at_the_bell(void *arg)
{
    struct duel *duel = arg;
    for (;;) {
        pthread_barrier_wait(&duel->start);
        if (duel->stop)
            return NULL;
        hf_lease_free(duel->held);
        pthread_barrier_wait(&duel->over);
    }
}

static void fight(struct duel *duel, int granted[2])
{
    struct outcome waiter;
    duel->held = take(duel->client, ASK(.name = "a", .wait_ms = 1000));
    start_ask(duel->client, PATIENT(.name = "a"), &waiter);
    pthread_barrier_wait(&duel->start);
    for (int64_t until = now_ns() + duel->head_start++ % 32 * 1000; now_ns() < until;) {
        /* A few microseconds, so that now one is first, now the other. */
    }
    hf_status cancelled = hf_cancel(waiter.lease);
    pthread_barrier_wait(&duel->over);
    hf_status outcome = await_outcome(&waiter);
    assert_true(outcome == HF_OK || (outcome == HF_CANCELLED && cancelled == HF_OK));
    assert_true(cancelled == HF_OK || cancelled == HF_NOT_HELD);
    granted[outcome == HF_OK]++;
    if (outcome == HF_OK)
        give(waiter.lease);
    else
        hf_lease_free(waiter.lease);
    assert_int_equal(atomic_load(&waiter.calls), 1);
}

static void test_cancel_against_completion(void **state)
{
    (void)state;
    struct duel duel = {.client = row_client()};
    int granted[2] = {0};
    pthread_t thread;
    pthread_barrier_init(&duel.start, NULL, 2);
    pthread_barrier_init(&duel.over, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, release_at_the_bell, &duel), 0);
    for (int i = 0; i < cancels; i++)
        fight(&duel, granted);
    duel.stop = true;
    pthread_barrier_wait(&duel.start);
    pthread_join(thread, NULL);
    print_message("# %d cancelled, %d granted\n", granted[0], granted[1]);
    struct view seen = look_at(duel.client, "a");
    assert_int_equal(seen.holders + seen.waiters, 0);
    struct hf_counters counters = {.size = sizeof counters};
    assert_int_equal(hf_client_counters(duel.client, &counters), HF_OK);
    assert_int_equal(counters.cancelled, granted[0]);
    assert_int_equal(counters.granted, cancels + granted[1]);
    assert_int_equal(counters.released, counters.granted);
    pthread_barrier_destroy(&duel.start);
    pthread_barrier_destroy(&duel.over);
}

/* ---- Callbacks ---- */

struct relay {
    hf_client *client;
    hf_lease *victim;
    _Atomic int done, lost, logged, cancelled, wrong;
};

/* Callbacks must not fail the test themselves: they run on another thread. */
static void must(struct relay *relay, bool good, int line)
{
    if (!good && atomic_fetch_add(&relay->wrong, 1) == 0)
        print_error("line %d: %s\n", line, hf_error_text());
}
#define MUST(condition) must(relay, condition, __LINE__)

static void note_victim(hf_lease *lease, hf_status outcome, void *arg)
{
    struct relay *relay = arg;
    MUST(outcome == HF_CANCELLED || outcome == HF_CLOSED); /* the last one */
    hf_lease_free(lease);
    atomic_fetch_add(&relay->cancelled, 1);
}

static void relay_done(hf_lease *lease, hf_status outcome, void *arg);

/* Cancels the wait that was begun the last time, and begins the next one and the next grant. */
static void do_it_all(struct relay *relay)
{
    hf_lease *ignored, *now;
    if (relay->victim)
        MUST(hf_cancel(relay->victim) == HF_OK);
    MUST(hf_acquire(relay->client, ASK(.name = "at once"), &now) == HF_OK);
    hf_lease_free(now);
    MUST(hf_acquire_start(relay->client, PATIENT(.name = "blocked"), note_victim, relay,
                          &relay->victim) == HF_OK);
    if (atomic_load(&relay->done) < RELAYS)
        MUST(hf_acquire_start(relay->client, PATIENT(.name = "relay", .ttl_ms = turn_ttl_ms()),
                              relay_done, relay, &ignored) == HF_OK);
}

static void relay_lost(hf_lease *lease, hf_status why, void *arg)
{
    struct relay *relay = arg;
    MUST(why == HF_LOST && !hf_lease_ok(lease) && hf_extend(lease, 0) == HF_LOST);
    hf_lease_free(lease);
    do_it_all(relay);
    atomic_fetch_add(&relay->lost, 1);
}

static void relay_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct relay *relay = arg;
    int done = atomic_fetch_add(&relay->done, 1) + 1;
    MUST(outcome == HF_OK);
    hf_lease *brief;
    int every = ttl(100) > 500 ? 25 : 5; /* each costs a ttl */
    if (done % every == 0) {             /* the next one comes from inside on_lost */
        hf_lease_free(lease);
        MUST(hf_acquire(
                 relay->client,
                 ASK(.name = "brief", .ttl_ms = ttl(100), .on_lost = relay_lost, .lost_arg = relay),
                 &brief) == HF_OK);
        return;
    }
    do_it_all(relay);
    MUST(hf_cancel(lease) == HF_NOT_HELD);
    hf_lease_free(lease);
}

/* The log calls back, too: here it takes and frees a lock for each line about the relay. */
static void relay_log(void *arg, const struct hf_log_event *event)
{
    struct relay *relay = arg;
    hf_lease *lease, *waiter;
    atomic_fetch_add(&relay->logged, 1);
    if (!relay->client || !event->name || strcmp(event->name, "relay") != 0 ||
        strcmp(event->event, "granted") != 0)
        return;
    MUST(hf_acquire(relay->client, ASK(.name = "from the log"), &lease) == HF_OK);
    MUST(hf_acquire_start(relay->client, PATIENT(.name = "blocked"), note_victim, relay, &waiter) ==
         HF_OK);
    MUST(hf_cancel(waiter) == HF_OK);
    hf_lease_free(lease);
}

/* G31 */
static void test_everything_inside_callbacks(void **state)
{
    (void)state;
    struct relay relay = {0};
    struct hf_client_options options = {
        .size = sizeof options, .on_log = relay_log, .log_arg = &relay};
    hf_client *client = open_client(NULL, &options);
    relay.client = client;
    hf_lease *blocked = take(row_client(), ASK(.name = "blocked", .ttl_ms = 60000)), *first;
    assert_int_equal(hf_acquire_start(client, PATIENT(.name = "relay", .ttl_ms = turn_ttl_ms()),
                                      relay_done, &relay, &first),
                     HF_OK);
    await_count(&relay.done, RELAYS);
    await_count(&relay.lost,
                RELAYS / (ttl(100) > 500 ? 25 : 5)); /* the last thing that happens by itself */
    close_client(client);
    give(blocked);
    assert_int_equal(atomic_load(&relay.wrong), 0);
    assert_true(atomic_load(&relay.logged) > 3 * RELAYS);
    struct view seen = look_at(row_client(), "blocked");
    assert_int_equal(seen.holders + seen.waiters, 0);
}

/* ---- Functions that are shown something ---- */

/* What such a function calls in turn. `depth` keeps it from calling itself for ever. */
struct visitor {
    hf_client *client;
    hf_lease *held;
    struct outcome cancelled;
    int calls, depth;
};

static void call_everything(struct visitor *v);

static void visit_row(void *arg, const struct hf_row *row)
{
    assert_true(row->name[0]);
    call_everything(arg);
}

static void visit_server(void *arg, const struct hf_server_state *standing)
{
    assert_true(standing->where[0]);
    if (standing->holder)
        assert_true(standing->holder->name[0]);
    call_everything(arg);
}

static void visit_finding(void *arg, const struct hf_finding *finding)
{
    assert_true(finding->what[0] && finding->text[0]);
    call_everything(arg);
}

/* Ends the watch at the first call; that changes of "made" were told is not the question here. */
static bool visit_change(void *arg, const struct hf_log_event *event)
{
    (void)event;
    call_everything(arg);
    return false;
}

static void show_everything(struct visitor *v)
{
    assert_int_equal(hf_show(v->client, "held", visit_row, v), HF_OK);
    assert_int_equal(hf_list(v->client, "held", visit_row, v), HF_OK);
    hf_status history = hf_history(v->client, "past", visit_row, v);
    assert_true(history == HF_OK || history == HF_UNSUPPORTED);
    assert_int_equal(hf_show_servers(v->client, "held", visit_server, v), HF_OK);
    assert_int_equal(hf_diagnose(v->client, visit_finding, v), HF_OK);
}

static void call_everything(struct visitor *v)
{
    struct hf_counters counters = {.size = sizeof counters};
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    hf_lease *waiter;
    v->calls++;
    if (v->depth)
        return;
    v->depth++;
    give(take(v->client, ASK(.name = "made")));
    refuse(v->client, ASK(.name = "held"), HF_BUSY, "held");
    assert_int_equal(
        hf_acquire_start(v->client, PATIENT(.name = "held"), note_outcome, &v->cancelled, &waiter),
        HF_OK);
    assert_int_equal(hf_cancel(waiter), HF_OK);
    hf_lease_free(waiter);
    assert_int_equal(hf_extend(v->held, 0), HF_OK);
    assert_true(hf_lease_ok(v->held));
    assert_int_equal(hf_client_counters(v->client, &counters), HF_OK);
    assert_int_equal(hf_explain(v->client, 1000, &sheet), HF_OK);
    show_everything(v);
    v->depth--;
}

/* G31 */
static void test_everything_inside_sights(void **state)
{
    (void)state;
    struct visitor v = {.client = open_client("history=3", NULL)};
    give(take(v.client, ASK(.name = "past")));
    v.held = take(v.client, ASK(.name = "held"));
    show_everything(&v);
    assert_int_equal(hf_watch(v.client, "", visit_change, &v), HF_OK);
    assert_true(v.calls > 3);
    give(v.held);
    close_client(v.client);
}

/* ---- The application's own mutex ---- */

struct application {
    pthread_mutex_t mutex;
    _Atomic int entered;
};

static void enter_mutex(hf_lease *lease, hf_status outcome, void *arg)
{
    struct application *app = arg;
    (void)lease, (void)outcome;
    pthread_mutex_lock(&app->mutex);
    atomic_fetch_add(&app->entered, 1);
    pthread_mutex_unlock(&app->mutex);
}

/* The caller holds its mutex in a blocking call, while a callback wants the same mutex: the call
 * must end even so. */
static void test_callback_wants_the_callers_mutex(void **state)
{
    (void)state;
    hf_client *client = row_client(), *other = open_client(NULL, NULL);
    struct application app = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    hf_lease *held = take(other, ASK(.name = "a", .ttl_ms = ttl(500))), *async;
    hf_lease *brief = take(client, ASK(.name = "c", .ttl_ms = brief_ttl_ms(),
                                       .on_lost = enter_mutex, .lost_arg = &app));
    pthread_mutex_lock(&app.mutex);
    assert_int_equal(hf_acquire_start(client, ASK(.name = "b"), enter_mutex, &app, &async), HF_OK);
    hf_lease *mine = take(client, PATIENT(.name = "a")); /* until the other's time is over */
    assert_int_equal(hf_extend(mine, 0), HF_OK);
    assert_int_equal(hf_release(mine), HF_OK);
    assert_int_equal(atomic_load(&app.entered), 0);
    pthread_mutex_unlock(&app.mutex);
    await_count(&app.entered, 2);
    hf_lease_free(mine);
    hf_lease_free(brief);
    hf_lease_free(held);
    hf_lease_free(async);
    close_client(other);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cancels = atoi(argv[1]);
    const struct CMUnitTest rows[] = {
        ROW("a started request calls back once with its outcome", test_done_once),
        ROW("a start that is refused never calls back", test_refused_never_calls),
        ROW("a wait is cancelled by any thread, once, and leaves no place in the queue",
            test_cancel_from_another_thread),
        ROW("cancelling against completion has one outcome each and loses no permit",
            test_cancel_against_completion),
        ROW("every callback may free, cancel and acquire again", test_everything_inside_callbacks),
        ROW("a function that is shown holders, servers, changes or findings may call everything "
            "that does not wait",
            test_everything_inside_sights),
        ROW("a callback that takes the mutex its blocking caller holds does not deadlock",
            test_callback_wants_the_callers_mutex),
    };
    return JUDGE(rows);
}
