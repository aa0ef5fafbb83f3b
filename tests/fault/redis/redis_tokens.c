/* redis_tokens.c - who comes late changes nothing, and tokens rise whatever happens to a real
 * server: over many grants from several processes, FLUSHALL, a restart without data, the promotion
 * of a replica that missed the last grants. Usage: redis_tokens [GRANTS] */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <stdatomic.h>

static int grants_wanted = 100000;

/* ---- Latecomers ---- */

enum { BRIEF_MS = 300 };

static const struct want brief = {.name = "l", .ttl_ms = BRIEF_MS};
static const struct want lasting = {.name = "l", .ttl_ms = 60000, .wait_ms = 5000};

/* All that the server knows of who holds. */
struct record {
    char value[256];
    int64_t end_ms;
};

static struct record read_record(void)
{
    struct record record = {.end_ms = server_count(scene.server, "PEXPIRETIME lock:l")};
    redisReply *value = server_cli(scene.server, "GET lock:l");
    assert_int_equal(value->type, REDIS_REPLY_STRING);
    snprintf(record.value, sizeof record.value, "%s", value->str);
    freeReplyObject(value);
    return record;
}

static void check_untouched(struct actor *holder, const struct record *before)
{
    struct record now = read_record();
    assert_string_equal(now.value, before->value);
    assert_int_equal(now.end_ms, before->end_ms);
    assert_int_equal(actor_does(holder, ORDER_LOOK, 0).status, HF_OK);
}

static void await_end_of_hold(void)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (server_count(scene.server, "EXISTS lock:l")) {
        assert_true(now_ns() < end);
        nap_us(1000);
    }
}

/* "l: the lease ended 123 ms ago" */
static long long read_ended_ms(const char *text)
{
    long long ms = -1;
    const char *words = strstr(text, "the lease ended ");
    if (!words || sscanf(words, "the lease ended %lld ms ago", &ms) != 1)
        fail_msg("the release said: %s", text);
    return ms;
}

/* G16 */
static void test_ended_holder(void **state)
{
    (void)state;
    struct actor *old = scene_actor(), *next = scene_actor();
    uint64_t token = actor_holds(old, 0, &brief).token;
    int64_t from_ns = now_ns();
    actor_stop(old); /* so that it cannot notice */
    await_end_of_hold();
    int64_t ended_ns = now_ns();
    assert_true(actor_holds(next, 0, &lasting).token > token);
    struct record record = read_record();
    nap_us(50000);
    actor_go_on(old);
    assert_int_equal(actor_does(old, ORDER_EXTEND, 0).status, HF_LOST);
    check_untouched(next, &record);
    struct answer release = actor_does(old, ORDER_RELEASE, 0);
    assert_int_equal(release.status, HF_NOT_HELD);
    check_untouched(next, &record);
    long long said_ms = read_ended_ms(release.text);
    double least_ms = (double)(release.at_ns - ended_ns) / 1e6;
    double most_ms = (double)(release.at_ns - from_ns) / 1e6 - BRIEF_MS + 50;
    printf("# released by an ended holder: \"%s\"; it was %.0f to %.0f ms\n", release.text,
           least_ms, most_ms);
    assert_true((double)said_ms >= least_ms - 20 && (double)said_ms <= most_ms);
}

/* G16 */
static void test_broken_holder(void **state)
{
    (void)state;
    struct actor *old = scene_actor(), *next = scene_actor();
    struct answer held = actor_holds(old, 0, &lasting);
    actor_holds(old, 1, &(struct want){.name = "other"});
    assert_int_equal(hf_break(scene_client(), "l", held.token, "for a test"), HF_OK);
    assert_true(actor_holds(next, 0, &lasting).token > held.token);
    struct record record = read_record();
    assert_int_equal(actor_does(old, ORDER_EXTEND, 0).status, HF_LOST);
    check_untouched(next, &record);
    assert_int_equal(actor_does(old, ORDER_RELEASE, 0).status, HF_NOT_HELD);
    check_untouched(next, &record);
    assert_int_equal(actor_does(old, ORDER_RELEASE, 1).status, HF_OK);
}

