/* later.c - an engine whose answers come later: who waits parks and hears them, what nobody waits for comes by the
 * bell, several threads in calls on one lease each get their own answer, and nobody sleeps for ever when none comes.
 * Usage: later [CALLS]. */
#include "later_engine.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { TTL_MS = 2000, OP_MS = 100, SLACK_MS = 1000, THREADS = 4 };

static int calls = 400;

static struct hf_request ask_for(const char *name, int64_t wait_ms)
{
    return request_of(&(struct want){.name = name, .ttl_ms = TTL_MS, .wait_ms = wait_ms});
}

/* ---- Calls on threads of their own ---- */

enum call { CALL_ACQUIRE, CALL_EXTEND, CALL_RELEASE, CALL_UPGRADE, CALL_ATTACH, CALL_CLOSE };

struct caller {
    pthread_t thread;
    enum call call;
    hf_client *client;
    hf_lease *lease;
    struct hf_request request;
    const char *text;
    int64_t close_ms;
    hf_status status;
    int64_t took_ms;
    char words[256];
};

static hf_status do_call(struct caller *c)
{
    switch (c->call) {
    case CALL_ACQUIRE:
        return hf_acquire(c->client, &c->request, &c->lease);
    case CALL_EXTEND:
        return hf_extend(c->lease, 0);
    case CALL_RELEASE:
        return hf_release(c->lease);
    case CALL_UPGRADE:
        return hf_upgrade(c->lease);
    case CALL_ATTACH:
        return hf_lease_attach(c->client, c->text, &c->lease);
    case CALL_CLOSE:
        return hf_close(c->client, c->close_ms);
    }
    return HF_INTERNAL;
}

static void *run_call(void *arg)
{
    struct caller *c = arg;
    int64_t from = now_ns();
    c->status = do_call(c);
    c->took_ms = (now_ns() - from) / 1000000;
    snprintf(c->words, sizeof c->words, "%s", c->status == HF_OK ? "" : hf_error_text());
    return NULL;
}

static void begin_call(struct caller *c)
{
    assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static hf_status end_call(struct caller *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACTOR_PATIENCE_MS / 1000;
    if (pthread_timedjoin_np(c->thread, NULL, &until) != 0)
        fail_msg("a call never returned");
    return c->status;
}

/* Waits until that many threads are blocked in calls on the lease. */
static void await_callers(hf_lease *lease, uint32_t count)
{
    for (int64_t until = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; now_ns() < until; nap_us(100)) {
        pthread_mutex_lock(&lease->lock);
        bool there = lease->callers == count && lease->sleepers + (lease->parked != 0) == count;
        pthread_mutex_unlock(&lease->lock);
        if (there)
            return;
    }
    fail_msg("there are never %u callers", count);
}

static hf_lease *hold(hf_client *client, const char *name)
{
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for(name, 5000)};
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    assert_false(asked.bell);
    reply(&asked, HF_N_GRANTED);
    if (end_call(&c) != HF_OK)
        fail_msg("%s", c.words);
    return c.lease;
}

/* Gives it back; somebody must answer. */
static void give(hf_lease *lease)
{
    struct caller c = {.call = CALL_RELEASE, .lease = lease};
    begin_call(&c);
    struct request asked = await_request(HF_V_RELEASE);
    reply(&asked, HF_N_RELEASED);
    assert_int_equal(end_call(&c), HF_OK);
    hf_lease_free(lease);
}

static void close_at_once(hf_client *client)
{
    assert_int_equal(hf_close(client, 5000), HF_OK);
}

/* ---- One caller ---- */

