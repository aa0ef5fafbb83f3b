/* start_calls.c - what bindings are made of: calls that only start (hf_release_start, hf_list_start
 * and others), callbacks that run in the caller's own loop (own_callbacks), waits that a descriptor
 * ends (cancel_fd), who is in the way (hf_error_holder), and renewal that can be switched. Starts
 * no process, so that it can run under TSan. */
#include "lib/engines.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 50, THREADS = 4, LOOP_TTL_MS = 400, LOOP_MS = 1, MANY_ASKS = 600 };

static void start_release(hf_lease *lease, struct outcome *outcome)
{
    *outcome = (struct outcome){.status = -1, .lease = lease};
    if (hf_release_start(lease, note_outcome, outcome) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static void start_extend(hf_lease *lease, int64_t ttl_ms, struct outcome *outcome)
{
    *outcome = (struct outcome){.status = -1, .lease = lease};
    if (hf_extend_start(lease, ttl_ms, note_outcome, outcome) != HF_OK)
        fail_msg("%s", hf_error_text());
}

static void sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- Releases ---- */

static void test_release(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "a"));
    struct outcome released;
    start_release(lease, &released);
    assert_false(hf_lease_ok(lease));
    assert_int_equal(await_outcome(&released), HF_OK);
    give(take(client, ASK(.name = "a")));
    assert_int_equal(atomic_load(&released.calls), 1);
    hf_lease_free(lease);
}

static void test_release_hands_over(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "a"));
    struct outcome waiter, released;
    start_ask(client, ASK(.name = "a", .wait_ms = HF_FOREVER), &waiter);
    await_sight(client, "a", 1, 1);
    start_release(lease, &released);
    assert_int_equal(await_outcome(&waiter), HF_OK);
    assert_int_equal(await_outcome(&released), HF_OK);
    hf_lease_free(lease);
    give(waiter.lease);
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
    hf_lease *lease = take(client, ASK(.name = "a"));
    assert_refused(hf_extend_start(lease, 1, never_called, &calls), HF_INVALID, "ttl_ms");
    assert_refused(hf_extend_start(lease, 0, NULL, &calls), HF_INVALID, "done");
    assert_refused(hf_release_start(lease, NULL, &calls), HF_INVALID, "done");
    assert_refused(hf_release_start(NULL, never_called, &calls), HF_INVALID, "lease");
    assert_refused(hf_extend_start(NULL, 0, never_called, &calls), HF_INVALID, "lease");
    assert_int_equal(hf_release(lease), HF_OK);
    assert_refused(hf_release_start(lease, never_called, &calls), HF_NOT_HELD, "a");
    assert_refused(hf_extend_start(lease, 0, never_called, &calls), HF_NOT_HELD, "a");
    hf_lease_free(lease);

    struct outcome last;
    start_ask(client, ASK(.name = "b"), &last);
    await_outcome(&last);
    assert_int_equal(atomic_load(&calls), 0);
    give(last.lease);
}

static void test_free_behind_release(void **state)
{
    (void)state;
    hf_client *client = row_client();
    for (int i = 0; i < ROUNDS; i++) {
        hf_lease *lease = take(client, ASK(.name = "a", .wait_ms = 5000));
        struct outcome released;
        start_release(lease, &released);
        hf_lease_free(lease);
        assert_int_equal(await_outcome(&released), HF_OK);
        assert_int_equal(atomic_load(&released.calls), 1);
    }
}

/* ---- Extends ---- */

static void test_extend(void **state)
{
    (void)state;
    hf_lease *lease = take(row_client(), ASK(.name = "a", .ttl_ms = 2000));
    struct outcome extended;
    start_extend(lease, 20000, &extended);
    assert_int_equal(await_outcome(&extended), HF_OK);
    assert_true(hf_lease_left_ms(lease) > 10000);
    start_extend(lease, 0, &extended);
    assert_int_equal(await_outcome(&extended), HF_OK);
    assert_int_equal(atomic_load(&extended.calls), 1);
    give(lease);
}