static void follow_through_proxy(struct actor *me, void *arg)
{
    char url[64];
    hf_client *client;
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", proxy_port(arg));
    part_must(hf_open(url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

/* The order is sent, and reaches the server when another one holds, who has less time left than an
 * extend would give.
 */
static void deliver_late(enum order_kind order)
{
    static const struct want second = {.name = "l", .ttl_ms = 1000};
    struct proxy *proxy = proxy_start(server_port(scene.server));
    struct actor *old = actor_start_part(follow_through_proxy, proxy), *next = scene_actor();
    actor_answer(old, ORDER_GO, 0);
    uint64_t token = actor_holds(old, 0, &second).token;
    int kept =
        proxy_plant(proxy, &(struct proxy_fault){.kind = PROXY_STALL,
                                                 .way = PROXY_REQUESTS,
                                                 .connection = 1,
                                                 .after = proxy_bytes(proxy, 1, PROXY_REQUESTS)});
    proxy_refuse(proxy, true); /* it shall not try again on another one */
    actor_order(old, order, 0);
    proxy_await(proxy, kept);
    await_end_of_hold();
    assert_true(actor_holds(next, 0, &second).token > token);
    struct record record = read_record();
    nap_us(20000);
    int64_t scripts = server_calls(scene.server, "fcall");
    assert_true(proxy_deliver(proxy, kept) > 0);
    assert_true(server_calls(scene.server, "fcall") > scripts);
    check_untouched(next, &record);
    assert_int_not_equal(actor_answer(old, order, 0).status, HF_OK);
    actor_kill(old);
    proxy_end(proxy);
}

/* G16 */
static void test_late_extend(void **state)
{
    (void)state;
    deliver_late(ORDER_EXTEND);
}

/* G16 */
static void test_late_release(void **state)
{
    (void)state;
    deliver_late(ORDER_RELEASE);
}

/* ---- Tokens ---- */

enum { WORKERS = 8, GRANTS_MOST = 2000000 };

/* What the workers share. A token must be higher than all that were known when it was asked for. */
struct ledger {
    _Atomic uint64_t highest;
    _Atomic int64_t grants;
    _Atomic bool over;
    uint64_t token[GRANTS_MOST];
};

static void enter(struct ledger *ledger, uint64_t token, uint64_t before)
{
    if (token <= before) {
        fprintf(stderr, "# token %llu was granted after %llu\n", (unsigned long long)token,
                (unsigned long long)before);
        part_must(false);
    }
    int64_t place = atomic_fetch_add(&ledger->grants, 1);
    part_must(place < GRANTS_MOST);
    ledger->token[place] = token;
    uint64_t highest = atomic_load(&ledger->highest);
    while (token > highest && !atomic_compare_exchange_weak(&ledger->highest, &highest, token))
        ;
}

/* The server may fail meanwhile; but whatever it grants has a token. */
static void take_and_enter(struct actor *me, void *arg)
{
    struct ledger *ledger = arg;
    hf_client *client = scene_part_client();
    struct hf_request request =
        request_of(&(struct want){.name = "l", .ttl_ms = 500, .wait_ms = 2000});
    while (!atomic_load(&ledger->over)) {
        hf_lease *lease;
        uint64_t before = atomic_load(&ledger->highest);
        hf_status status = hf_acquire(client, &request, &lease);
        if (status == HF_OK)
            enter(ledger, hf_lease_token(lease), before);
        else
            part_must(status == HF_TIMEOUT || status == HF_UNAVAILABLE || status == HF_IN_DOUBT);
        if (status == HF_UNAVAILABLE)
            nap_us(1000);
        hf_release(lease); /* it may have been lost with the server's data */
        hf_lease_free(lease);
    }
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = hf_close(client, 5000)});
}

static int compare_tokens(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct ledger *start_workers(struct actor **worker)
{
    struct ledger *ledger = scene_page(sizeof *ledger);
    for (int i = 0; i < WORKERS; i++)
        worker[i] = actor_start_part(take_and_enter, ledger);
    return ledger;
}

static void await_grants(const struct ledger *ledger, int64_t more)
{
    int64_t from = atomic_load(&ledger->grants), last = from, heard_ns = now_ns();
    while (last < from + more) {
        int64_t now = atomic_load(&ledger->grants);
        heard_ns = now > last ? now_ns() : heard_ns;
        last = now;
        if (now_ns() - heard_ns > (int64_t)ACTOR_PATIENCE_MS * 1000000)
            fail_msg("no more grants after %lld", (long long)now);
        nap_us(1000);
    }
}

/* All workers are well, and no token was given out twice. */
static void finish_workers(struct actor **worker, struct ledger *ledger)
{
    atomic_store(&ledger->over, true);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(actor_answer(worker[i], ORDER_CLOSE, 0).status, HF_OK);
    size_t grants = (size_t)atomic_load(&ledger->grants);
    qsort(ledger->token, grants, sizeof *ledger->token, compare_tokens);
    for (size_t i = 1; i < grants; i++)
        assert_true(ledger->token[i] > ledger->token[i - 1]);
}

/* G10 */
static void test_many_grants(void **state)
{
    (void)state;
    struct actor *worker[WORKERS];
    struct ledger *ledger = start_workers(worker);
    int64_t from_ns = now_ns();
    await_grants(ledger, grants_wanted);
    printf("# %lld grants from %d processes in %.1f s, each with a higher token\n",
           (long long)atomic_load(&ledger->grants), WORKERS, (double)(now_ns() - from_ns) / 1e9);
    finish_workers(worker, ledger);
}

enum { GRANTS_BETWEEN = 1000 };

static void say_event(const struct ledger *ledger, const char *what, uint64_t before)
{
    uint64_t highest = atomic_load(&ledger->highest);
    printf("# %s: tokens went on from %llu to %llu\n", what, (unsigned long long)before,
           (unsigned long long)highest);
    assert_true(highest > before);
}

/* The key may be gone, and with it everything that the server knew. */
/* G10 */
static void test_lost_data(void **state)
{
    (void)state;
    struct actor *worker[WORKERS];
    struct ledger *ledger = start_workers(worker);
    await_grants(ledger, GRANTS_BETWEEN);
    for (int i = 0; i < 3; i++) {
        uint64_t before = atomic_load(&ledger->highest);
        server_does(scene.server, "FLUSHALL");
        await_grants(ledger, GRANTS_BETWEEN);
        say_event(ledger, "FLUSHALL", before);
    }
    uint64_t before = atomic_load(&ledger->highest);
    server_restart(scene.server, false);
    await_grants(ledger, GRANTS_BETWEEN);
    say_event(ledger, "restart without data", before);
    finish_workers(worker, ledger);
}

/* The last number that a server knows to have given out. */
static uint64_t number_in(const struct server *s)
{
    redisReply *counter = server_cli(s, "GET {lock:l}:t");
    assert_int_equal(counter->type, REDIS_REPLY_STRING);
    uint64_t number = strtoull(counter->str + (counter->str[0] == '~'), NULL, 10);
    freeReplyObject(counter);
    assert_true(number > 0);
    return number;
}

/* The clients find the replica where the primary was. */
static void promote(struct server *replica, uint16_t port)
{
    server_replica_of(replica, NULL);
    server_does(replica, "CONFIG SET port %d", (int)port);
}

/* G10 */
static void test_stale_replica(void **state)
{
    (void)state;
    struct actor *worker[WORKERS];
    struct server *primary = scene.server;
    struct server *replica = server_start(&(struct server_options){.kind = scene.kind});
    server_replica_of(replica, primary);
    struct ledger *ledger = start_workers(worker);
    await_grants(ledger, GRANTS_BETWEEN);
    server_does(replica, "REPLICAOF 127.0.0.1 %d",
                (int)free_port()); /* nobody is there: it hears nothing more */
    uint64_t missed_from = number_in(replica);
    await_grants(ledger, GRANTS_BETWEEN);
    server_kill9(primary);
    nap_us(10000);
    uint64_t before = atomic_load(&ledger->highest);
    assert_int_equal(number_in(replica), missed_from);
    assert_true(before > missed_from);
    promote(replica, server_port(primary));
    await_grants(ledger, GRANTS_BETWEEN);
    say_event(ledger, "promotion of a stale replica", before);
    finish_workers(worker, ledger);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        grants_wanted = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        SENTENCE("an ended holder's extend and release leave the next one alone, and it hears "
                 "since when",
                 test_ended_holder),
        SENTENCE("a broken holder's extend and release leave the next one alone",
                 test_broken_holder),
        SENTENCE("an extend that arrives when another one holds changes nothing", test_late_extend),
        SENTENCE("a release that arrives when another one holds changes nothing",
                 test_late_release),
        SENTENCE("tokens rise strictly over many grants from eight processes", test_many_grants),
        SENTENCE("tokens rise through FLUSHALL and a restart without data", test_lost_data),
        SENTENCE("tokens rise through the promotion of a replica that missed the last grants",
                 test_stale_replica),
    };
    return SCENE_JUDGE(tests);
}
