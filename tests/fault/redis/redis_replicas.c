/* redis_replicas.c - replicas=K and fsync=1 on real servers: what was granted had been
 * acknowledged, what was not acknowledged is not held and not left behind, and the time that is
 * shown never counts on a renewal that was not. */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <pthread.h>
#include <unistd.h>

enum { TIMEOUT_MS = 300, TTL_MS = 6000, SLACK_MS = 700 };

static struct server *replica;

/* The primary is the scene's server; clients of its URL want one replica. */
static void start_replica(const char *query)
{
    replica = server_start(&(struct server_options){.kind = scene.kind});
    server_replica_of(replica, scene.server);
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?replica_timeout=%dms&%s",
             server_port(scene.server), TIMEOUT_MS, query);
}

static struct hf_request ask_for(const char *name)
{
    return request_of(&(struct want){.name = name, .ttl_ms = TTL_MS});
}

static int64_t exists(struct server *s, const char *name)
{
    return server_count(s, "EXISTS lock:%s", name);
}

static void expect_refusal(hf_status status, hf_status wanted, const char *words)
{
    if (status != wanted || !strstr(hf_error_text(), words))
        fail_msg("%s (%s), not %s with \"%s\"", hf_status_name(status),
                 status ? hf_error_text() : "", hf_status_name(wanted), words);
}

/* Must not be granted; how long that took, in ms. */
static int64_t must_fail(hf_client *client, const struct hf_request *request, hf_status wanted,
                         const char *words)
{
    hf_lease *lease;
    int64_t from = now_ns();
    expect_refusal(hf_acquire(client, request, &lease), wanted, words);
    assert_null(lease);
    return (now_ns() - from) / 1000000;
}

/* ---- What MONITOR sees ---- */

/* A connection that sees every command of every other one. */
static redisContext *begin_monitor(void)
{
    redisContext *to = server_connect(scene.server);
    redisReply *reply = redisCommand(to, "MONITOR");
    assert_non_null(reply);
    freeReplyObject(reply);
    return to;
}

/* What was sent until now: who sent FCALL, who WAIT, and what else those did that sent a WAIT. */
struct seen {
    int waits, evals_before_wait;
    bool only_own; /* whoever sends WAIT sends nothing but scripts and its greeting beside it */
    char wait_from[64];
};

static struct seen end_monitor(redisContext *to)
{
    struct seen seen = {.only_own = true};
    char last[64] = "";
    server_does(scene.server, "ECHO end-of-the-test");
    for (;;) {
        redisReply *reply;
        char from[64] = "", command[64] = "";
        assert_int_equal(redisGetReply(to, (void **)&reply), REDIS_OK);
        bool over = strstr(reply->str, "end-of-the-test");
        /* 1700000000.123456 [0 127.0.0.1:4711] "WAIT" "1" "300" */
        sscanf(reply->str, "%*s [%*s %63[^]]] \"%63[^\"]\"", from, command);
        freeReplyObject(reply);
        if (over)
            break;
        if (strcmp(command, "WAIT") == 0 || strcmp(command, "WAITAOF") == 0) {
            seen.evals_before_wait += strcmp(last, from) == 0;
            seen.waits++;
            strcpy(seen.wait_from, from);
        }
        if (strcmp(from, "lua") != 0)
            strcpy(last, strcmp(command, "FCALL") == 0 ? from : "");
        if (seen.wait_from[0] && strcmp(from, seen.wait_from) == 0 &&
            !strstr("FCALL WAIT WAITAOF", command))
            seen.only_own = false;
    }
    redisFree(to);
    return seen;
}

/* ---- Tests ---- */