/* Each ends once: the extend with its own outcome or with HF_NOT_HELD, the release with HF_OK. */
static void test_release_behind_extend(void **state)
{
    (void)state;
    hf_client *client = row_client();
    for (int i = 0; i < ROUNDS; i++) {
        hf_lease *lease = take(client, ASK(.name = "a", .wait_ms = 5000));
        struct outcome extended, released;
        start_extend(lease, 0, &extended);
        start_release(lease, &released);
        hf_status status = await_outcome(&extended);
        assert_true(status == HF_OK || status == HF_NOT_HELD);
        assert_int_equal(await_outcome(&released), HF_OK);
        assert_int_equal(atomic_load(&extended.calls), 1);
        hf_lease_free(lease);
    }
}

/* ---- Threads and closing ---- */

static void *cycle(void *client)
{
    char name[16];
    snprintf(name, sizeof name, "%lx", (unsigned long)pthread_self() & 0xffffff);
    for (int i = 0; i < ROUNDS; i++) {
        struct outcome extended, released;
        hf_lease *lease = take(client, ASK(.name = name, .wait_ms = 5000));
        start_extend(lease, 0, &extended);
        await_outcome(&extended);
        start_release(lease, &released);
        hf_lease_free(lease);
        if (await_outcome(&released) != HF_OK)
            return client;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, cycle, row_client()), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
}

/* Without any time hf_close may not hear the reply; `done` still runs, once. */
static void test_close_at_once(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct hf_client_options options = {.size = sizeof options, .own_callbacks = own};
        struct outcome extended, released;
        hf_client *client = open_client(NULL, &options);
        hf_lease *lease = take(client, ASK(.name = "a", .wait_ms = 5000));
        start_extend(lease, 0, &extended);
        start_release(lease, &released);
        hf_status closed = hf_close(client, 0);
        assert_true(closed == HF_OK || closed == HF_IN_DOUBT);
        assert_int_equal(atomic_load(&extended.calls), 1);
        assert_int_equal(atomic_load(&released.calls), 1);
        assert_true(released.status == HF_OK || released.status == HF_IN_DOUBT);
    }
}

/* ---- Callbacks in the caller's own loop ---- */

static hf_client *open_own(const struct hf_client_options *more)
{
    struct hf_client_options options = {.size = sizeof options};
    if (more)
        options = *more;
    options.own_callbacks = true;
    return open_client(NULL, &options);
}

static void loop_until(hf_client *client, _Atomic int *word)
{
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; !atomic_load(word);) {
        struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
        if (poll(&fd, 1, ACTOR_PATIENCE_MS) != 1 || now_ns() > end)
            fail_msg("the descriptor does not become readable");
        assert_int_equal(hf_process(client), HF_OK);
    }
}

struct seen_thread {
    _Atomic int calls;
    pthread_t thread;
};

static void note_thread(hf_lease *lease, hf_status outcome, void *arg)
{
    struct seen_thread *seen = arg;
    (void)lease, (void)outcome;
    seen->thread = pthread_self();
    atomic_fetch_add(&seen->calls, 1);
}

static void note_log(void *arg, const struct hf_log_event *event)
{
    struct seen_thread *seen = arg;
    (void)event;
    seen->thread = pthread_self();
    atomic_fetch_add(&seen->calls, 1);
}

static void test_own_thread(void **state)
{
    (void)state;
    struct seen_thread acquired = {0}, released = {0}, logged = {0};
    hf_client *client = open_own(&(struct hf_client_options){
        .size = sizeof(struct hf_client_options), .on_log = note_log, .log_arg = &logged});
    hf_lease *lease;
    assert_int_equal(hf_timeout_ms(client), -1);
    assert_int_equal(hf_acquire_start(client, ASK(.name = "a"), note_thread, &acquired, &lease),
                     HF_OK);
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, ACTOR_PATIENCE_MS), 1);
    assert_int_equal(atomic_load(&acquired.calls), 0); /* nowhere else than in hf_process */
    loop_until(client, &acquired.calls);
    loop_until(client, &logged.calls);

    assert_int_equal(hf_release_start(lease, note_thread, &released), HF_OK);
    loop_until(client, &released.calls);
    assert_true(pthread_equal(acquired.thread, pthread_self()));
    assert_true(pthread_equal(released.thread, pthread_self()));
    assert_true(pthread_equal(logged.thread, pthread_self()));
    hf_lease_free(lease);
    close_client(client);
}

