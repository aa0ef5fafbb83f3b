/* redlock_calls.c - what a caller on a quorum is told, what it may ask for, and what is left of it
 * (G35, G36, G38). */
#include "redlock_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

static const struct want job = {.name = "job", .ttl_ms = 2000};

/* ---- A reply that is lost ---- */

enum { GONE_MS = 100 };

/* The next reply on the connection for commands does not come through. */
static int plant(struct proxy *p, enum proxy_fault_kind kind)
{
    return proxy_plant(p, &(struct proxy_fault){.kind = kind,
                                                .way = PROXY_REPLIES,
                                                .connection = 1,
                                                .after = proxy_bytes(p, 1, PROXY_REPLIES)});
}

static hf_client *proxied_client(void)
{
    char url[512];
    scene_start(5);
    scene_proxied_url(NULL, url, sizeof url);
    hf_client *client = scene_open(url);
    scene_connect(client);
    must_release(must_acquire(client, &(struct want){.name = "other", .ttl_ms = 2000}));
    nap_us(1100000); /* connections that have proved to work */
    return client;
}

static void try_lost_reply(enum proxy_fault_kind kind)
{
    hf_client *client = proxied_client();
    for (unsigned i = 0; i < 2; i++) {
        int fault = plant(scene.proxy[0][i], kind);
        hf_lease *lease = must_acquire(client, &job);
        proxy_await(scene.proxy[0][i], fault);
        assert_true(scene_has_key(i, "job")); /* it was executed */
        must_release(lease);
        int64_t took = scene_await_keys("job", 0);
        print_message("# gone everywhere after %lld ms\n", (long long)took);
        assert_in_range(took, 0, GONE_MS);
        nap_us(1200000);
        assert_int_equal(scene_keys("job"), 0);
    }
}

static void test_reply_cut(void **state)
{
    (void)state;
    try_lost_reply(PROXY_CUT);
}

static void test_reply_dropped(void **state)
{
    (void)state;
    try_lost_reply(PROXY_DROP);
}

/* The connection is cut each time soon after it came up. */
static void test_replies_cut_in_a_row(void **state)
{
    (void)state;
    enum { CUTS = 30 };
    hf_client *client = proxied_client();
    struct proxy *p = scene.proxy[0][0];
    int64_t longest = 0;

    for (unsigned i = 0; i < CUTS; i++) {
        uint32_t newest = proxy_connections(p);
        int fault =
            proxy_plant(p, &(struct proxy_fault){.kind = PROXY_CUT,
                                                 .way = PROXY_REPLIES,
                                                 .connection = newest,
                                                 .after = proxy_bytes(p, newest, PROXY_REPLIES)});
        hf_lease *lease = must_acquire(client, &job);
        proxy_await(p, fault);
        must_release(lease);
        int64_t took = scene_await_keys("job", 0);
        longest = took > longest ? took : longest;
        scene_connect(client);
    }
    print_message("# gone everywhere after %lld ms at most\n", (long long)longest);
    assert_in_range(longest, 0, GONE_MS);
}

/* The try itself is lost: others hold three servers. */
static void test_reply_of_lost_try(void **state)
{
    (void)state;
    hf_client *client = proxied_client();
    for (unsigned i = 2; i < 5; i++)
        server_does(scene.quorum.server[i], "SET lock:job somebody PX 60000");
    int fault = plant(scene.proxy[0][0], PROXY_CUT);
    refused(client, &job, HF_BUSY, "of 5 servers");
    proxy_await(scene.proxy[0][0], fault);
    assert_in_range(scene_await_keys("job", 3), 0, GONE_MS);
}

/* A request that is under way for long: the tombstone refuses it when it comes. */
static void test_late_request(void **state)
{
    (void)state;
    hf_client *client = proxied_client();
    struct proxy *p = scene.proxy[0][1];
    int fault = proxy_plant(p, &(struct proxy_fault){.kind = PROXY_LATE,
                                                     .way = PROXY_REQUESTS,
                                                     .connection = 1,
                                                     .after = proxy_bytes(p, 1, PROXY_REQUESTS)});
    must_release(must_acquire(client, &job));
    proxy_await(p, fault);
    nap_us(200000); /* the release finds its way on another connection */
    assert_true(proxy_deliver(p, fault) > 0);
    assert_int_equal(scene_keys("job"), 0);
}

/* ---- What is told ---- */