static void test_a_grant_was_acknowledged(void **state)
{
    (void)state;
    start_replica("replicas=1");
    hf_client *client = scene_client();
    struct hf_request request = ask_for("a");
    hf_lease *lease, *other;
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK); /* connects */
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    redisContext *monitor = begin_monitor();
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    assert_int_equal(exists(replica, "a"), 1); /* there, without any waiting on our side */
    assert_int_equal(hf_acquire(client, &request, &other), HF_BUSY);
    struct seen seen = end_monitor(monitor);
    print_message("# %d WAIT, on a connection of its own\n", seen.waits);
    assert_int_equal(seen.waits, 1); /* and none behind the refusal */
    assert_int_equal(seen.evals_before_wait, 1);
    assert_true(seen.only_own);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(exists(scene.server, "a"), 0);
    assert_int_equal(scene_connections(0),
                     2); /* one for what replicas acknowledge, one for the rest */
}

static void test_a_grant_without_replicas_is_taken_back(void **state)
{
    (void)state;
    start_replica("replicas=1");
    hf_client *client = scene_client();
    struct hf_request request = ask_for("b");
    server_pause(replica);
    int64_t took = must_fail(client, &request, HF_NOT_REPLICATED, "0 of 1 replicas");
    assert_in_range(took, TIMEOUT_MS - 1, TIMEOUT_MS + SLACK_MS);
    assert_int_equal(hf_status_exit_code(HF_NOT_REPLICATED), 69);
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; exists(scene.server, "b");
         nap_us(1000))
        assert_true(now_ns() < end);
    /* With time to wait it is tried until the replica is back. */
    request.wait_ms = 8000;
    struct actor *patient = scene_actor();
    actor_acquire(patient, 1, ORDER_ACQUIRE,
                  &(struct want){.name = "b", .ttl_ms = TTL_MS, .wait_ms = 8000});
    nap_us(2 * TIMEOUT_MS * 1000);
    assert_true(actor_is_silent(patient));
    server_continue(replica);
    assert_int_equal(actor_answer(patient, ORDER_ACQUIRE, 1).status, HF_OK);
    assert_int_equal(exists(replica, "b"), 1);
    actor_does(patient, ORDER_RELEASE, 1);
}

/* Two are asked for, and there is one. */
static void test_it_says_how_many(void **state)
{
    (void)state;
    start_replica("replicas=2");
    struct hf_request request = ask_for("c");
    must_fail(scene_client(), &request, HF_NOT_REPLICATED,
              "1 of 2 replicas acknowledged it within 300 ms");
    assert_int_equal(exists(scene.server, "c"), 0);
}

static void test_a_renewal_without_replicas_counts_for_nothing(void **state)
{
    (void)state;
    start_replica("replicas=1");
    struct hf_request request = ask_for("d");
    request.ttl_ms = 3000;
    hf_lease *lease;
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    server_pause(replica);
    int64_t left = hf_lease_left_ms(lease), from = now_ns();
    expect_refusal(hf_extend(lease, 3000), HF_NOT_REPLICATED, "0 of 1");
    assert_true(server_count(scene.server, "PTTL lock:d") >
                hf_lease_left_ms(lease)); /* the server has extended it */
    redisReply *killed =
        server_cli(scene.server, "CLIENT KILL TYPE normal SKIPME yes"); /* so that it is checked */
    freeReplyObject(killed);
    int64_t looked = from;
    while (hf_lease_ok(lease)) { /* its own renewals and checks do not help either */
        int64_t before = now_ns();
        int64_t shown = hf_lease_left_ms(lease);
        if (shown > left - (before - from) / 1000000 + 50) /* a renewal would add hundreds */
            fail_msg("%lld ms left, %lld ms after it was %lld", (long long)shown,
                     (long long)(before - from) / 1000000, (long long)left);
        looked = before;
        assert_true(now_ns() - from < INT64_C(4000000000));
        nap_us(5000);
    }
    assert_true(looked > from);
    server_continue(replica);
    hf_lease_free(lease);
}