static void test_parks(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    unsigned parks = atomic_load(&later.parks), unattended = atomic_load(&later.unattended);
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    assert_false(asked.bell);
    struct hf_news queued = {.cue = HF_N_QUEUED, .retry_at = hf_clock_boot() + HF_MS(30), .place = 1};
    say(&asked, queued);
    asked = await_request(HF_V_ACQUIRE); /* the caller brings its own timer: it refreshes its place */
    assert_false(asked.bell);
    assert_int_equal(atomic_load(&later.unattended), unattended);
    reply(&asked, HF_N_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    assert_true(atomic_load(&later.parks) > parks);
    assert_int_equal(atomic_load(&later.unattended), unattended + 1);
    assert_true(hf_lease_ok(c.lease));
    give(c.lease);
    close_at_once(client);
}

struct told {
    sem_t over;
    hf_status status, release;
};

static void note(hf_lease *lease, hf_status status, void *arg)
{
    struct told *told = arg;
    (void)lease;
    told->status = status;
    sem_post(&told->over);
}

static void await_told(struct told *told)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACTOR_PATIENCE_MS / 1000;
    if (sem_timedwait(&told->over, &until) != 0)
        fail_msg("a callback did not come");
}

static void test_bell(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    request.flags = HF_AUTO_RENEW;
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    struct request asked = await_request(HF_V_ACQUIRE);
    assert_true(asked.bell);
    reply(&asked, HF_N_GRANTED);
    await_told(&told);
    assert_int_equal(told.status, HF_OK);
    asked = await_request(HF_V_EXTEND); /* the keeper's renewal */
    assert_true(asked.bell);
    reply(&asked, HF_N_EXTENDED);
    unsigned forgotten = atomic_load(&later.forgotten);
    hf_lease_free(lease);
    asked = await_request(HF_V_RELEASE);
    assert_true(asked.bell);
    reply(&asked, HF_N_RELEASED);
    while (atomic_load(&later.forgotten) == forgotten)
        hf_futex_wait(&later.changes, atomic_load(&later.changes), hf_clock_boot() + HF_MS(100));
    close_at_once(client);
}

static void test_several_news(void **state)
{
    (void)state;
    const struct hf_news news[] = {
        {.cue = HF_N_QUEUED, .retry_at = HF_NEVER, .place = 2},
        {.cue = HF_N_QUEUED, .retry_at = HF_NEVER, .place = 1},
        {.cue = HF_N_GRANTED, .good = HF_MS(TTL_MS), .token = 8},
    };
    hf_client *client = open_with_later(false);
    struct hf_request request = ask_for("a", 5000);
    struct told told = {.status = HF_INTERNAL};
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = request};
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    struct request asked = await_request(HF_V_ACQUIRE);
    say_all(&asked, news, 3);
    await_told(&told);
    assert_int_equal(hf_lease_token(lease), 8);
    give(lease);
    begin_call(&c);
    asked = await_request(HF_V_ACQUIRE);
    say_all(&asked, news, 3);
    assert_int_equal(end_call(&c), HF_OK);
    give(c.lease);
    close_at_once(client);
}

static void test_left_to_the_bell(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 150)};
    begin_call(&c);
    await_request(HF_V_ACQUIRE);
    struct request left = await_request(HF_V_LEAVE); /* neither is answered */
    assert_false(left.bell);
    assert_int_equal(end_call(&c), HF_TIMEOUT);
    assert_in_range(c.took_ms, 150 + 2 * OP_MS, 150 + 2 * OP_MS + SLACK_MS);
    struct request released = await_request(HF_V_RELEASE);
    assert_true(released.doubt);
    unsigned forgotten = atomic_load(&later.forgotten);
    reply(&released, HF_N_GONE);
    while (atomic_load(&later.forgotten) == forgotten)
        hf_futex_wait(&later.changes, atomic_load(&later.changes), hf_clock_boot() + HF_MS(100));
    close_at_once(client);
}

static void test_brief(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    struct hf_news granted = {.cue = HF_N_GRANTED, .good = HF_MS(400), .token = 7, .brief = true};
    say(&asked, granted);
    assert_int_equal(end_call(&c), HF_OK);
    assert_true(hf_lease_left_ms(c.lease) <= 400);
    struct request extend = await_request(HF_V_EXTEND);
    assert_true(extend.bell);
    assert_int_equal(extend.ttl_ms, TTL_MS);
    assert_true(extend.at - asked.at < HF_MS(300));
    reply(&extend, HF_N_EXTENDED);
    while (hf_lease_left_ms(c.lease) <= 400)
        nap_us(1000);
    give(c.lease);
    close_at_once(client);
}

