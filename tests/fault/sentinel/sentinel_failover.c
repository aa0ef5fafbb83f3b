/* sentinel_failover.c - a primary that sentinels watch dies, hangs, is replaced, comes back: who
 * keeps its lock, who hears of a loss, and who comes next (G40, G41, G42, G43). */
#include "lib/actors.h"
#include "lib/sentinel_setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    WAITERS = 3,
    TTL_MS = 30000, /* longer than a failover takes on a slow machine */
    LONG_TTL_MS = 90000,
    PATIENCE_MS = 60000,
};

static struct watched watched;
static hf_client *client[WAITERS + 1];
static unsigned clients;

static int teardown(void **state)
{
    (void)state;
    while (clients) {
        hf_status closed = hf_close(client[--clients], 5000);
        if (closed != HF_OK)
            print_message("# closing: %s\n", hf_error_text());
    }
    servers_end();
    return 0;
}

#define WATCHED(text, function)                                                                    \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

static void start_trio(const char *password)
{
    server_needed(SERVER_REDIS);
    watched_start(&watched,
                  &(struct watched_options){.replicas = 2, .sentinels = 3, .password = password});
}

static hf_client *open_client(const char *query)
{
    char url[512];
    watched_url(&watched, query, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &client[clients]), HF_OK);
    return client[clients++];
}

static int64_t ms_since(int64_t from_ns)
{
    return (now_ns() - from_ns) / 1000000;
}

/* ---- Waiters ---- */

static atomic_uint arrivals;

struct waiter {
    hf_client *client;
    pthread_t thread;
    hf_lease *lease;
    hf_status status;
    int64_t at_ns;
    unsigned place; /* in the order of the grants, from 1 */
};

static void *wait_for_turn(void *arg)
{
    struct waiter *w = arg;
    struct hf_request request = request_of(&(struct want){
        .name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS, .flags = HF_AUTO_RENEW});
    w->status = hf_acquire(w->client, &request, &w->lease);
    w->at_ns = now_ns();
    w->place = ++arrivals;
    nap_us(20000);
    if (w->status == HF_OK)
        must_release(w->lease);
    return NULL;
}

static void queue_waiters(struct waiter waiter[WAITERS])
{
    arrivals = 0;
    for (int i = 0; i < WAITERS; i++) {
        waiter[i] = (struct waiter){.client = open_client("")};
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, wait_for_turn, &waiter[i]), 0);
        await_sight(client[0], "job", 1, i + 1);
    }
}

static void join_waiters(struct waiter waiter[WAITERS])
{
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiter[i].thread, NULL);
        assert_int_equal(waiter[i].status, HF_OK);
        assert_int_equal(waiter[i].place, i + 1);
    }
}

/* ---- The primary dies ---- */

static void restart_empty(struct server *s)
{
    server_restart(s, false);
}

/* A call that meets the change of server has an unknown outcome. */
static void await_extend(hf_lease *lease)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    while (hf_extend(lease, TTL_MS) != HF_OK)
        assert_true(now_ns() < end);
}

/* Waits until every waiter has been at that server: its client's sign of life is there, and was
 * renewed not long ago. A waiter without it is passed over. */
static void await_waiters(const struct server *server)
{
    static const char fresh[] =
        "local n = 0 for _, key in ipairs(redis.call('KEYS', '*:alive')) do "
        "if redis.call('PTTL', key) > 500 then n = n + 1 end end return n";
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    while (server_count(server, "EVAL %s 0", fresh) < WAITERS) {
        assert_true(now_ns() < end);
        nap_us(5000);
    }
}

/* How soon each is served is measured in failover_bars.c.
 * comes_back: how the old primary does; NULL: it stays away */
