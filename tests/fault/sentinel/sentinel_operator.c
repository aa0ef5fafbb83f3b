/* sentinel_operator.c - what operators and machines do to a watched primary: failovers by command
 * under load, a restart without data, clocks that differ, replicas that are missing, sentinels that
 * forget (G40, G41, G42, G43). */
#include "lib/fenced_workers.h"
#include "lib/loss_notes.h"
#include "lib/quorum_servers_setup.h"
#include "lib/sentinel_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKERS = 4,
    TTL_MS = 10000,
    CLOCK_S = 3,
    LISTENING_US = 1200000,
    PATIENCE_MS = 60000,
    LONG_TTL_MS = 60000
};

static struct watched watched;
static hf_client *client[WORKERS + 2];
static unsigned clients;
static unsigned failovers = 2;

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

static void start_trio(const char *preload)
{
    server_needed(SERVER_REDIS);
    watched_start(&watched,
                  &(struct watched_options){.replicas = 2, .sentinels = 3, .preload = preload});
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

/* ---- Failovers under load ---- */

static void fail_over_by_command(const char *command)
{
    struct server *old = watched_primary(&watched);
    for (int i = 0; i < 100; i++) {
        redisReply *reply = server_cli(watched.sentinel[0], command);
        bool began = reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (began)
            break;
        nap_us(200000); /* the last one is not quite over */
    }
    watched_await_switch(&watched, old);
}

static struct worker_totals work_through(const char *command)
{
    static const struct want want = {
        .name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS, .flags = HF_AUTO_RENEW};
    for (int i = 0; i < WORKERS; i++)
        open_client("");
    workers_begin(client, WORKERS, &want);
    nap_us(LISTENING_US);
    for (unsigned i = 0; i < failovers; i++) {
        fail_over_by_command(command);
        nap_us(500000);
    }

    struct worker_totals totals = workers_end();
    assert_int_equal(totals.unserved, 0);
    assert_true(totals.writes > 10);
    assert_true(totals.longest_ms < PATIENCE_MS);
    return totals;
}

/* Redis keeps the old primary writable for seconds after a failover by command. Whatever is granted
 * there and lost must be refused by the store, and everybody must be served by the new one. */
static void test_command_under_load(void **state)
{
    (void)state;
    start_trio(NULL);
    work_through("SENTINEL FAILOVER mymaster");
}

/* Valkey 9 has a failover for which the old primary closes before the new one opens. */
static void test_coordinated(void **state)
{
    static const char command[] = "SENTINEL FAILOVER mymaster COORDINATED";
    (void)state;
    start_trio(NULL);
    redisReply *reply = server_cli(watched.sentinel[0], "SENTINEL FAILOVER nobody COORDINATED");
    bool is_known = reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "No such master");
    freeReplyObject(reply);
    if (!is_known) {
        print_message("# skipped: this server has no coordinated failover; Valkey 9 has\n");
        skip();
    }
    struct worker_totals totals = work_through(command);
    assert_int_equal(totals.refused, 0);
    assert_int_equal(totals.most, 1);
}

/* ---- A restart without data ---- */

static void test_restart_without_data(void **state)
{
    (void)state;
    struct loss loss = {0};
    start_trio(NULL);
    hf_client *holder = open_client(""), *other = open_client("");
    hf_lease *lease = hold_noting(
        holder, &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    nap_us(LISTENING_US);
    int64_t began = now_ns();
    server_restart(watched.server[0], false);
    hf_lease *next = must_acquire(
        other, &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = PATIENCE_MS});
    while (!loss.times && ms_since(began) < PATIENCE_MS)
        nap_us(1000);

    print_message("# restarted empty: the holder heard of its loss after %lld ms\n",
                  (long long)(loss.at_ns - began) / 1000000);
    assert_int_equal(loss.times, 1);
    assert_true(hf_lease_token(next) > hf_lease_token(lease));
    hf_lease_free(lease);
    must_release(next);
}

/* ---- Clocks that differ ---- */

static struct server *promote_with_clock(int64_t seconds)
{
    struct quorum replicas = {.count = 2, .server = {watched.server[1], watched.server[2]}};
    for (unsigned i = 0; i < replicas.count; i++)
        quorum_step_clock(&replicas, i, seconds);
    server_kill9(watched.server[0]);
    return watched_await_switch(&watched, watched.server[0]);
}

/* The record of a hold ends by the clock of the server that has it now. A lease that is renewed
 * goes on; one that is not must not believe longer than its record lives. */
static void test_clock_ahead(void **state)
{
    (void)state;
    struct loss renewed_loss = {0};
    start_trio(HF_WRONG_CLOCK);
    hf_client *c = open_client("");
    hf_lease *renewed =
        hold_noting(c, &(struct want){.name = "renewed", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW},
                    &renewed_loss);
    nap_us(LISTENING_US);
    hf_lease *plain = hold_noting(c, &(struct want){.name = "plain", .ttl_ms = LONG_TTL_MS}, NULL);
    promote_with_clock(CLOCK_S);

    struct server *new = watched_primary(&watched);
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000), left, record;
    do { /* the belief first: the record ends while the reply is on its way */
        left = hf_lease_left_ms(plain);
        record = server_count(new, "PTTL lock:plain");
        nap_us(20000);
    } while (left > record && now_ns() < end);
    print_message("# the record ends in %lld ms, the belief in %lld ms\n", (long long)record,
                  (long long)left);
    assert_true(record > 0 && left > 0 && left <= record);
    assert_true(record < LONG_TTL_MS - CLOCK_S * 1000); /* the clock cost the record its time */
    assert_true(hf_lease_ok(renewed));
    assert_int_equal(renewed_loss.times, 0);
    hf_lease_free(plain);
    must_release(renewed);
}