static void test_unanswered_release(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_RELEASE, .lease = hold(client, "a")};
    begin_call(&c);
    await_request(HF_V_RELEASE);
    assert_int_equal(end_call(&c), HF_IN_DOUBT);
    assert_in_range(c.took_ms, 2 * OP_MS, 2 * OP_MS + SLACK_MS);
    assert_int_equal(hf_release(c.lease), HF_NOT_HELD);
    struct request again = await_request(HF_V_RELEASE);
    reply(&again, HF_N_RELEASED);
    hf_lease_free(c.lease);
    close_at_once(client);
}

/* What the other side answers to everything, until it is told to stop. */
struct server {
    pthread_t thread;
    enum hf_cue (*answer)(const struct request *asked);
    _Atomic bool over;
    _Atomic unsigned answers;
};

static void *run_server(void *arg)
{
    struct server *server = arg;
    struct request asked;
    while (!atomic_load(&server->over)) {
        uint32_t seen = atomic_load(&later.changes);
        if (!take_request(0, &asked)) {
            hf_futex_wait(&later.changes, seen, hf_clock_boot() + HF_MS(5));
            continue;
        }
        reply(&asked, server->answer(&asked));
        atomic_fetch_add(&server->answers, 1);
    }
    return NULL;
}

static void start_server(struct server *server)
{
    assert_int_equal(pthread_create(&server->thread, NULL, run_server, server), 0);
}

static void stop_server(struct server *server)
{
    atomic_store(&server->over, true);
    pthread_join(server->thread, NULL);
}

static enum hf_cue refuse(const struct request *asked)
{
    (void)asked;
    return HF_N_FAILED;
}

static void test_engine_away(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct server server = {.answer = refuse};
    start_server(&server);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 500)};
    begin_call(&c);
    assert_int_equal(end_call(&c), HF_UNAVAILABLE);
    assert_in_range(c.took_ms, 500, 500 + SLACK_MS);
    assert_non_null(strstr(c.words, "connection refused"));
    assert_true(atomic_load(&server.answers) > 1);
    stop_server(&server);
    hf_close(client, 0);
}

/* ---- Several threads on one lease ---- */

static void test_turns(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller first = {.call = CALL_EXTEND, .lease = lease}, second = first;
    begin_call(&first);
    struct request asked = await_request(HF_V_EXTEND);
    assert_false(asked.bell);
    begin_call(&second);
    await_callers(lease, 2);
    assert_int_equal(submitted(HF_V_EXTEND), 1);
    reply(&asked, HF_N_FAILED);
    assert_int_equal(end_call(&first), HF_UNAVAILABLE);
    assert_non_null(strstr(first.words, "connection refused"));
    asked = await_request(HF_V_EXTEND);
    assert_false(asked.bell);
    reply(&asked, HF_N_EXTENDED);
    assert_int_equal(end_call(&second), HF_OK);
    give(lease);
    close_at_once(client);
}

static void test_upgrade_behind_extend(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    c.request.kind = HF_READ;
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    reply(&asked, HF_N_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    struct caller extend = {.call = CALL_EXTEND, .lease = c.lease}, upgrade = {.call = CALL_UPGRADE, .lease = c.lease};
    begin_call(&extend);
    asked = await_request(HF_V_EXTEND);
    begin_call(&upgrade);
    await_callers(c.lease, 2);
    assert_int_equal(submitted(HF_V_UPGRADE), 0);
    reply(&asked, HF_N_EXTENDED);
    assert_int_equal(end_call(&extend), HF_OK);
    asked = await_request(HF_V_UPGRADE);
    reply(&asked, HF_N_BUSY);
    assert_int_equal(end_call(&upgrade), HF_BUSY);
    give(c.lease);
    close_at_once(client);
}

static void test_release_ends_extends(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS], release = {.call = CALL_RELEASE, .lease = lease};
    for (int i = 0; i < THREADS; i++) {
        extend[i] = (struct caller){.call = CALL_EXTEND, .lease = lease};
        begin_call(&extend[i]);
    }
    await_request(HF_V_EXTEND);
    await_callers(lease, THREADS);
    begin_call(&release);
    struct request asked = await_request(HF_V_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(end_call(&extend[i]), HF_NOT_HELD);
        assert_true(extend[i].took_ms < ACTOR_PATIENCE_MS / 2);
    }
    int meanwhile = 0;
    for (int i = 0; i < THREADS; i++)
        meanwhile += strstr(extend[i].words, "released meanwhile") != NULL;
    assert_true(meanwhile >= 1);
    assert_int_equal(submitted(HF_V_EXTEND), 1);
    assert_int_equal(hf_release(lease), HF_NOT_HELD); /* at once: nobody answers here */
    assert_non_null(strstr(hf_error_text(), "is being released"));
    reply(&asked, HF_N_RELEASED);
    assert_int_equal(end_call(&release), HF_OK);
    hf_lease_free(lease);
    close_at_once(client);
}