/* The loop does not run for three ttls. The sleep is the blocked loop itself. */
static void test_blocked_loop_keeps_lease(void **state)
{
    (void)state;
    hf_client *client = open_own(NULL);
    struct outcome lost = {.status = -1}, waiter;
    hf_lease *lease =
        take(client, ASK(.name = "a", .ttl_ms = ttl(LOOP_TTL_MS), .flags = HF_AUTO_RENEW,
                         .on_lost = note_outcome, .lost_arg = &lost));
    start_ask(row_client(), ASK(.name = "a", .wait_ms = 3 * LOOP_TTL_MS), &waiter);
    sleep_ms(3 * LOOP_TTL_MS);
    assert_int_equal(await_outcome(&waiter), HF_TIMEOUT);
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_process(client), HF_OK);
    assert_int_equal(atomic_load(&lost.calls), 0);
    hf_lease_free(waiter.lease);
    give(lease);
    close_client(client);
}

/* The loop reads its own replies; then it submits without ever polling, so that there is always a
 * reply that it might come for. The background thread must not leave the renewals to it. */
static void test_loop_that_only_submits(void **state)
{
    (void)state;
    static struct outcome asked[MANY_ASKS];
    hf_client *client = open_own(NULL);
    struct outcome lost = {.status = -1}, waiter, released;
    assert_true(hf_fd(client) >= 0);
    hf_lease *lease =
        take(client, ASK(.name = "a", .ttl_ms = ttl(LOOP_TTL_MS), .flags = HF_AUTO_RENEW,
                         .on_lost = note_outcome, .lost_arg = &lost));
    for (int i = 0; i < ROUNDS; i++) {
        start_ask(client, ASK(.name = "b", .wait_ms = 5000), &asked[0]);
        loop_until(client, &asked[0].calls);
        assert_int_equal(asked[0].status, HF_OK);
        start_release(asked[0].lease, &released);
        loop_until(client, &released.calls);
        hf_lease_free(asked[0].lease);
    }

    start_ask(row_client(), ASK(.name = "a", .wait_ms = 3 * LOOP_TTL_MS), &waiter);
    int64_t end = now_ns() + 3 * (int64_t)LOOP_TTL_MS * 1000000;
    int asks = 0;
    for (; asks < MANY_ASKS && now_ns() < end; asks++) {
        start_ask(client, ASK(.name = "b"), &asked[asks]);
        hf_lease_free(asked[asks].lease);
        sleep_ms(LOOP_MS);
    }
    sleep_ms((int)((end > now_ns() ? end - now_ns() : 0) / 1000000));
    assert_int_equal(await_outcome(&waiter), HF_TIMEOUT);
    assert_true(hf_lease_ok(lease));
    for (int i = 0; i < asks; i++)
        loop_until(client, &asked[i].calls);
    assert_int_equal(atomic_load(&lost.calls), 0);
    hf_lease_free(waiter.lease);
    give(lease);
    close_client(client);
}

/* The background thread sleeps until the timer of a request far away. Nobody polls the loop, so it
 * must be told that a reply is left to the loop, and read it soon. */
static void test_loop_that_does_not_come(void **state)
{
    (void)state;
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    hf_client *client = open_own(NULL);
    struct outcome first, asked;
    assert_true(hf_fd(client) >= 0);
    assert_int_equal(hf_explain(client, 60000, &sheet), HF_OK);
    start_ask(client, ASK(.name = "a", .ttl_ms = 60000, .wait_ms = 5000), &first);
    loop_until(client, &first.calls); /* the connection is up */
    hf_lease_free(first.lease);
    sleep_ms(100);

    int64_t begun = now_ns(), patience = sheet.op_timeout_ms * 1000000 / 2;
    start_ask(client, ASK(.name = "b", .ttl_ms = 60000), &asked);
    while (!hf_lease_token(asked.lease) && now_ns() - begun < patience)
        sleep_ms(LOOP_MS);
    assert_true(hf_lease_token(asked.lease));
    assert_int_equal(atomic_load(&asked.calls), 0);
    loop_until(client, &asked.calls);
    give(asked.lease);
    close_client(client);
}

