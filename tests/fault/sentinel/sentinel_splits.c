/* sentinel_splits.c - parties that do not see each other, primaries that stand still for a moment,
 * and logins: a primary that is cut off together with a client, a sentinel that was cut off before
 * the failover, TLS and users (G40, G41, G42, G43). */
#include "lib/loss_notes.h"
#include "lib/proxy.h"
#include "lib/sentinel_setup.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TTL_MS = 3000,
    LISTENING_US = 1200000,
    HEALED_MS = 15000, /* the old primary is demoted 10 s after the cut has healed */
    WAITERS = 2,
    SHORT_MS = 400,
    LONG_MS = 2000,
    PATIENCE_MS = 60000,
    LONG_TTL_MS = 60000, /* renewed so rarely that no test sees it */
};

static struct watched watched;
static struct proxy *proxy[WATCHED_MOST];
static hf_client *client[4];
static unsigned clients;

static int teardown(void **state)
{
    (void)state;
    while (clients) {
        hf_status closed = hf_close(client[--clients], 5000);
        if (closed != HF_OK)
            print_message("# closing: %s\n", hf_error_text());
    }
    for (int i = 0; i < WATCHED_MOST; i++) {
        if (proxy[i])
            proxy_end(proxy[i]);
        proxy[i] = NULL;
    }
    servers_end();
    return 0;
}

#define SPLIT(text, function)                                                                      \
    {                                                                                              \
        .name = text, .test_func = function, .teardown_func = teardown                             \
    }

static void start_trio(void)
{
    server_needed(SERVER_REDIS);
    watched_start(&watched, &(struct watched_options){.replicas = 2,
                                                      .sentinels = WATCHED_MOST,
                                                      .password = "secret",
                                                      .has_users = true});
}