static void test_loss_ends_all(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS];
    for (int i = 0; i < THREADS; i++) {
        extend[i] = (struct caller){.call = CALL_EXTEND, .lease = lease};
        begin_call(&extend[i]);
    }
    struct request asked = await_request(HF_V_EXTEND);
    await_callers(lease, THREADS);
    reply(&asked, HF_N_GONE);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(end_call(&extend[i]), HF_LOST);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    assert_non_null(strstr(hf_error_text(), "ms ago"));
    hf_lease_free(lease);
    close_at_once(client);
}

/* No answer at all: the belief ends by our own clock, and with it every call. */
static void test_silence_ends_all(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    struct caller extend[THREADS];
    for (int i = 0; i < THREADS; i++) {
        extend[i] = (struct caller){.call = CALL_EXTEND, .lease = lease};
        begin_call(&extend[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(end_call(&extend[i]), HF_LOST);
        assert_true(extend[i].took_ms < TTL_MS + SLACK_MS);
    }
    nap_us(20000);
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    int ago = 0;
    const char *words = strstr(hf_error_text(), "ended ");
    assert_non_null(words);
    assert_int_equal(sscanf(words, "ended %d ms ago", &ago), 1);
    assert_in_range(ago, 20, SLACK_MS);
    hf_lease_free(lease);
    hf_close(client, 0);
}

/* ---- Inside callbacks, and without a background thread ---- */

static void release_inside(hf_lease *lease, hf_status status, void *arg)
{
    struct told *told = arg;
    told->status = status;
    told->release = hf_release(lease); /* nobody answers, and this is the thread that has the timers */
    sem_post(&told->over);
}

static void test_release_in_callback(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.release = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, release_inside, &told, &lease), HF_OK);
    struct request asked = await_request(HF_V_ACQUIRE);
    reply(&asked, HF_N_GRANTED);
    await_told(&told);
    assert_int_equal(told.status, HF_OK);
    assert_int_equal(told.release, HF_IN_DOUBT);
    asked = await_request(HF_V_RELEASE);
    asked = await_request(HF_V_RELEASE);
    reply(&asked, HF_N_RELEASED);
    hf_lease_free(lease);
    close_at_once(client);
}

static void process_until(hf_client *client, sem_t *over)
{
    while (sem_trywait(over) != 0) {
        struct pollfd rung = {.fd = hf_fd(client), .events = POLLIN};
        int64_t timeout = hf_timeout_ms(client);
        if (poll(&rung, 1, timeout < 0 ? ACTOR_PATIENCE_MS : (int)timeout) < 0)
            fail_msg("poll");
        assert_int_equal(hf_process(client), HF_OK);
    }
}

static void *grant_later(void *arg)
{
    struct request asked = await_request(HF_V_ACQUIRE);
    (void)arg;
    nap_us(20000);
    reply(&asked, HF_N_GRANTED);
    return NULL;
}

static void *answer_release(void *arg)
{
    struct request asked = await_request(HF_V_RELEASE);
    (void)arg;
    nap_us(20000);
    reply(&asked, HF_N_RELEASED);
    return NULL;
}