/* A message of a hand-over is not enough: the claim is written, and waited for. */
static void test_a_hand_over_is_acknowledged(void **state)
{
    (void)state;
    start_replica("replicas=1");
    const struct want want = {.name = "e", .ttl_ms = TTL_MS, .wait_ms = 8000};
    struct actor *one = scene_actor(), *other = scene_actor();
    actor_holds(one, 1, &want);
    actor_acquire(other, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("e", 1);
    redisContext *monitor = begin_monitor();
    actor_does(one, ORDER_RELEASE, 1);
    struct answer granted = actor_answer(other, ORDER_ACQUIRE, 1);
    assert_int_equal(granted.status, HF_OK);
    struct seen seen = end_monitor(monitor);
    assert_int_equal(seen.waits, 1);
    assert_int_equal(seen.evals_before_wait, 1);
    actor_does(other, ORDER_RELEASE, 1);
    /* And with a replica that does not answer, the hand-over is not a grant. */
    actor_holds(one, 2, &want);
    actor_acquire(other, 2, ORDER_ACQUIRE,
                  &(struct want){.name = "e", .ttl_ms = TTL_MS, .wait_ms = 2000});
    scene_await_queue("e", 1);
    server_pause(replica);
    actor_does(one, ORDER_RELEASE, 2);
    assert_int_equal(actor_answer(other, ORDER_ACQUIRE, 2).status, HF_NOT_REPLICATED);
    server_continue(replica);
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; exists(scene.server, "e");
         nap_us(1000))
        assert_true(now_ns() < end);
}

/* The wait ends while replicas are still being asked: the lock was free, so it was not the holder
 * that took too long.
 */
static void test_a_wait_ends_before_replicas_answer(void **state)
{
    (void)state;
    start_replica("replicas=1");
    struct actor *one = scene_actor();
    actor_holds(one, 1, &(struct want){.name = "e", .ttl_ms = TTL_MS});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?replicas=1&replica_timeout=8s",
             server_port(scene.server));
    struct actor *other = scene_actor();
    actor_acquire(other, 1, ORDER_ACQUIRE,
                  &(struct want){.name = "e", .ttl_ms = TTL_MS, .wait_ms = 1500});
    scene_await_queue("e", 1);
    server_pause(replica);
    actor_does(one, ORDER_RELEASE, 1);
    assert_int_equal(actor_answer(other, ORDER_ACQUIRE, 1).status, HF_NOT_REPLICATED);
    server_continue(replica);
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; exists(scene.server, "e");
         nap_us(1000))
        assert_true(now_ns() < end);
}

/* ---- Who is shown ---- */

struct shown {
    int rows;
    int64_t pid;
    char host[64], label[64];
};

static void note_row(void *arg, const struct hf_row *row)
{
    struct shown *shown = arg;
    shown->rows++;
    shown->pid = row->pid;
    snprintf(shown->host, sizeof shown->host, "%s", row->host);
    snprintf(shown->label, sizeof shown->label, "%s", row->label);
}

static void must_be_us(const struct shown *shown)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    assert_int_equal(shown->rows, 1);
    assert_int_equal(shown->pid, getpid());
    assert_string_equal(shown->host, host);
    assert_string_equal(shown->label, "the nightly job");
}

/* A client that took a grant back names itself as before, in what it holds next and in what it
 * held. */
static void test_who_holds_is_shown_behind_a_failed_try(void **state)
{
    (void)state;
    start_replica("replicas=1&history=5");
    struct hf_request request = ask_for("m");
    hf_lease *lease;
    request.label = "the nightly job";
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK); /* connects */
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    server_pause(replica);
    must_fail(scene_client(), &request, HF_NOT_REPLICATED, "0 of 1 replicas");
    server_continue(replica);
    struct shown held = {0}, past = {0};
    request.name = "n";
    request.wait_ms = 8000;
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    assert_int_equal(hf_show(scene_client(), "n", note_row, &held), HF_OK);
    must_be_us(&held);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(hf_history(scene_client(), "n", note_row, &past), HF_OK);
    assert_string_equal(past.label, "the nightly job");
    assert_int_equal(past.pid, getpid());
}