/* What is held back is sent by hf_flush, and without it soon. */
static void test_batch(void **state)
{
    (void)state;
    static struct outcome asked[ROUNDS], released[ROUNDS];
    hf_client *client = open_own(NULL);
    assert_true(hf_fd(client) >= 0);
    for (int flushes = 0; flushes < 2; flushes++) {
        assert_int_equal(hf_batch(client), HF_OK);
        for (int i = 0; i < ROUNDS; i++) {
            char name[16];
            snprintf(name, sizeof name, "b%d", i);
            start_ask(client, ASK(.name = name, .wait_ms = 5000), &asked[i]);
        }
        if (flushes)
            assert_int_equal(hf_flush(client), HF_OK);
        for (int i = 0; i < ROUNDS; i++) {
            loop_until(client, &asked[i].calls);
            assert_int_equal(asked[i].status, HF_OK);
            start_release(asked[i].lease, &released[i]);
        }
        for (int i = 0; i < ROUNDS; i++) {
            loop_until(client, &released[i].calls);
            hf_lease_free(asked[i].lease);
        }
    }
    close_client(client);
}

/* The background thread gives up the rest of a group, although the loop does not run. */
static void test_group_loss_needs_no_loop(void **state)
{
    (void)state;
    if (!offers(NEED_BREAK))
        return;
    hf_client *client = open_own(NULL);
    struct outcome lost = {.status = -1};
    const struct hf_request *requests[2] = {
        ASK(.name = "a", .ttl_ms = ttl(LOOP_TTL_MS)),
        ASK(.name = "b", .ttl_ms = 60000, .on_lost = note_outcome, .lost_arg = &lost),
    };
    hf_lease *leases[2];
    assert_int_equal(hf_acquire_many(client, requests, 2, 5000, leases), HF_OK);
    assert_int_equal(hf_break(row_client(), "a", hf_lease_token(leases[0]), "test"), HF_OK);
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; hf_lease_ok(leases[1]);) {
        assert_true(now_ns() < end);
        sleep_ms(LOOP_MS);
    }
    assert_int_equal(atomic_load(&lost.calls), 0);
    loop_until(client, &lost.calls);
    assert_int_equal(lost.status, HF_LOST);
    hf_lease_free(leases[0]);
    hf_lease_free(leases[1]);
    close_client(client);
}

static void free_in_done(hf_lease *lease, hf_status outcome, void *arg)
{
    assert_int_equal(outcome, HF_OK);
    hf_lease_free(lease);
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* Grant and loss are both due when hf_process is called. */
static void test_freed_is_not_lost(void **state)
{
    (void)state;
    hf_client *client = open_own(NULL);
    _Atomic int done = 0;
    struct outcome lost = {.status = -1};
    hf_lease *lease;
    assert_int_equal(hf_acquire_start(client,
                                      ASK(.name = "a", .ttl_ms = ttl(500), /* it is seen before */
                                          .on_lost = note_outcome, .lost_arg = &lost),
                                      free_in_done, &done, &lease),
                     HF_OK);
    await_sight(client, "a", 1, 0);
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; hf_lease_ok(lease);) {
        assert_true(now_ns() < end);
        sleep_ms(LOOP_MS);
    }
    loop_until(client, &done);
    assert_int_equal(hf_process(client), HF_OK);
    assert_int_equal(atomic_load(&lost.calls), 0);
    close_client(client);
}

static void test_close_runs_the_rest(void **state)
{
    (void)state;
    hf_client *client = open_own(NULL);
    hf_lease *held = take(row_client(), ASK(.name = "a"));
    struct outcome waiter, granted;
    start_ask(client, ASK(.name = "a", .wait_ms = HF_FOREVER), &waiter);
    start_ask(client, ASK(.name = "b"), &granted);
    close_client(client);
    assert_int_equal(atomic_load(&waiter.calls), 1);
    assert_int_equal(waiter.status, HF_CLOSED);
    assert_int_equal(atomic_load(&granted.calls), 1);
    give(held);
}

/* ---- List, show and close that only start ---- */

struct rows_seen {
    _Atomic int calls;
    hf_status status;
    size_t count;
    char first[HF_NAME_MAX + 1], last[HF_NAME_MAX + 1];
    pthread_t thread;
};