static void test_errors_differ(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    for (unsigned i = 0; i < 3; i++)
        server_does(scene.quorum.server[i], "SET lock:job somebody PX 60000");
    refused(client, &job, HF_BUSY, "held by another program on 3 of 5 servers");
    refused(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 200}, HF_TIMEOUT,
            "of 5 servers");
    assert_int_equal(scene_keys("job"), 3);
    for (unsigned i = 2; i < 5; i++)
        server_kill9(scene.quorum.server[i]);
    for (unsigned i = 0; i < 2; i++)
        server_does(scene.quorum.server[i], "DEL lock:job");
    refused(client, &job, HF_NO_QUORUM, "2 of 5 servers");
}

/* Its process stands still while the answers come: what it hears then is worth nothing. */
static void test_expired(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    scene_proxied_url(NULL, url, sizeof url);
    struct actor *actor = scene_actor(url);
    actor_holds(actor, 1, &(struct want){.name = "warm", .ttl_ms = 1000});
    for (unsigned i = 0; i < 5; i++)
        proxy_delay(scene.proxy[0][i], PROXY_REPLIES, 40);
    actor_acquire(actor, 2, ORDER_ACQUIRE,
                  &(struct want){.name = "job", .ttl_ms = 1000, .wait_ms = 1800});
    scene_await_keys("job", 5);
    actor_stop(actor);
    nap_us(1900000);
    actor_go_on(actor);
    struct answer answer = actor_answer(actor, ORDER_ACQUIRE, 2);
    print_message("# %s: %s\n", hf_status_name(answer.status), answer.text);
    assert_true(answer.status == HF_TIMEOUT || answer.status == HF_NO_QUORUM);
    scene_await_keys("job", 0);
}

static void test_refused_requests(void **state)
{
    (void)state;
    scene_start(3);
    hf_client *client = scene_client("max_ttl=5s");
    refused(client, &(struct want){.name = "job", .ttl_ms = 5001}, HF_INVALID,
            "longer than max_ttl");
    must_release(must_acquire(client, &(struct want){.name = "job", .ttl_ms = 5000}));
    refused(client,
            &(struct want){.name = "job", .kind = HF_SEMAPHORE, .capacity = 2, .ttl_ms = 1000},
            HF_UNSUPPORTED, "quorum of counters is not a counter");
    refused(client, &(struct want){.name = "job", .kind = HF_READ, .ttl_ms = 1000}, HF_UNSUPPORTED,
            "quorum of counters is not a counter");
    hf_client *bare = scene_client("max_ttl=5s&prefix=");
    refused(bare, &(struct want){.name = "{job}:q", .ttl_ms = 1000}, HF_INVALID,
            "could belong to another lock");
    must_release(must_acquire(bare, &(struct want){.name = "{job}a", .ttl_ms = 1000}));
    hf_lease *lease = must_acquire(client, &job);
    assert_int_equal(hf_extend(lease, 6000), HF_INVALID);
    assert_true(hf_lease_ok(lease));
    must_release(lease);
}

/* ---- URLs and numbers of servers ---- */

static void check_url(const char *url, const char *words)
{
    hf_client *client = NULL;
    assert_int_equal(hf_open(url, NULL, &client), HF_CONFIG);
    assert_null(client);
    if (!strstr(hf_error_text(), words))
        fail_msg("%s: %s", url, hf_error_text());
}

static void test_urls(void **state)
{
    (void)state;
    check_url("redlock:", "host:port,host:port");
    check_url("redlock://", "host:port,host:port");
    check_url("redlock://a:1,,b:2", "without a name");
    check_url("redlock://a:1,", "without a name");
    check_url("redlock://a:1,b:2,a:1", "it names a:1 twice");
    check_url("redlock://a,b:2,a:6379", "it names a:6379 twice");
    check_url("redlock://A:1,b:2,a:1", "twice");
    check_url("redlock://u:p@a:1,u:q@a:1", "it names a:1 twice");
    check_url("redlock://a:1,b:0", "server 2");
    check_url("redlock://a:1,rediss://a:1,b:2", "it names a:1 twice");
    check_url("redlock://a:1,http://b:1",
              "server 2: redlock: the URL: a server begins with redis://");
    check_url("redlock://a:1,redis+unix:///run/b.sock", "a server begins with redis://");
    check_url("redlock://a:1,rediss://b:x", "server 2");
    check_url("redlock://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1", "more than 9 servers");
    check_url("redlock://a:1,b:1,c:1?replicas=1", "replicas");
    check_url("redlock://a:1,b:1,c:1?max_ttl=0", "max_ttl");
}

/* So many may die, and not one more. */
static void try_size(unsigned servers)
{
    unsigned majority = servers / 2 + 1;
    scene_start(servers);
    hf_client *client = scene_client(NULL);
    for (unsigned alive = servers; alive >= majority; alive--) {
        hf_lease *lease = must_acquire(client, &job);
        scene_await_keys("job", alive);
        must_release(lease);
        scene_await_keys("job", 0);
        server_kill9(scene.quorum.server[alive - 1]);
    }
    refused(client, &job, HF_NO_QUORUM, "are needed");
    scene_await_keys("job", 0);
}