static void test_no_thread(void **state)
{
    (void)state;
    hf_client *client = open_with_later(true);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("a", 5000);
    hf_lease *lease;
    pthread_t server;
    sem_init(&told.over, 0, 0);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    assert_int_equal(pthread_create(&server, NULL, grant_later, NULL), 0);
    process_until(client, &told.over);
    pthread_join(server, NULL);
    assert_int_equal(told.status, HF_OK);
    assert_int_equal(hf_release(lease), HF_IN_DOUBT); /* nobody answers, and nobody processes meanwhile */
    hf_lease_free(lease);
    await_request(HF_V_RELEASE);
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &lease), HF_OK);
    assert_int_equal(pthread_create(&server, NULL, grant_later, NULL), 0);
    process_until(client, &told.over);
    pthread_join(server, NULL);
    pthread_t servers[2]; /* the release that is still tried, and that of the hold */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&servers[i], NULL, answer_release, NULL), 0);
    assert_int_equal(hf_close(client, 5000), HF_OK);
    for (int i = 0; i < 2; i++)
        pthread_join(servers[i], NULL);
}

/* ---- Attaching ---- */

static void detached_hold(hf_client *client, hf_lease **lease, char text[HF_EXPORT_MAX])
{
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    c.request.flags = HF_DETACHED;
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    reply(&asked, HF_N_GRANTED);
    assert_int_equal(end_call(&c), HF_OK);
    assert_int_equal(hf_lease_export(c.lease, text, HF_EXPORT_MAX), HF_OK);
    *lease = c.lease;
}

static void test_attach(void **state)
{
    (void)state;
    static const struct {
        enum hf_cue cue;
        hf_status status;
    } rows[] = {{HF_N_EXTENDED, HF_OK}, {HF_N_GONE, HF_LOST}, {HF_N_CUT, HF_IN_DOUBT}, {HF_N_FAILED, HF_UNAVAILABLE}};
    char text[HF_EXPORT_MAX];
    hf_client *client = open_with_later(false);
    hf_lease *lease;
    detached_hold(client, &lease, text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct caller c = {.call = CALL_ATTACH, .client = client, .text = text};
        unsigned forgotten = atomic_load(&later.forgotten), unattended = atomic_load(&later.unattended);
        begin_call(&c);
        struct request asked = await_request(HF_V_CHECK);
        assert_false(asked.bell);
        reply(&asked, rows[i].cue);
        assert_int_equal(end_call(&c), rows[i].status);
        assert_int_equal(atomic_load(&later.forgotten), forgotten + (rows[i].status != HF_OK));
        assert_int_equal(atomic_load(&later.unattended), unattended + (rows[i].status == HF_OK));
        hf_lease_free(c.lease);
    }
    struct caller c = {.call = CALL_ATTACH, .client = client, .text = text};
    begin_call(&c);
    await_request(HF_V_CHECK);
    assert_int_equal(end_call(&c), HF_UNAVAILABLE);
    assert_non_null(strstr(c.words, "no answer within 200 ms"));
    assert_in_range(c.took_ms, 2 * OP_MS, 2 * OP_MS + SLACK_MS);
    hf_lease_free(lease);
    assert_int_equal(submitted(HF_V_RELEASE), 0);
    close_at_once(client);
}

/* Who leaves it to its text before it has its whole ttl asks for the rest on the way out. */
static void test_leave_brief_behind(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller c = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("a", 5000)};
    char text[HF_EXPORT_MAX];
    c.request.flags = HF_DETACHED;
    begin_call(&c);
    struct request asked = await_request(HF_V_ACQUIRE);
    struct hf_news granted = {.cue = HF_N_GRANTED, .good = HF_MS(400), .token = 7, .brief = true};
    say(&asked, granted);
    assert_int_equal(end_call(&c), HF_OK);
    assert_int_equal(hf_lease_export(c.lease, text, sizeof text), HF_OK);
    unsigned forgotten = atomic_load(&later.forgotten);
    hf_lease_free(c.lease);
    assert_int_equal(atomic_load(&later.forgotten), forgotten + 1);
    assert_int_equal(await_request(HF_V_EXTEND).ttl_ms, TTL_MS);
    close_at_once(client);
    assert_int_equal(submitted(HF_V_RELEASE), 0);
}