/* Several threads of one process: one WAIT vouches for what was written before it, and who comes
 * later waits for the next one. None is cut off because another's takes long. */
static void *fail_once(void *arg)
{
    struct hf_request request = ask_for(arg);
    hf_lease *lease;
    hf_status status = hf_acquire(scene.client, &request, &lease);
    return strstr(hf_error_text(), "0 of 1") ? (void *)(uintptr_t)status : NULL;
}

static void test_threads_share(void **state)
{
    (void)state;
    static char names[][8] = {"f1", "f2", "f3"};
    pthread_t thread[3];
    start_replica(
        "replicas=1&op_timeout=250ms"); /* the second may come behind the WAIT of the first */
    struct hf_request request = ask_for("f0");
    hf_lease *lease;
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    server_pause(replica);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, fail_once, names[i]), 0);
    int told = 0;
    for (int i = 0; i < 3; i++) {
        void *status;
        pthread_join(thread[i], &status);
        told += (uintptr_t)status == HF_NOT_REPLICATED;
    }
    print_message("# %d of 3 were told how many replicas acknowledged\n", told);
    assert_int_equal(told, 3);
    assert_true(hf_lease_ok(lease));
    server_continue(replica);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    for (int i = 0; i < 3; i++)
        for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
             exists(scene.server, names[i]); nap_us(1000))
            assert_true(now_ns() < end);
}

/* An entry of an owner that has one already, in another client: they share a token. */
static struct hf_request ask_as_owner(int64_t wait_ms)
{
    struct hf_request request =
        request_of(&(struct want){.name = "l", .ttl_ms = 60000, .wait_ms = wait_ms});
    request.owner = "somebody";
    return request;
}

static void *enter_again(void *lease)
{
    struct hf_request request = ask_as_owner(20000);
    return (void *)(uintptr_t)hf_acquire(scene.client, &request, lease);
}

/* The bytes of an ask and its WAIT, which are always as many; all is given back. */
static uint64_t count_bytes_of_ask(struct proxy *proxy)
{
    uint64_t before = 0, behind = 0;
    for (int i = 0; i < 2; i++) {
        struct hf_request request = ask_as_owner(20000);
        hf_lease *lease;
        before = behind;
        assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
        behind = proxy_bytes(proxy, 1, PROXY_REQUESTS);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
    }
    return behind - before;
}

/* The line breaks under what takes the grant back; the entry is asked for and granted again, and
 * then that comes. */
static void test_a_late_take_back_takes_nothing(void **state)
{
    (void)state;
    hf_client *other;
    hf_lease *outer, *inner;
    pthread_t thread;
    void *status;
    char direct[64];
    start_replica("replicas=1");
    struct proxy *proxy = proxy_start(server_port(scene.server));
    snprintf(direct, sizeof direct, "redis://127.0.0.1:%u", server_port(scene.server));
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?replica_timeout=%dms&replicas=1",
             proxy_port(proxy), TIMEOUT_MS);
    struct hf_request request = ask_as_owner(0);
    uint64_t ask = count_bytes_of_ask(proxy);
    assert_int_equal(hf_open(direct, NULL, &other), HF_OK);
    assert_int_equal(hf_acquire(other, &request, &outer), HF_OK);
    int late = proxy_plant(
        proxy, &(struct proxy_fault){.kind = PROXY_LATE,
                                     .way = PROXY_REQUESTS,
                                     .connection = 1,
                                     .after = proxy_bytes(proxy, 1, PROXY_REQUESTS) + ask});
    server_pause(replica);
    assert_int_equal(pthread_create(&thread, NULL, enter_again, &inner), 0);
    proxy_await(proxy, late);
    server_continue(replica);
    pthread_join(thread, &status);
    assert_int_equal((uintptr_t)status, HF_OK);
    assert_int_equal(server_count(scene.server, "ZCARD {lock:l}:h"), 2);
    assert_true(proxy_deliver(proxy, late) > 0);
    assert_int_equal(server_count(scene.server, "ZCARD {lock:l}:h"), 2);
    assert_int_equal(hf_release(outer), HF_OK);
    assert_int_equal(exists(scene.server, "l"), 1);
    assert_true(hf_lease_ok(inner));
    assert_int_equal(hf_release(inner), HF_OK);
    assert_int_equal(exists(scene.server, "l"), 0);
    hf_lease_free(outer);
    hf_lease_free(inner);
    assert_int_equal(hf_close(other, 5000), HF_OK);
    assert_int_equal(hf_close(scene.client, 5000), HF_OK);
    scene.client = NULL;
    proxy_end(proxy);
}