static void fail_over(void (*how)(struct server *), void (*comes_back)(struct server *))
{
    struct waiter waiter[WAITERS];
    start_trio(NULL);
    hf_lease *lease = must_acquire(
        open_client(""), &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    uint64_t token = hf_lease_token(lease);
    queue_waiters(waiter);
    nap_us(1200000); /* the clients listen to the sentinels by now */

    watched_listen(&watched);
    int64_t began = now_ns();
    how(watched.server[0]);
    int64_t announced = watched_await_announcement();
    await_extend(lease); /* the holder has been at the new primary, */
    await_waiters(watched_await_switch(&watched, watched.server[0])); /* and so have the waiters */
    assert_true(hf_lease_ok(lease) && hf_lease_token(lease) == token);
    int64_t released = now_ns();
    must_release(lease);
    join_waiters(waiter);
    print_message("# announced after %lld ms; the next one held %lld ms after the release\n",
                  (long long)(announced - began) / 1000000,
                  (long long)(waiter[0].at_ns - released) / 1000000);
    if (!comes_back)
        return;

    struct server *new = watched_await_switch(&watched, watched.server[0]);
    comes_back(watched.server[0]);
    int64_t before =
        server_calls(watched.server[0], "evalsha") + server_calls(watched.server[0], "fcall");
    for (int i = 0; i < 20; i++) {
        must_release(must_acquire(
            client[0], &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS}));
        nap_us(20000);
    }
    assert_int_equal(server_calls(watched.server[0], "evalsha") +
                         server_calls(watched.server[0], "fcall"),
                     before);
    assert_true(new != watched.server[0]);
}

static void test_killed(void **state)
{
    (void)state;
    fail_over(server_kill9, NULL);
}

static void test_hung(void **state)
{
    (void)state;
    fail_over(server_pause, server_continue);
}

/* It takes writes until it is demoted, 10 s later. */
static void test_killed_and_restarted(void **state)
{
    (void)state;
    fail_over(server_kill9, restart_empty);
}

/* ---- A failover that loses a grant ---- */

static _Atomic int64_t lost_at_ns;

static void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    (void)lease;
    (void)why;
    (void)arg;
    lost_at_ns = now_ns();
}

/* Told by the new primary: by its own clock the holder would believe for LONG_TTL_MS. */
static void test_loss_is_told(void **state)
{
    (void)state;
    start_trio("secret");
    hf_client *holder = open_client(""), *other = open_client("");
    must_release(must_acquire(holder, &(struct want){.name = "early", .ttl_ms = TTL_MS}));
    nap_us(1200000); /* the clients listen to the sentinels by now */
    watched_cut_replicas(&watched);

    lost_at_ns = 0;
    struct hf_request request =
        request_of(&(struct want){.name = "job", .ttl_ms = LONG_TTL_MS, .flags = HF_AUTO_RENEW});
    request.on_lost = note_loss;
    hf_lease *lease;
    int64_t acquired = now_ns();
    assert_int_equal(hf_acquire(holder, &request, &lease), HF_OK);
    watched_listen(&watched);
    server_kill9(watched.server[0]);
    int64_t announced = watched_await_announcement();
    hf_lease *next = must_acquire(
        other, &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS});
    int64_t granted = now_ns();
    while (!lost_at_ns && ms_since(acquired) < LONG_TTL_MS)
        nap_us(1000);
    int64_t overlap = lost_at_ns - granted;
    print_message("# the loss was reported %lld ms after the announcement, the next one held after "
                  "%lld ms: two held for %lld ms\n",
                  (long long)(lost_at_ns - announced) / 1000000,
                  (long long)(granted - announced) / 1000000,
                  (long long)(overlap > 0 ? overlap : 0) / 1000000);
    assert_true(lost_at_ns);
    assert_true((lost_at_ns - acquired) / 1000000 < LONG_TTL_MS * 9 / 10);
    assert_true(hf_lease_token(next) > hf_lease_token(lease));
    assert_false(hf_lease_ok(lease));
    hf_lease_free(lease);
    must_release(next);
}

/* ---- Sentinels that are gone, silent or strict ---- */