static void test_one(void **state)
{
    (void)state;
    try_size(1);
}

static void test_two(void **state)
{
    (void)state;
    try_size(2);
}

static void test_four(void **state)
{
    (void)state;
    try_size(4);
}

static void test_nine(void **state)
{
    (void)state;
    try_size(9);
}

/* One server has nobody who could remember better: it counts from its first second on. */
static void test_one_young(void **state)
{
    (void)state;
    scene_start(1);
    hf_client *client = scene_client(NULL);
    server_restart(scene.quorum.server[0], false);
    must_release(must_acquire(client, &job));
}

/* One server under two names: it has one vote. */
static void test_same_server_twice(void **state)
{
    (void)state;
    char url[256];
    scene_start(2);
    uint16_t a = server_port(scene.quorum.server[0]), b = server_port(scene.quorum.server[1]);
    snprintf(url, sizeof url, "redlock://127.0.0.1:%u,localhost:%u,127.0.0.1:%u", a, a, b);
    hf_client *client = scene_open(url);
    must_release(must_acquire(client, &job));
    server_kill9(scene.quorum.server[1]);
    refused(client, &job, HF_NO_QUORUM, "is the same server as");
    scene_await_keys("job", 0);
}

/* Whichever of its names is the first to answer. */
static void test_same_server_twice_at_first(void **state)
{
    (void)state;
    char url[256];
    scene_start(2);
    uint16_t a = server_port(scene.quorum.server[0]), b = server_port(scene.quorum.server[1]);
    struct proxy *slow = proxy_start(a);
    server_kill9(scene.quorum.server[1]);
    proxy_delay(slow, PROXY_REPLIES, 20);
    snprintf(url, sizeof url, "redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", proxy_port(slow),
             a, b);
    refused(scene_open(url), &(struct want){.name = "job", .ttl_ms = 10000}, HF_NO_QUORUM,
            "is the same server as");
    assert_true(proxy_delayed(slow) > 0);
    scene_await_keys("job", 0);
    proxy_end(slow);
}

/* ---- Other clients of the same keys ---- */

/* What other languages' clients do: SET NX PX everywhere, held with a majority, taken back with a
 * script. */
static unsigned bare_set(redisContext **to, const char *value)
{
    unsigned set = 0;
    for (int i = 0; i < 5; i++)
        redisAppendCommand(to[i], "SET lock:job %s NX PX 2000", value);
    for (int i = 0; i < 5; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(to[i], (void **)&reply), REDIS_OK);
        set += reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
    }
    return set;
}

static unsigned bare_unset(redisContext **to, const char *value)
{
    unsigned gone = 0;
    for (int i = 0; i < 5; i++) {
        redisReply *reply = redisCommand(to[i], "EVAL %s 1 lock:job %s",
                                         "if redis.call('GET',KEYS[1])==ARGV[1] then return "
                                         "redis.call('DEL',KEYS[1]) end return 0",
                                         value);
        assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
        gone += reply->integer == 1;
        freeReplyObject(reply);
    }
    return gone;
}

struct bare {
    _Atomic int *inside;
    _Atomic bool over;
    unsigned held, overlaps;
};

static void *bare_client(void *arg)
{
    struct bare *bare = arg;
    redisContext *to[5];
    for (int i = 0; i < 5; i++)
        to[i] = server_connect(scene.quorum.server[i]);
    for (unsigned n = 0; !atomic_load(&bare->over); n++) {
        char value[32];
        snprintf(value, sizeof value, "bare-%u", n);
        if (bare_set(to, value) >= 3) {
            bare->overlaps += atomic_fetch_add(bare->inside, 1) != 0;
            nap_us(2000);
            bare->held++;
            atomic_fetch_sub(bare->inside, 1);
        }
        bare_unset(to, value);
        nap_us(arc4random_uniform(8000));
    }
    for (int i = 0; i < 5; i++)
        redisFree(to[i]);
    return NULL;
}