/* ---- Closing ---- */

static void test_close_waits(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hold(client, "a");
    hf_lease *detached;
    char text[HF_EXPORT_MAX];
    detached_hold(client, &detached, text);
    struct caller waiter = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("b", HF_FOREVER)};
    begin_call(&waiter);
    struct request asked = await_request(HF_V_ACQUIRE);
    reply(&asked, HF_N_QUEUED);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = 5000};
    begin_call(&close);
    struct request released = await_request(HF_V_RELEASE), left = await_request(HF_V_LEAVE);
    assert_true(released.bell);
    assert_false(left.bell);
    nap_us(50000);
    reply(&left, HF_N_RELEASED);
    assert_int_equal(end_call(&waiter), HF_CLOSED);
    nap_us(50000);
    reply(&released, HF_N_RELEASED);
    assert_int_equal(end_call(&close), HF_OK);
    assert_in_range(close.took_ms, 100, 100 + SLACK_MS);
    assert_int_equal(submitted(HF_V_RELEASE) + submitted(HF_V_CHECK), 1); /* the detached hold is left alone */
}

static void test_close_in_silence(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct told told = {.status = HF_INTERNAL};
    struct hf_request request = ask_for("b", HF_FOREVER);
    hf_lease *started;
    sem_init(&told.over, 0, 0);
    hold(client, "a");
    assert_int_equal(hf_acquire_start(client, &request, note, &told, &started), HF_OK);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = OP_MS};
    begin_call(&close);
    await_request(HF_V_RELEASE);
    await_request(HF_V_LEAVE);
    assert_int_equal(end_call(&close), HF_IN_DOUBT);
    assert_non_null(strstr(close.words, "2 holds"));
    assert_in_range(close.took_ms, OP_MS, OP_MS + SLACK_MS);
    assert_int_equal(sem_trywait(&told.over), 0);
    assert_int_equal(told.status, HF_CLOSED);
}

/* A wait without an end is cancelled while its caller sleeps: the caller must wake for the time that is set then. */
static void test_silence_after_cancel(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    struct caller waiter = {.call = CALL_ACQUIRE, .client = client, .request = ask_for("b", HF_FOREVER)};
    begin_call(&waiter);
    await_request(HF_V_ACQUIRE);
    struct caller close = {.call = CALL_CLOSE, .client = client, .close_ms = 5000};
    begin_call(&close);
    await_request(HF_V_LEAVE); /* is not answered */
    assert_int_equal(end_call(&waiter), HF_CLOSED);
    assert_true(waiter.took_ms < 2 * OP_MS + SLACK_MS);
    struct request released = await_request(HF_V_RELEASE);
    assert_true(released.doubt);
    reply(&released, HF_N_GONE);
    assert_int_equal(end_call(&close), HF_OK);
}

/* ---- Rechecking ---- */

static void test_recheck(void **state)
{
    (void)state;
    hf_client *client = open_with_later(false);
    hf_lease *lease = hold(client, "a");
    hf_nanos before = hf_clock_boot();
    later.host->recheck(later.host->ctx); /* by a thread that is not the keeper */
    struct request asked = await_request(HF_V_CHECK);
    assert_true(asked.at - before < HF_MS(TTL_MS / 6)); /* by itself it is checked after a third of the ttl */
    assert_true(asked.bell);
    reply(&asked, HF_N_GONE);
    while (hf_lease_ok(lease))
        nap_us(100);
    hf_lease_free(lease);
    close_at_once(client);
}

/* ---- Everything at once ---- */

struct barrage {
    hf_client *client;
    _Atomic int wrong, held;
};

/* Mostly what was hoped for. */
static enum hf_cue answer_somehow(const struct request *asked)
{
    static uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    unsigned fate = random >> 24;
    bool keeps = asked->verb == HF_V_EXTEND || asked->verb == HF_V_CHECK;
    if (fate < 8)
        return HF_N_FAILED;
    if (fate < 12)
        return HF_N_CUT;
    if (keeps)
        return fate < 16 ? HF_N_GONE : HF_N_EXTENDED;
    return asked->verb == HF_V_ACQUIRE ? HF_N_GRANTED : HF_N_RELEASED;
}