/* The new primary has neither the counter nor the time: a client that knew the old one sends what
 * it knows. */
static void test_clock_behind(void **state)
{
    (void)state;
    start_trio(HF_WRONG_CLOCK);
    hf_client *c = open_client("");
    nap_us(LISTENING_US);
    must_release(must_acquire(c, &(struct want){.name = "early", .ttl_ms = TTL_MS}));
    server_does(watched.server[1], "REPLICAOF NO ONE");
    server_does(watched.server[2], "REPLICAOF NO ONE");
    hf_lease *lease = must_acquire(c, &(struct want){.name = "job", .ttl_ms = TTL_MS});
    uint64_t token = hf_lease_token(lease);
    hf_lease_free(lease);
    server_does(watched.server[1], "DEL lock:job ~t:lock:job");
    promote_with_clock(-60);

    hf_lease *next =
        must_acquire(c, &(struct want){.name = "job", .ttl_ms = TTL_MS, .wait_ms = 2 * TTL_MS});
    print_message("# the clock is 60 s behind: the next token is higher by %lld\n",
                  (long long)(hf_lease_token(next) - token));
    assert_true(hf_lease_token(next) > token);
    must_release(next);
}

/* ---- Replicas that are missing ---- */

static void test_replicas_missing(void **state)
{
    (void)state;
    start_trio(NULL);
    hf_client *both = open_client("?replicas=2&replica_timeout=2s"),
              *one = open_client("?replicas=1&replica_timeout=20s");
    must_release(must_acquire(both, &(struct want){.name = "both", .ttl_ms = TTL_MS}));
    server_kill9(watched.server[2]);

    struct hf_request request = request_of(&(struct want){.name = "both", .ttl_ms = TTL_MS});
    hf_lease *lease;
    assert_int_equal(hf_acquire(both, &request, &lease), HF_NOT_REPLICATED);
    print_message("# %s\n", hf_error_text());
    must_release(must_acquire(one, &(struct want){.name = "one", .ttl_ms = TTL_MS}));
}

/* ---- Sentinels that forget ---- */

static void test_reset_and_remove(void **state)
{
    (void)state;
    struct loss loss = {0};
    char url[512];
    hf_client *late;
    start_trio(NULL);
    hf_client *c = open_client("");
    hf_lease *lease = hold_noting(
        c, &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW}, &loss);
    nap_us(LISTENING_US);
    for (int i = 0; i < WATCHED_MOST; i++) {
        server_does(watched.sentinel[i], "SENTINEL SET mymaster quorum 1");
        server_does(watched.sentinel[i], "SENTINEL FLUSHCONFIG");
    }
    must_release(must_acquire(c, &(struct want){.name = "quorum", .ttl_ms = TTL_MS}));
    for (int i = 0; i < WATCHED_MOST; i++)
        server_does(watched.sentinel[i], "SENTINEL RESET mymaster");
    must_release(must_acquire(c, &(struct want){.name = "reset", .ttl_ms = TTL_MS}));
    for (int i = 0; i < WATCHED_MOST; i++)
        server_does(watched.sentinel[i], "SENTINEL REMOVE mymaster");
    must_release(must_acquire(c, &(struct want){.name = "removed", .ttl_ms = TTL_MS}));
    assert_true(hf_lease_ok(lease));
    assert_int_equal(loss.times, 0);

    watched_url(&watched, "", url, sizeof url);
    struct hf_request request = request_of(&(struct want){.name = "job", .ttl_ms = TTL_MS});
    hf_lease *none;
    assert_int_equal(hf_open(url, NULL, &late), HF_OK);
    assert_int_equal(hf_acquire(late, &request, &none), HF_CONFIG);
    print_message("# a new client: %s\n", hf_error_text());
    assert_int_equal(hf_close(late, 1000), HF_OK);
    must_release(lease);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WATCHED("failovers by command under load: all are served, the store refuses what was lost",
                test_command_under_load),
        WATCHED("a coordinated failover under load loses no grant", test_coordinated),
        WATCHED("a primary that restarts without data: its holder is told, tokens rise",
                test_restart_without_data),
        WATCHED("the new primary's clock is ahead: no belief outlasts its record",
                test_clock_ahead),
        WATCHED("the new primary's clock is behind and its data lost: tokens rise for its clients",
                test_clock_behind),
        WATCHED("a replica is missing: two acknowledgements fail, one does not",
                test_replicas_missing),
        WATCHED("sentinels that forget the primary stop nobody who knows it",
                test_reset_and_remove),
    };
    failovers = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : failovers;
    cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests_name("sentinel: operators", tests, NULL, NULL);
}