static void test_other_client(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client("retry_max=20ms&retry_min=5ms");
    scene_connect(client);
    _Atomic int inside = 0;
    struct bare bare = {.inside = &inside};
    pthread_t thread;
    unsigned held = 0, overlaps = 0;
    assert_int_equal(pthread_create(&thread, NULL, bare_client, &bare), 0);
    for (int64_t end = now_ns() + INT64_C(2500000000); now_ns() < end;) {
        hf_lease *lease =
            must_acquire(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 5000});
        overlaps += atomic_fetch_add(&inside, 1) != 0;
        nap_us(2000);
        held++;
        atomic_fetch_sub(&inside, 1);
        must_release(lease);
        nap_us(arc4random_uniform(8000));
    }
    atomic_store(&bare.over, true);
    pthread_join(thread, NULL);
    print_message("# Holdfast held %u times, the other client %u times\n", held, bare.held);
    assert_int_equal(overlaps + bare.overlaps, 0);
    assert_true(held > 10 && bare.held > 10);
}

/* ---- Showing ---- */

struct shown {
    unsigned rows, servers;
    uint64_t token;
};

static void note_shown(void *arg, const struct hf_row *row)
{
    struct shown *shown = arg;
    shown->rows++;
    shown->servers = row->servers;
    shown->token = row->token;
}

static void test_show(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    struct shown shown = {0};
    hf_lease *lease = must_acquire(client, &job);
    scene_await_keys("job", 5);
    nap_us(50000); /* the last ones hear of the token when it is granted already */
    assert_int_equal(hf_show(client, "job", note_shown, &shown), HF_OK);
    assert_int_equal(shown.rows, 1);
    assert_int_equal(shown.servers, 5);
    assert_true(shown.token == hf_lease_token(lease));
    server_pause(scene.quorum.server[0]);
    server_kill9(scene.quorum.server[1]);
    shown = (struct shown){0};
    assert_int_equal(hf_list(client, NULL, note_shown, &shown), HF_OK);
    assert_int_equal(shown.rows, 1);
    assert_int_equal(shown.servers, 3);
    server_continue(scene.quorum.server[0]);
    must_release(lease);
    /* What stands on fewer than a majority is no hold. */
    for (unsigned i = 2; i < 4; i++)
        server_does(scene.quorum.server[i], "SET lock:job somebody PX 60000");
    shown = (struct shown){0};
    assert_int_equal(hf_show(client, "job", note_shown, &shown), HF_OK);
    assert_int_equal(shown.rows, 0);
}

struct standings {
    unsigned count, held, free, silent, uncounted;
    char text[5][160];
};

static void note_standing(void *arg, const struct hf_server_state *standing)
{
    struct standings *s = arg;
    assert_true(s->count < 5);
    snprintf(s->text[s->count++], sizeof s->text[0], "%s: %s", standing->where, standing->text);
    s->held += standing->holder != NULL;
    s->free += standing->status == HF_OK && !standing->holder;
    s->silent += standing->status != HF_OK;
    s->uncounted += !standing->counts;
}

static struct standings look_at_servers(hf_client *client)
{
    struct standings s = {0};
    if (hf_show_servers(client, "job", note_standing, &s) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_int_equal(s.count, 5);
    for (unsigned i = 0; i < 5; i++) { /* in the order of the URL */
        char where[32];
        snprintf(where, sizeof where, "127.0.0.1:%u: ", server_port(scene.quorum.server[i]));
        assert_memory_equal(s.text[i], where, strlen(where));
    }
    return s;
}

static void test_show_servers(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    struct standings s = look_at_servers(client);
    assert_int_equal(s.free, 5);
    assert_int_equal(s.uncounted, 0);
    hf_lease *lease = must_acquire(client, &job);
    scene_await_keys("job", 5);
    assert_int_equal(look_at_servers(client).held, 5);
    server_pause(scene.quorum.server[0]);
    server_kill9(scene.quorum.server[1]);
    server_restart(scene.quorum.server[2], false);
    hf_client *other = scene_client(NULL); /* without connections that must break first */
    s = look_at_servers(other);
    assert_int_equal(s.silent, 2);
    assert_int_equal(s.held, 2);
    assert_int_equal(s.free, 1);
    assert_int_equal(s.uncounted, 3);
    assert_non_null(strstr(s.text[0], "no answer"));
    assert_non_null(strstr(s.text[1], "refused"));
    assert_non_null(strstr(s.text[2], "counts again in"));
    server_kill9(scene.quorum.server[3]); /* without a majority they are shown, too */
    assert_int_equal(look_at_servers(other).silent, 3);
    server_continue(scene.quorum.server[0]);
    hf_lease_free(lease);
}

/* Force takes it away everywhere, and a renewal does not bring it back. */
static void test_break(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *holder = scene_client("op_timeout=150ms"), *other = scene_client("op_timeout=150ms");
    hf_lease *lease =
        must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 900, .flags = HF_AUTO_RENEW});
    scene_await_keys("job", 5);
    nap_us(50000);
    assert_int_equal(hf_break(other, "job", hf_lease_token(lease) + 1, "wrong"), HF_NOT_HELD);
    assert_int_equal(hf_break(other, "job", hf_lease_token(lease), "test"), HF_OK);
    assert_int_equal(scene_keys("job"), 0);
    int64_t end = now_ns() + INT64_C(1000000000);
    while (hf_lease_ok(lease) && now_ns() < end)
        nap_us(1000);
    assert_false(hf_lease_ok(lease));
    nap_us(100000);
    assert_int_equal(scene_keys("job"), 0);
    hf_lease_free(lease);
}