static bool is_one_of(hf_status status, hf_status a, hf_status b, hf_status c)
{
    return status == HF_OK || status == a || status == b || status == c;
}

static void *extend_again_and_again(void *arg)
{
    hf_lease *lease = arg;
    hf_status status;
    do {
        status = hf_extend(lease, 0);
    } while (is_one_of(status, HF_UNAVAILABLE, HF_IN_DOUBT, HF_IN_DOUBT));
    return (void *)(uintptr_t)status;
}

static void one_life(struct barrage *b, int number)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number % 7);
    struct hf_request request = ask_for(name, 5000);
    hf_lease *lease;
    pthread_t thread[2];
    if (hf_acquire(b->client, &request, &lease) != HF_OK) {
        atomic_fetch_add(&b->wrong, 1);
        return;
    }
    atomic_fetch_add(&b->held, 1);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, extend_again_and_again, lease);
    nap_us(number % 3 * 100);
    hf_status status = hf_release(lease);
    b->wrong += !is_one_of(status, HF_NOT_HELD, HF_IN_DOUBT, HF_IN_DOUBT);
    for (int i = 0; i < 2; i++) {
        void *ended;
        pthread_join(thread[i], &ended);
        b->wrong += (uintptr_t)ended != HF_NOT_HELD && (uintptr_t)ended != HF_LOST;
    }
    hf_lease_free(lease);
}

static void *live(void *arg)
{
    for (int i = 0; i < calls / THREADS; i++)
        one_life(arg, i);
    return NULL;
}

static void test_barrage(void **state)
{
    (void)state;
    struct barrage b = {.client = open_with_later(false)};
    struct server server = {.answer = answer_somehow};
    pthread_t user[THREADS];
    start_server(&server);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&user[i], NULL, live, &b), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(user[i], NULL);
    assert_int_equal(hf_close(b.client, 10000), HF_OK);
    stop_server(&server);
    assert_int_equal(atomic_load(&b.wrong), 0);
    assert_true(atomic_load(&b.held) == calls / THREADS * THREADS);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        calls = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        SENTENCE("a caller that waits parks, refreshes its place itself, and leaves the hold to the bell", test_parks),
        SENTENCE("what nobody waits for comes by the bell and goes out by itself", test_bell),
        SENTENCE("of several news that come at once all are heard", test_several_news),
        SENTENCE("a wait that ends unanswered leaves the rest to the background", test_left_to_the_bell),
        SENTENCE("a grant for less than the ttl is extended without auto-renewal", test_brief),
        SENTENCE("a release without an answer is in doubt after two op_timeouts", test_unanswered_release),
        SENTENCE("a wait that ends while the engine is away says so, and why", test_engine_away),
        SENTENCE("extends of two threads wait for their turn and each has its own answer", test_turns),
        SENTENCE("an upgrade behind another thread's extend hears its own outcome", test_upgrade_behind_extend),
        SENTENCE("a release ends the extends of other threads and a second release is refused at once",
                 test_release_ends_extends),
        SENTENCE("a loss ends the calls of all threads", test_loss_ends_all),
        SENTENCE("without any answer the calls of all threads end with the lease", test_silence_ends_all),
        SENTENCE("a release inside a callback does not sleep for ever", test_release_in_callback),
        SENTENCE("without a background thread calls end, callbacks run and closing waits", test_no_thread),
        SENTENCE("attaching waits for its answer, for two op_timeouts", test_attach),
        SENTENCE("a brief grant that is left to its text gets its whole ttl", test_leave_brief_behind),
        SENTENCE("closing waits for the answers, except for what stays", test_close_waits),
        SENTENCE("closing in silence takes the time that it was given, tells everybody and counts",
                 test_close_in_silence),
        SENTENCE("a caller whose wait is cancelled does not sleep until the end of that wait",
                 test_silence_after_cancel),
        SENTENCE("a recheck by any thread wakes the keeper", test_recheck),
        SENTENCE("threads that extend and release at once all get an answer", test_barrage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