static hf_client *open_url(const char *url)
{
    if (hf_open(url, NULL, &client[clients]) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client[clients++];
}

static hf_client *open_client(const char *query)
{
    char url[512];
    watched_url(&watched, query, url, sizeof url);
    return open_url(url);
}

static int64_t ms_between(int64_t from_ns, int64_t to_ns)
{
    return (to_ns - from_ns) / 1000000;
}

static int64_t calls_of_locks(const struct server *s)
{
    return server_calls(s, "fcall") + server_calls(s, "evalsha");
}

static void await_loss(const struct loss *loss, int64_t ms)
{
    int64_t end = now_ns() + ms * 1000000;
    while (!atomic_load(&loss->times) && now_ns() < end)
        nap_us(1000);
    assert_int_equal(atomic_load(&loss->times), 1);
}

/* ---- The primary and a client are cut off from all others ---- */

/* A client that reaches the sentinels through proxies. */
static hf_client *open_inside(void)
{
    char url[512];
    size_t len = (size_t)snprintf(url, sizeof url, "redis+sentinel://:secret@");
    for (int i = 0; i < WATCHED_MOST; i++) {
        proxy[i] = proxy_start(server_port(watched.sentinel[i]));
        len += (size_t)snprintf(url + len, sizeof url - len, "%s127.0.0.1:%u", i ? "," : "",
                                proxy_port(proxy[i]));
    }
    snprintf(url + len, sizeof url - len, "/mymaster?connect_timeout=500ms");
    return open_url(url);
}

static void cut_off_primary(void)
{
    for (int i = 0; i < WATCHED_MOST; i++)
        proxy_freeze(proxy[i], true);
    for (unsigned i = 0; i <= WATCHED_MOST; i++)
        watched_shut_out(watched.server[0], i);
}

static void heal(void)
{
    for (unsigned i = 0; i <= WATCHED_MOST; i++)
        watched_let_in(watched.server[0], i);
    for (int i = 0; i < WATCHED_MOST; i++)
        proxy_freeze(proxy[i], false);
}

/* Nothing tells the holder: its primary works. It hears of its loss when the cut heals. */
static void test_cut_off(void **state)
{
    (void)state;
    struct loss loss = {0};
    struct want want = {.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    start_trio();
    hf_client *inside = open_inside(), *outside = open_client("");
    hf_lease *lease = hold_noting(inside, &want, &loss);
    nap_us(LISTENING_US);
    int64_t cut = now_ns();
    cut_off_primary();
    watched_await_switch(&watched, watched.server[0]);
    assert_true(hf_lease_ok(lease));

    want.wait_ms = 10000;
    hf_lease *next = must_acquire(outside, &want);
    int64_t granted = now_ns();
    assert_true(hf_lease_token(next) > hf_lease_token(lease));
    nap_us(1000000);
    assert_true(hf_lease_ok(lease)); /* two holders: G40 says so */
    assert_int_equal(atomic_load(&loss.times), 0);
    int64_t healed = now_ns();
    heal();
    await_loss(&loss, HEALED_MS);
    print_message("# the next one held %lld ms after the cut; the loss was reported %lld ms after "
                  "it healed, so two held for %lld ms\n",
                  (long long)ms_between(cut, granted), (long long)ms_between(healed, loss.at_ns),
                  (long long)ms_between(granted, loss.at_ns));
    hf_lease_free(lease);
    must_release(next);
}

/* Waits until both replicas have a renewal that is not older than a quarter of a second: the next
 * one is not under way while the primary is being cut off. */
static void await_renewal(const char *key)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    for (int i = 1; i < WATCHED_MOST; i++)
        while (server_count(watched.server[i], "PTTL %s", key) < TTL_MS - 250) {
            assert_true(now_ns() < end);
            nap_us(5000);
        }
}

/* min-replicas-to-write: the primary that is cut off refuses all writes, so the holder loses its
 * lease by its own clock before the next one is granted. */
static void test_cut_off_guarded(void **state)
{
    (void)state;
    struct loss loss = {0};
    struct want want = {.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};
    start_trio();
    for (int i = 0; i < WATCHED_MOST; i++) {
        server_does(watched.server[i], "CONFIG SET min-replicas-max-lag 1");
        server_does(watched.server[i], "CONFIG SET min-replicas-to-write 1");
    }
    hf_client *inside = open_inside(), *outside = open_client("");
    hf_lease *lease = hold_noting(inside, &want, &loss), *none;
    nap_us(LISTENING_US);
    await_renewal("lock:job");
    int64_t cut = now_ns();
    cut_off_primary();
    nap_us(500000);
    struct hf_request other =
        request_of(&(struct want){.name = "other", .ttl_ms = TTL_MS, .wait_ms = 1000});
    assert_int_equal(hf_acquire(inside, &other, &none), HF_UNAVAILABLE);
    print_message("# %s\n", hf_error_text());
    assert_non_null(strstr(hf_error_text(), "NOREPLICAS"));

    want.wait_ms = 15000;
    hf_lease *next = must_acquire(outside, &want);
    int64_t granted = now_ns();
    assert_false(hf_lease_ok(lease));
    await_loss(&loss, PATIENCE_MS);
    print_message("# the holder heard of its loss %lld ms after the cut, the next one held after "
                  "%lld ms\n",
                  (long long)ms_between(cut, loss.at_ns), (long long)ms_between(cut, granted));
    heal();
    hf_lease_free(lease);
    must_release(next);
}

/* ---- A sentinel that was cut off before the failover ---- */

static void await_other_name(const struct server *sentinel, const struct server *old)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    while (watched_is_named(sentinel, old)) {
        assert_true(now_ns() < end);
        nap_us(5000);
    }
}

/* The first sentinel of the URL goes on naming the old primary, which was started again, empty, and
 * takes writes for as long as nobody demotes it. */