/* ---- Text ---- */

/* Another process takes it up, with another majority than the one that granted it, and gives it
 * back everywhere. */
static void test_exported(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *first = scene_client(NULL), *second = scene_client(NULL);
    char text[1024];
    scene_connect(first);
    server_pause(scene.quorum.server[0]);
    hf_lease *lease =
        must_acquire(first, &(struct want){.name = "job", .ttl_ms = 5000, .flags = HF_DETACHED});
    uint64_t token = hf_lease_token(lease);
    for (unsigned i = 1; i < 5; i++)
        assert_true(scene_has_key(i, "job"));
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    server_continue(scene.quorum.server[0]);
    server_pause(scene.quorum.server[1]);
    if (hf_lease_attach(second, text, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_true(hf_lease_token(lease) == token);
    assert_int_equal(hf_extend(lease, 5000), HF_OK);
    server_continue(scene.quorum.server[1]);
    must_release(lease);
    scene_await_keys("job", 0);
}

/* Who cannot reach a majority cannot take it up, and does not end it either: somebody else may hold
 * by that text. */
static void test_attach_without_quorum(void **state)
{
    (void)state;
    scene_start(3);
    hf_client *first = scene_client(NULL), *second = scene_client(NULL);
    char text[1024];
    hf_lease *lease = must_acquire(
                 first, &(struct want){.name = "job", .ttl_ms = 10000, .flags = HF_DETACHED}),
             *none;
    scene_await_keys("job", 3);
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    scene_connect(second);
    server_pause(scene.quorum.server[0]);
    server_pause(scene.quorum.server[1]);
    hf_status status = hf_lease_attach(second, text, &none);
    assert_true(status == HF_NO_QUORUM || status == HF_UNAVAILABLE);
    server_continue(scene.quorum.server[0]);
    server_continue(scene.quorum.server[1]);
    for (int i = 0; i < 5; i++) { /* what it had left to do would be done within these */
        nap_us(100000);
        scene_connect(second);
    }
    assert_int_equal(scene_keys("job"), 3);
    assert_int_equal(hf_extend(lease, 10000), HF_OK);
    must_release(lease);
    scene_await_keys("job", 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("a reply that is cut off: the release reaches that server too", test_reply_cut),
        ON_QUORUM("a reply that is dropped: the release reaches that server too",
                  test_reply_dropped),
        ON_QUORUM(
            "replies that are cut off one after another: the release reaches that server soon",
            test_replies_cut_in_a_row),
        ON_QUORUM("a reply of a lost try that is cut off: it is taken back there too",
                  test_reply_of_lost_try),
        ON_QUORUM("a request that comes after its release is refused", test_late_request),
        ON_QUORUM("busy and no quorum are told apart", test_errors_differ),
        ON_QUORUM("a lease whose time was over before it came is not returned", test_expired),
        ON_QUORUM("what a quorum does not offer is refused with the reason", test_refused_requests),
        SENTENCE("URLs that name no quorum are refused", test_urls),
        ON_QUORUM("of one server none may die", test_one),
        ON_QUORUM("of two servers none may die", test_two),
        ON_QUORUM("of four servers one may die", test_four),
        ON_QUORUM("of nine servers four may die", test_nine),
        ON_QUORUM("a single server counts at once", test_one_young),
        ON_QUORUM("a server under two names has one vote", test_same_server_twice),
        ON_QUORUM("also when its second name is the first to answer",
                  test_same_server_twice_at_first),
        ON_QUORUM("another client of the same keys is excluded, and excludes", test_other_client),
        ON_QUORUM("it is shown with the number of servers that hold it", test_show),
        ON_QUORUM("what each server says of a name is shown, also of those that are away",
                  test_show_servers),
        ON_QUORUM("force takes it away everywhere", test_break),
        ON_QUORUM("an exported lease is taken up by another majority", test_exported),
        ON_QUORUM("who cannot take an exported lease up does not end it",
                  test_attach_without_quorum),
    };
    return cmocka_run_group_tests_name("redlock: calls", tests, NULL, NULL);
}