static void note_rows(void *arg, hf_status outcome, const struct hf_row *rows, size_t count)
{
    struct rows_seen *seen = arg;
    seen->status = outcome;
    seen->count = count;
    seen->thread = pthread_self();
    if (count) {
        snprintf(seen->first, sizeof seen->first, "%s", rows[0].name);
        snprintf(seen->last, sizeof seen->last, "%s", rows[count - 1].name);
    }
    atomic_fetch_add(&seen->calls, 1);
}

static void see_nothing(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

static bool can_list(hf_client *client)
{
    hf_status status = hf_list(client, NULL, see_nothing, NULL);
    assert_true(status == HF_OK || status == HF_UNSUPPORTED);
    return status == HF_OK;
}

static void test_list_start(void **state)
{
    (void)state;
    hf_client *client = row_client();
    if (!can_list(client))
        return;
    hf_lease *a = take(client, ASK(.name = "x:a")), *b = take(client, ASK(.name = "x:b"));
    struct rows_seen listed = {0}, shown = {0}, nobody = {0};
    assert_int_equal(hf_list_start(client, "x:", note_rows, &listed), HF_OK);
    assert_int_equal(hf_show_start(client, "x:b", note_rows, &shown), HF_OK);
    assert_int_equal(hf_show_start(client, "y", note_rows, &nobody), HF_OK);
    await_count(&listed.calls, 1);
    await_count(&shown.calls, 1);
    await_count(&nobody.calls, 1);
    assert_int_equal(listed.status, HF_OK);
    assert_int_equal(listed.count, 2);
    assert_string_equal(listed.first, "x:a");
    assert_string_equal(listed.last, "x:b");
    assert_int_equal(shown.count, 1);
    assert_string_equal(shown.first, "x:b");
    assert_int_equal(nobody.status, HF_OK);
    assert_int_equal(nobody.count, 0);
    assert_refused(hf_list_start(client, NULL, NULL, NULL), HF_INVALID, "done");
    assert_refused(hf_show_start(client, "", note_rows, &nobody), HF_INVALID, "name");
    assert_int_equal(atomic_load(&nobody.calls), 1);
    give(a);
    give(b);
}

static void test_list_start_in_loop(void **state)
{
    (void)state;
    if (!can_list(row_client()))
        return;
    hf_client *client = open_own(NULL);
    hf_lease *lease = take(client, ASK(.name = "a"));
    struct rows_seen listed = {0}, late = {0};
    assert_int_equal(hf_list_start(client, NULL, note_rows, &listed), HF_OK);
    loop_until(client, &listed.calls);
    assert_true(pthread_equal(listed.thread, pthread_self()));
    assert_int_equal(listed.count, 1);
    give(lease);
    assert_int_equal(hf_list_start(client, NULL, note_rows, &late), HF_OK);
    close_client(client);
    assert_int_equal(atomic_load(&late.calls), 1);
}

struct close_seen {
    _Atomic int calls;
    hf_status status;
};

static void note_closed(void *arg, hf_status outcome)
{
    struct close_seen *seen = arg;
    seen->status = outcome;
    atomic_fetch_add(&seen->calls, 1);
}

static void test_close_start(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct hf_client_options options = {.size = sizeof options, .own_callbacks = own};
        hf_client *client = open_client(NULL, &options);
        struct close_seen closed = {0};
        struct outcome waiter;
        hf_lease *other = take(row_client(), ASK(.name = "b"));
        take(client, ASK(.name = "a"));
        start_ask(client, ASK(.name = "b", .wait_ms = HF_FOREVER), &waiter);
        assert_refused(hf_close_start(client, 5000, NULL, NULL), HF_INVALID, "done");
        assert_int_equal(hf_close_start(client, 5000, note_closed, &closed), HF_OK);
        await_count(&closed.calls, 1);
        assert_int_equal(closed.status, HF_OK);
        assert_int_equal(atomic_load(&waiter.calls), 1);
        assert_int_equal(waiter.status, HF_CLOSED);
        give(take(row_client(), ASK(.name = "a")));
        give(other);
    }
}

/* ---- Waits that a descriptor ends ---- */

static void *write_later(void *arg)
{
    static const uint64_t one = 1;
    sleep_ms(50);
    if (write(*(int *)arg, &one, sizeof one) < 0)
        return arg;
    return NULL;
}