/* A reader that becomes the writer without replicas is a reader again. */
static void test_an_upgrade_is_taken_back(void **state)
{
    (void)state;
    start_replica("replicas=1");
    struct hf_request request =
        request_of(&(struct want){.name = "g", .kind = HF_READ, .ttl_ms = TTL_MS});
    hf_lease *lease, *other;
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    server_pause(replica);
    expect_refusal(hf_upgrade(lease), HF_NOT_REPLICATED, "0 of 1");
    server_continue(replica);
    request.wait_ms = 3000;
    assert_int_equal(hf_acquire(scene_client(), &request, &other), HF_OK); /* both read */
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_release(other), HF_OK);
    assert_int_equal(hf_upgrade(lease), HF_OK);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(other);
    hf_lease_free(lease);
}

/* A detached hold that somebody lengthened while the replica was stopped: the server shows that
 * time, and whoever takes the hold up by its text does not count on it. What cannot be acknowledged
 * is refused, and the hold stays. */
static void test_a_hold_is_taken_up_when_it_is_acknowledged(void **state)
{
    (void)state;
    char text[HF_EXPORT_MAX], weak_url[64];
    hf_client *weak;
    hf_lease *lease, *lengthened;
    start_replica("replicas=1");
    snprintf(weak_url, sizeof weak_url, "redis://127.0.0.1:%u", server_port(scene.server));
    assert_int_equal(hf_open(weak_url, NULL, &weak), HF_OK);
    lease = must_acquire(weak, &(struct want){.name = "k", .ttl_ms = TTL_MS, .flags = HF_DETACHED});
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    server_pause(replica);
    assert_int_equal(hf_lease_attach(weak, text, &lengthened), HF_OK);
    assert_int_equal(hf_extend(lengthened, 5 * TTL_MS), HF_OK);
    int64_t from = now_ns();
    expect_refusal(hf_lease_attach(scene_client(), text, &lease), HF_NOT_REPLICATED,
                   "0 of 1 replicas");
    assert_in_range((now_ns() - from) / 1000000, TIMEOUT_MS - 1, TIMEOUT_MS + SLACK_MS);
    assert_null(lease);
    server_continue(replica);
    redisContext *monitor = begin_monitor();
    while (hf_lease_attach(scene_client(), text, &lease) !=
           HF_OK) /* it may take a while to catch up */
        expect_refusal(HF_NOT_REPLICATED, HF_NOT_REPLICATED, "0 of 1");
    int64_t shown = hf_lease_left_ms(lease);
    assert_in_range(server_count(replica, "PTTL lock:k"), shown,
                    5 * TTL_MS); /* nothing was taken back meanwhile */
    assert_true(shown > 4 * TTL_MS);
    struct seen seen = end_monitor(monitor);
    assert_int_equal(seen.evals_before_wait, seen.waits);
    assert_true(seen.waits > 0 && seen.only_own);
    assert_int_equal(hf_release(lease), HF_OK);
    assert_int_equal(exists(scene.server, "k"), 0);
    hf_lease_free(lease);
    hf_lease_free(lengthened);
    assert_int_equal(hf_close(weak, 5000), HF_OK);
}