static void test_stale_sentinel(void **state)
{
    (void)state;
    struct loss loss = {0};
    struct server *old, *stale;
    start_trio();
    old = watched.server[0];
    stale = watched.sentinel[0];
    hf_client *early = open_client("");
    must_release(must_acquire(early, &(struct want){.name = "early", .ttl_ms = TTL_MS}));
    nap_us(LISTENING_US);
    for (int i = 0; i < WATCHED_MOST; i++)
        watched_shut_out(watched.server[i], 0);
    server_does(stale,
                "ACL SETUSER default -publish"); /* nor do other sentinels tell it anything */
    server_does(stale, "SENTINEL SET mymaster quorum 4"); /* and it begins no failover */
    server_kill9(old);
    for (int i = 1; i < WATCHED_MOST; i++)
        await_other_name(watched.sentinel[i], old);
    struct want early_want = {.name = "early", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS};
    must_release(must_acquire(early, &early_want));
    server_restart(old, false); /* without the users of the sentinels */
    must_release(must_acquire(early, &early_want));
    assert_int_equal(calls_of_locks(old), 0);

    /* The stale sentinel alone answers until the lock is granted. Each client asks the next
     * sentinel after 50 ms, and a slow machine would often let another one answer first. */
    for (int i = 1; i < WATCHED_MOST; i++)
        server_pause(watched.sentinel[i]);
    int64_t opened = now_ns();
    hf_client *late = open_client("");
    struct want want = {
        .name = "job", .ttl_ms = LONG_TTL_MS, .wait_ms = PATIENCE_MS, .flags = HF_AUTO_RENEW};
    hf_lease *lease = hold_noting(late, &want, &loss);
    assert_int_equal(server_count(old, "EXISTS lock:job"), 1);
    for (int i = 1; i < WATCHED_MOST; i++)
        server_continue(watched.sentinel[i]);

    assert_true(watched_is_named(stale, old));
    await_loss(&loss, PATIENCE_MS); /* nothing else ends it: the old primary renews it */
    print_message("# a stale sentinel was believed for %lld ms\n",
                  (long long)ms_between(opened, loss.at_ns));
    int64_t before = calls_of_locks(old);
    hf_lease_free(lease);
    for (int i = 0; i < 10; i++) {
        must_release(must_acquire(late, &want));
        nap_us(20000);
    }
    assert_int_equal(calls_of_locks(old), before);
    assert_true(watched_is_named(stale, old));
}

/* ---- A primary that stands still for a moment ---- */

struct waiter {
    hf_client *client;
    pthread_t thread;
    hf_status status;
    uint64_t token;
};

static void *wait_for_turn(void *arg)
{
    struct waiter *w = arg;
    hf_lease *lease;
    struct hf_request request = request_of(
        &(struct want){.name = "job", .ttl_ms = 10000, .wait_ms = 30000, .flags = HF_AUTO_RENEW});
    w->status = hf_acquire(w->client, &request, &lease);
    if (w->status != HF_OK)
        return NULL;
    w->token = hf_lease_token(lease);
    nap_us(20000);
    must_release(lease);
    return NULL;
}

static void stand_still(int64_t ms)
{
    struct loss loss = {0};
    struct waiter waiter[WAITERS];
    hf_client *holder = open_client("");
    hf_lease *lease = hold_noting(
        holder, &(struct want){.name = "job", .ttl_ms = 10000, .flags = HF_AUTO_RENEW}, &loss);
    uint64_t token = hf_lease_token(lease);
    for (int i = 0; i < WAITERS; i++) {
        waiter[i] = (struct waiter){.client = open_client("")};
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, wait_for_turn, &waiter[i]), 0);
        await_sight(holder, "job", 1, i + 1);
    }
    nap_us(LISTENING_US);

    server_pause(watched.server[0]);
    nap_us(ms * 1000);
    server_continue(watched.server[0]);
    nap_us(1500000);              /* the sentinels noticed, */
    watched_await_rest(&watched); /* and a failover that has begun is over */
    print_message("# the primary stood still for %lld ms: %s\n", (long long)ms,
                  watched_primary(&watched) == watched.server[0] ? "it is the primary"
                                                                 : "another one is the primary");
    assert_true(hf_lease_ok(lease) && hf_lease_token(lease) == token);
    assert_int_equal(atomic_load(&loss.times), 0);
    must_release(lease);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiter[i].thread, NULL);
        assert_int_equal(waiter[i].status, HF_OK);
        assert_true(waiter[i].token > token); /* in their order */
        token = waiter[i].token;
    }
}

static void test_short_stop(void **state)
{
    (void)state;
    start_trio();
    for (int i = 0; i < WATCHED_MOST; i++) /* whatever the machine adds to the stop */
        server_does(watched.sentinel[i], "SENTINEL SET mymaster down-after-milliseconds 30000");
    stand_still(SHORT_MS);
    assert_ptr_equal(watched_primary(&watched), watched.server[0]);
}