static void test_cancel_fd(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "a")), *lease;
    int fd = eventfd(0, EFD_CLOEXEC);
    pthread_t writer;
    assert_true(fd > 0);
    give(take(client, ASK(.name = "free", .cancel_fd = fd, .wait_ms = HF_FOREVER)));

    assert_int_equal(pthread_create(&writer, NULL, write_later, &fd), 0);
    assert_refused(
        hf_acquire(client, ASK(.name = "a", .wait_ms = HF_FOREVER, .cancel_fd = fd), &lease),
        HF_CANCELLED, "a");
    pthread_join(writer, NULL);
    assert_null(lease);
    if (can_list(client))
        assert_int_equal(look_at(client, "a").waiters, 0);

    /* Readable from the start: it does not even wait. */
    assert_refused(
        hf_acquire(client, ASK(.name = "a", .wait_ms = HF_FOREVER, .cancel_fd = fd), &lease),
        HF_CANCELLED, "a");
    close(fd);
    give(held);
}

static void test_cancel_fd_otherwise(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *held = take(client, ASK(.name = "a")), *lease;
    struct outcome released;
    int fd = eventfd(0, EFD_CLOEXEC);
    assert_refused(hf_acquire(client, ASK(.name = "a", .wait_ms = 60, .cancel_fd = fd), &lease),
                   HF_TIMEOUT, "60 ms");
    assert_refused(hf_acquire(client, ASK(.name = "a", .cancel_fd = fd), &lease), HF_BUSY, "a");
    assert_refused(hf_acquire(client, ASK(.name = "a", .cancel_fd = -1), &lease), HF_INVALID,
                   "cancel_fd");
    assert_refused(hf_acquire_start(client, ASK(.name = "a", .cancel_fd = fd), note_outcome,
                                    &released, &lease),
                   HF_INVALID, "cancel_fd");

    start_release(held, &released);
    assert_int_equal(
        hf_acquire(client, ASK(.name = "a", .wait_ms = HF_FOREVER, .cancel_fd = fd), &lease),
        HF_OK);
    assert_true(hf_lease_ok(lease));
    await_outcome(&released);
    hf_lease_free(held);
    give(lease);
    close(fd);
}

/* ---- Who is in the way ---- */

/* Engines that name the holder; the others say how long, or nothing. */
static bool names_holder(void)
{
    return strcmp(engine()->name, "local") == 0 || strcmp(engine()->name, "redis") == 0 ||
           strcmp(engine()->name, "sentinel") == 0;
}

static void check_holder(const char *name, uint64_t token)
{
    struct hf_row row = {.size = sizeof row};
    bool is_known = hf_error_holder(&row);
    if (!names_holder() && !is_known)
        return;
    assert_true(is_known);
    assert_string_equal(row.name, name);
    assert_true(row.left_ms > 10000 && row.left_ms <= 20000);
    if (!names_holder() && row.pid == 0)
        return;
    assert_int_equal(row.pid, getpid());
    assert_int_equal(row.token, token);
    assert_string_equal(row.label, "the nightly job");
    assert_true(*row.host);
}

struct told_holder {
    _Atomic int calls;
    uint64_t token;
};

static void check_in_callback(hf_lease *lease, hf_status outcome, void *arg)
{
    struct told_holder *told = arg;
    assert_int_equal(outcome, HF_BUSY);
    check_holder(hf_lease_name(lease), told->token);
    atomic_fetch_add(&told->calls, 1);
}

static void test_holder(void **state)
{
    (void)state;
    hf_client *client = row_client();
    struct hf_row row = {.size = sizeof row};
    hf_lease *lease,
        *held = take(client, ASK(.name = "a", .ttl_ms = 20000, .label = "the nightly job"));
    struct told_holder told = {.token = hf_lease_token(held)};

    refuse(client, ASK(.name = "a"), HF_BUSY, "a");
    check_holder("a", told.token);
    refuse(client, ASK(.name = "a", .wait_ms = 80), HF_TIMEOUT, "a");
    check_holder("a", told.token);
    assert_int_equal(hf_acquire_start(client, ASK(.name = "a"), check_in_callback, &told, &lease),
                     HF_OK);
    await_count(&told.calls, 1);
    hf_lease_free(lease);

    refuse(client, ASK(.name = ""), HF_INVALID, "name"); /* an error that is about no holder */
    assert_false(hf_error_holder(&row));
    assert_false(hf_error_holder(NULL));
    give(held);
}