static bool has_waitaof(void)
{
    redisReply *info = server_cli(scene.server, "COMMAND INFO waitaof");
    bool known = info->elements == 1 && info->element[0]->type == REDIS_REPLY_ARRAY;
    freeReplyObject(info);
    return known;
}

/* fsync=1: Redis 7.0 has no WAITAOF, and a server without an append-only file cannot have it there.
 */
static void test_fsync_is_refused_where_it_cannot_be(void **state)
{
    (void)state;
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?fsync=1",
             server_port(scene.server));
    struct hf_request request = ask_for("h");
    request.wait_ms = 5000;
    const char *words = has_waitaof() ? "no append-only file" : "has no WAITAOF; Redis 7.2";
    int64_t took = must_fail(scene_client(), &request, HF_CONFIG, words);
    assert_in_range(took, 0, SLACK_MS); /* at once */
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; exists(scene.server, "h");
         nap_us(1000))
        assert_true(now_ns() < end);
}

static void test_fsync_waits_for_the_file(void **state)
{
    (void)state;
    if (!has_waitaof()) {
        print_message("# skipped: Redis 7.0 has no WAITAOF\n");
        skip();
    }
    server_does(scene.server, "CONFIG SET appendonly yes");
    server_does(scene.server, "CONFIG SET appendfsync everysec");
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?fsync=1&replica_timeout=4s",
             server_port(scene.server));
    struct hf_request request = ask_for("i");
    hf_lease *lease;
    redisContext *monitor = begin_monitor();
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_OK);
    assert_int_equal(end_monitor(monitor).waits, 1);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    /* A file that is never synced acknowledges nothing. */
    server_does(scene.server, "CONFIG SET appendfsync no");
    assert_int_equal(hf_close(scene.client, 5000), HF_OK);
    scene.client = NULL;
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?fsync=1&replica_timeout=300ms",
             server_port(scene.server));
    must_fail(scene_client(), &request, HF_NOT_REPLICATED,
              "not in the server's own file within 300 ms");
    for (int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000; exists(scene.server, "i");
         nap_us(1000))
        assert_true(now_ns() < end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "a grant was acknowledged, on a connection that carries nothing else; a refusal "
                 "is not waited for",
         .test_func = test_a_grant_was_acknowledged},
        {.name = "a grant that no replica acknowledged is taken back, and tried again while there "
                 "is time",
         .test_func = test_a_grant_without_replicas_is_taken_back},
        {.name = "it says how many acknowledged", .test_func = test_it_says_how_many},
        {.name = "a renewal without replicas does not lengthen the time that is shown",
         .test_func = test_a_renewal_without_replicas_counts_for_nothing},
        {.name = "a hand-over is confirmed and acknowledged, or no grant",
         .test_func = test_a_hand_over_is_acknowledged},
        {.name = "a wait that ends while replicas are asked ends because of them",
         .test_func = test_a_wait_ends_before_replicas_answer},
        {.name =
             "who holds is shown with pid, host and label also behind a grant that was taken back",
         .test_func = test_who_holds_is_shown_behind_a_failed_try},
        {.name = "threads share what replicas acknowledge, and none cuts another off",
         .test_func = test_threads_share},
        {.name =
             "what takes a grant back and comes late does not take the next one of the same entry",
         .test_func = test_a_late_take_back_takes_nothing},
        {.name = "an upgrade without replicas is taken back",
         .test_func = test_an_upgrade_is_taken_back},
        {.name = "a hold is taken up by its text when replicas have acknowledged its time, and not "
                 "before",
         .test_func = test_a_hold_is_taken_up_when_it_is_acknowledged},
        {.name = "fsync=1 is refused at once where the server cannot do it",
         .test_func = test_fsync_is_refused_where_it_cannot_be},
        {.name = "fsync=1 waits for the server's file", .test_func = test_fsync_waits_for_the_file},
    };
    return SCENE_JUDGE(tests);
}