static void test_long_stop(void **state)
{
    (void)state;
    start_trio();
    stand_still(LONG_MS);
}

/* ---- TLS and users ---- */

static const char *write_password(const char *name, const char *word)
{
    const char *path = server_file(watched.sentinel[0], name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s\n", word);
    fclose(out);
    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

static void tls_query(char *query, size_t size, const char *more)
{
    const char *files = watched_tls(&watched);
    int len = snprintf(query, size, "?ca=%s/ca.crt&cert=%s/client.crt&key=%s/client.key%s", files,
                       files, files, more);
    assert_true(len > 0 && (size_t)len < size);
}

static void refused(const char *more, hf_status status, const char *words)
{
    char url[1400], query[1000];
    hf_client *c;
    hf_lease *lease;
    struct hf_request request = request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS});
    tls_query(query, sizeof query, more);
    watched_url(&watched, query, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &c), HF_OK);
    hf_status got = hf_acquire(c, &request, &lease);
    print_message("# %s\n", hf_error_text());
    assert_int_equal(got, status);
    if (!strstr(hf_error_text(), words))
        fail_msg("does not contain: %s", words);
    assert_int_equal(hf_close(c, 1000), HF_OK);
}

static hf_client *open_tls(const char *more)
{
    char query[1000], url[1400];
    tls_query(query, sizeof query, more);
    watched_url(&watched, query, url, sizeof url);
    return open_url(url);
}

/* The sentinel names the primary by its address, and its certificate has only a name. */
static void test_tls_and_users(void **state)
{
    (void)state;
    struct loss loss = {0};
    char right[400], wrong[400], simple[400];
    server_needed(SERVER_REDIS);
    watched_start(&watched,
                  &(struct watched_options){
                      .replicas = 1,
                      .sentinels = 1,
                      .tls = true,
                      .sentinel_password = "other",
                      .lines = "user asker on >word allchannels -@all +sentinel|master +subscribe "
                               "+ping\n"
                               "user simple on >word allchannels -@all "
                               "+sentinel|get-master-addr-by-name +subscribe +ping"});
    snprintf(right, sizeof right,
             "&tls_name=locks.example&sentinel_user=asker&sentinel_password_file=%s",
             write_password("word", "word"));
    snprintf(simple, sizeof simple,
             "&tls_name=locks.example&sentinel_user=simple&sentinel_password_file=%s",
             server_file(watched.sentinel[0], "word"));
    snprintf(wrong, sizeof wrong,
             "&tls_name=locks.example&sentinel_user=asker&sentinel_password_file=%s",
             write_password("wrong", "wrong"));
    refused("", HF_CONFIG, "certificate is for another host");
    refused("&tls_name=locks.example", HF_DENIED, "sentinel_password_file");
    refused(wrong, HF_DENIED, "WRONGPASS");
    must_release(must_acquire(open_tls(simple), &(struct want){.name = "a", .ttl_ms = TTL_MS}));

    hf_lease *lease = hold_noting(
        open_tls(right),
        &(struct want){.name = "job", .ttl_ms = LONG_TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    nap_us(LISTENING_US);
    server_does(watched.sentinel[0], "SENTINEL FAILOVER mymaster");
    watched_await_switch(&watched, watched.server[0]);
    /* a connection to the old primary that ends in between makes an unknown outcome */
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    while (hf_extend(lease, LONG_TTL_MS) != HF_OK)
        assert_true(now_ns() < end);
    assert_int_equal(atomic_load(&loss.times), 0);
    must_release(lease);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SPLIT("a primary and a client are cut off: the client hears of its loss when that heals",
              test_cut_off),
        SPLIT("the same with min-replicas-to-write: one holder at a time", test_cut_off_guarded),
        SPLIT("a sentinel that names an old primary is not believed against the others",
              test_stale_sentinel),
        SPLIT("a primary that stands still for 0.4 s goes on", test_short_stop),
        SPLIT("a primary that stands still for 2 s: nothing is lost, replaced or not",
              test_long_stop),
        SPLIT("TLS and a user at the sentinels, a primary that is found by its address",
              test_tls_and_users),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests_name("sentinel: splits", tests, NULL, NULL);
}