/* ---- Renewal that is switched ---- */

static void await_lost(const hf_lease *lease)
{
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; hf_lease_ok(lease);) {
        assert_true(now_ns() < end);
        sleep_ms(LOOP_MS);
    }
}

static void test_renewal_switched(void **state)
{
    (void)state;
    hf_client *client = row_client();
    hf_lease *lease = take(client, ASK(.name = "a", .ttl_ms = ttl(LOOP_TTL_MS)));
    assert_int_equal(hf_lease_renew(lease, true), HF_OK);
    sleep_ms(2 * ttl(LOOP_TTL_MS));
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_lease_renew(lease, false), HF_OK);
    await_lost(lease);
    assert_refused(hf_lease_renew(lease, true), HF_LOST, "a");
    assert_refused(hf_lease_renew(NULL, true), HF_INVALID, "lease");
    hf_lease_free(lease);
    give(take(client, ASK(.name = "a", .wait_ms = 5000)));
}

/* While the program says that it is alive its lease is renewed; when it hangs, the lease ends. */
static void test_stall_ends_renewal(void **state)
{
    (void)state;
    struct hf_client_options options = {.size = sizeof options, .max_stall_ms = ttl(LOOP_TTL_MS)};
    hf_client *client = open_client(NULL, &options);
    hf_lease *lease =
        take(client, ASK(.name = "a", .ttl_ms = ttl(LOOP_TTL_MS), .flags = HF_AUTO_RENEW));
    for (int i = 0; i < 30; i++) {
        assert_int_equal(hf_client_alive(client), HF_OK);
        sleep_ms(ttl(LOOP_TTL_MS) / 10);
    }
    assert_true(hf_lease_ok(lease));
    await_lost(lease);
    give(take(row_client(), ASK(.name = "a", .wait_ms = 5000)));
    hf_lease_free(lease);
    close_client(client);
    assert_refused(hf_client_alive(NULL), HF_INVALID, "client");
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("a release that was started ends once, and the lock is free", test_release),
        ROW("a release that was started makes the waiter the holder", test_release_hands_over),
        ROW("a call that is refused never calls back", test_refused_never_calls),
        ROW("a handle may be freed right behind a release that was started",
            test_free_behind_release),
        ROW("an extend that was started ends once, and the lease lasts longer", test_extend),
        ROW("a release behind an extend ends both, each once", test_release_behind_extend),
        ROW("several threads start extends and releases", test_threads),
        ROW("closing without time ends what was started, each once", test_close_at_once),
        ROW("own_callbacks: callbacks and log run in hf_process alone", test_own_thread),
        ROW("own_callbacks: a loop that is blocked for three ttls keeps its lease",
            test_blocked_loop_keeps_lease),
        ROW("own_callbacks: a loop that submits and never polls keeps its lease",
            test_loop_that_only_submits),
        ROW("own_callbacks: a reply that a loop does not read is read soon",
            test_loop_that_does_not_come),
        ROW("own_callbacks: a batch of requests is answered, also without hf_flush", test_batch),
        ROW("own_callbacks: a group is given up without the loop", test_group_loss_needs_no_loop),
        ROW("own_callbacks: on_lost does not run after a callback has freed the handle",
            test_freed_is_not_lost),
        ROW("own_callbacks: hf_close runs the callbacks that are left", test_close_runs_the_rest),
        ROW("list and show that were started end once, with their rows", test_list_start),
        ROW("own_callbacks: a list ends in hf_process, or in hf_close", test_list_start_in_loop),
        ROW("a close that was started ends once, and everything is released", test_close_start),
        ROW("a descriptor ends a blocking acquire, which leaves the queue", test_cancel_fd),
        ROW("a descriptor that stays silent changes nothing", test_cancel_fd_otherwise),
        ROW("BUSY and TIMEOUT say who is in the way, and for how long", test_holder),
        ROW("renewal is switched on and off", test_renewal_switched),
        ROW("a program that hangs for max_stall_ms is no longer renewed", test_stall_ends_renewal),
    };
    return JUDGE(rows);
}