static void test_no_sentinels(void **state)
{
    (void)state;
    start_trio(NULL);
    hf_client *c = open_client("");
    must_release(must_acquire(c, &(struct want){.name = "job", .ttl_ms = TTL_MS}));
    for (int i = 0; i < WATCHED_MOST; i++)
        server_kill9(watched.sentinel[i]);
    for (int i = 0; i < 50; i++) {
        must_release(must_acquire(c, &(struct want){.name = "job", .ttl_ms = TTL_MS}));
        nap_us(40000);
    }
    server_kill9(watched.server[0]);

    struct hf_request request =
        request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = 500});
    hf_lease *lease;
    hf_status status = hf_acquire(c, &request, &lease);
    print_message("# %s\n", hf_error_text());
    assert_true(status == HF_UNAVAILABLE || status == HF_IN_DOUBT);
}

static void test_silent_sentinel(void **state)
{
    (void)state;
    start_trio(NULL);
    server_pause(watched.sentinel[0]);
    int64_t began = now_ns();
    char query[40];
    snprintf(query, sizeof query, "?connect_timeout=%dms", PATIENCE_MS);
    must_release(must_acquire(open_client(query), &(struct want){.name = "job", .ttl_ms = TTL_MS}));
    print_message("# opened and locked in %lld ms beside a silent sentinel\n",
                  (long long)ms_since(began));
    assert_true(ms_since(began) < PATIENCE_MS / 2); /* a unit test shows that it is 50 ms */
    server_continue(watched.sentinel[0]);
}

static void refused(const char *url, hf_status status, const char *words)
{
    hf_client *c;
    hf_lease *lease;
    struct hf_request request = request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS});
    assert_int_equal(hf_open(url, NULL, &c), HF_OK);
    assert_int_equal(hf_acquire(c, &request, &lease), status);
    if (!strstr(hf_error_text(), words))
        fail_msg("%s: does not contain: %s", hf_error_text(), words);
    assert_int_equal(hf_close(c, 1000), HF_OK);
}

static void test_refusals(void **state)
{
    (void)state;
    char url[512], file[200];
    server_needed(SERVER_REDIS);
    watched_start(&watched, &(struct watched_options){.sentinels = 1, .sentinel_password = "word"});
    watched_url(&watched, "", url, sizeof url);
    refused(url, HF_DENIED, "sentinel_password_file");

    snprintf(file, sizeof file, "%s", server_file(watched.sentinel[0], "password"));
    FILE *out = fopen(file, "w");
    fputs("word\n", out);
    fclose(out);
    assert_int_equal(chmod(file, 0600), 0);
    char query[256];
    snprintf(query, sizeof query, "?sentinel_password_file=%s", file);
    must_release(must_acquire(open_client(query), &(struct want){.name = "job", .ttl_ms = TTL_MS}));

    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u/other?sentinel_password_file=%s",
             server_port(watched.sentinel[0]), file);
    refused(url, HF_CONFIG, "it watches mymaster");
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u/mymaster",
             server_port(watched.server[0]));
    refused(url, HF_CONFIG, "it is a Redis server and no sentinel");
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u,127.0.0.1:%u/mymaster", free_port(),
             free_port());
    refused(url, HF_UNAVAILABLE, "connection refused");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WATCHED("the primary is killed: the holder keeps its lock, the waiters their order",
                test_killed),
        WATCHED("the primary is killed and comes back empty: nobody talks to it",
                test_killed_and_restarted),
        WATCHED("the primary hangs and comes back: nobody talks to it any more", test_hung),
        WATCHED("a failover that loses a grant is reported to its holder", test_loss_is_told),
        WATCHED("without sentinels work goes on until the primary is gone, too", test_no_sentinels),
        WATCHED("a silent sentinel costs an opening little", test_silent_sentinel),
        WATCHED("a wrong name, password or server is named in the error", test_refusals),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests_name("sentinel: failover", tests, NULL, NULL);
}
