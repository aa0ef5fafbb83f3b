/* redlock_servers.c - a lease on a majority while servers die, hang and come back empty (G35, G36, G37).
 * Usage: redlock_servers [SECONDS of the hold that a server forgets] */
#include "redlock_scene.h"

static const struct want short_one = {.name = "job", .ttl_ms = 2000};

/* ---- Servers that are away ---- */

static void test_two_killed(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    scene_connect(client);
    server_kill9(scene.quorum.server[1]);
    server_kill9(scene.quorum.server[4]);
    for (int i = 0; i < 5; i++) {
        hf_lease *lease = must_acquire(client, &short_one);
        assert_int_equal(scene_keys("job"), 3);
        must_release(lease);
        scene_await_keys("job", 0);
    }
}

static void try_hung(unsigned hung)
{
    scene_start(5);
    hf_client *client = scene_client(NULL), *late = scene_client(NULL);
    scene_connect(client);
    for (unsigned i = 0; i < hung; i++)
        server_pause(scene.quorum.server[2 * i]);
    for (int i = 0; i < 5; i++) {
        int64_t begin = now_ns();
        hf_lease *lease = must_acquire(i % 2 ? late : client, &short_one);
        int64_t took_ms = (now_ns() - begin) / 1000000;
        assert_in_range(took_ms, 0, 60); /* an operation's time-out is 100 ms */
        must_release(lease);
    }
    for (unsigned i = 0; i < hung; i++)
        server_continue(scene.quorum.server[2 * i]);
    scene_await_keys("job", 0);
}

static void test_one_hung(void **state)
{
    (void)state;
    try_hung(1);
}

static void test_two_hung(void **state)
{
    (void)state;
    try_hung(2);
}

/* Nobody is let in, within the operation's time-out, and nothing stays behind. */
static void test_three_killed(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL), *fresh = scene_client(NULL);
    scene_connect(client);
    for (unsigned i = 0; i < 3; i++)
        server_kill9(scene.quorum.server[i]);
    int64_t most_ms = 100 + 100 / 2;
    assert_in_range(refused(client, &short_one, HF_NO_QUORUM, "2 of 5 servers"), 0, most_ms);
    scene_await_keys("job", 0);
    assert_in_range(refused(fresh, &short_one, HF_NO_QUORUM, "3 are needed"), 0, most_ms);
    scene_await_keys("job", 0);
    char port[16];
    snprintf(port, sizeof port, ":%u", server_port(scene.quorum.server[1]));
    refused(client, &short_one, HF_NO_QUORUM, port);
    scene_await_keys("job", 0);
}

static void test_three_hung(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    scene_connect(client);
    for (unsigned i = 0; i < 3; i++)
        server_pause(scene.quorum.server[i]);
    assert_in_range(refused(client, &short_one, HF_NO_QUORUM, "no answer"), 0, 200);
    for (unsigned i = 0; i < 3; i++)
        server_continue(scene.quorum.server[i]);
    scene_await_keys("job", 0);
    nap_us(100000);
    assert_int_equal(scene_keys("job"), 0);
}

/* A wait ends with the quorum's coming back. */
static void test_quorum_comes_back(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    scene_connect(client);
    for (unsigned i = 0; i < 3; i++)
        server_pause(scene.quorum.server[i]);
    refused(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 300}, HF_NO_QUORUM, "3 are needed");
    for (unsigned i = 0; i < 3; i++)
        server_continue(scene.quorum.server[i]);
    must_release(must_acquire(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 3000}));
    scene_await_keys("job", 0);
}

/* ---- Servers that come back empty ---- */

static int hold_s = 3;

/* The hold is as long as max_ttl, and on three of five; one of these forgets it. */
static void test_restart_empty(void **state)
{
    (void)state;
    char query[32];
    scene_start(5);
    snprintf(query, sizeof query, "max_ttl=%ds", hold_s);
    hf_client *first = scene_client(query), *second = scene_client(query);
    server_kill9(scene.quorum.server[3]);
    server_kill9(scene.quorum.server[4]);
    hf_lease *lease = must_acquire(first, &(struct want){.name = "job", .ttl_ms = hold_s * 1000});
    int64_t held_at = now_ns();
    server_restart(scene.quorum.server[3], false);
    server_restart(scene.quorum.server[4], false);
    server_kill9(scene.quorum.server[2]);
    server_restart(scene.quorum.server[2], false);
    assert_int_equal(scene_keys("job"), 2);
    struct hf_request request = request_of(&(struct want){.name = "job", .ttl_ms = 1000});
    hf_lease *next;
    hf_status status = hf_acquire(second, &request, &next);
    /* Two know of the hold and three do not count: it depends on who answers first what is said. */
    assert_true(status == HF_BUSY || status == HF_NO_QUORUM);
    assert_non_null(strstr(hf_error_text(), "counts again in"));
    next = must_acquire(second, &(struct want){.name = "job", .ttl_ms = 1000, .wait_ms = hold_s * 1000 + 5000});
    int64_t waited_ms = (now_ns() - held_at) / 1000000;
    print_message("# let in after %lld ms of %d\n", (long long)waited_ms, hold_s * 1000);
    assert_true(waited_ms >= hold_s * 1000);
    assert_true(hf_lease_token(next) > hf_lease_token(lease));
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    hf_lease_free(lease);
    must_release(next);
}

/* Whatever data it has: a server that was restarted with all of it counts no sooner. */
static void test_one_young_server_is_asked(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    server_kill9(scene.quorum.server[2]);
    server_restart(scene.quorum.server[2], false);
    hf_lease *lease = must_acquire(client, &short_one);
    scene_await_keys("job", 5); /* asked, */
    must_release(lease);
    scene_await_keys("job", 0); /* and released */
    server_kill9(scene.quorum.server[0]);
    server_kill9(scene.quorum.server[1]);
    refused(client, &short_one, HF_NO_QUORUM, "runs for");
    scene_await_keys("job", 0);
}

/* ---- Renewal ---- */

static const char *token_on(unsigned server, const char *name)
{
    static char token[32];
    redisReply *reply = server_cli(scene.quorum.server[server], "GET lock:%s", name);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_int_equal(sscanf(reply->str, "%*s %31s", token), 1);
    freeReplyObject(reply);
    return token;
}

/* All that hold it agree on its token. */
static void check_token(const hf_lease *lease, unsigned server)
{
    char token[32];
    snprintf(token, sizeof token, "%llu", (unsigned long long)hf_lease_token(lease));
    assert_string_equal(token_on(server, "job"), token);
}

static void test_renewal_repairs(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    for (unsigned lost = 0; lost < 5; lost++) {
        hf_lease *lease = must_acquire(client, &(struct want){.name = "job", .ttl_ms = 5000});
        scene_await_keys("job", 5);
        server_does(scene.quorum.server[lost], "DEL lock:job");
        assert_int_equal(hf_extend(lease, 5000), HF_OK);
        scene_await_keys("job", 5);
        check_token(lease, lost);
        must_release(lease);
        scene_await_keys("job", 0);
    }
}

/* Two of three yeses are gone: it is not held any more, and nothing brings it back. */
static void test_renewal_never_revives(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    hf_lease *lease = must_acquire(client, &(struct want){.name = "job", .ttl_ms = 5000});
    scene_await_keys("job", 5);
    for (unsigned i = 0; i < 3; i++)
        server_does(scene.quorum.server[i], "DEL lock:job");
    assert_int_equal(hf_extend(lease, 5000), HF_LOST);
    assert_false(hf_lease_ok(lease));
    scene_await_keys("job", 0);
    nap_us(100000);
    assert_int_equal(scene_keys("job"), 0);
    hf_lease_free(lease);
}

/* The lease has ended by its own clock while its process stood still: the next renewal puts nothing anywhere. */
static void test_renewal_never_after(void **state)
{
    (void)state;
    scene_start(5);
    char url[512];
    quorum_url(&scene.quorum, NULL, url, sizeof url);
    struct actor *holder = scene_actor(url);
    actor_holds(holder, 2, &(struct want){.name = "warm", .ttl_ms = 20000}); /* it has its connections, then */
    actor_holds(holder, 1, &(struct want){.name = "job", .ttl_ms = 600, .flags = HF_AUTO_RENEW});
    actor_stop(holder);
    for (unsigned i = 0; i < 5; i++)
        server_does(scene.quorum.server[i], "DEL lock:job");
    nap_us(700000);
    actor_go_on(holder);
    assert_int_equal(actor_does(holder, ORDER_LOOK, 1).number, 0);
    nap_us(300000);
    assert_int_not_equal(actor_does(holder, ORDER_LOOK, 1).status, HF_OK);
    assert_int_equal(scene_keys("job"), 0);
}

static void test_renewal_through_deaths(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    hf_lease *lease = must_acquire(client, &(struct want){.name = "job", .ttl_ms = 600, .flags = HF_AUTO_RENEW});
    server_kill9(scene.quorum.server[0]);
    server_pause(scene.quorum.server[3]);
    nap_us(1500000);
    assert_true(hf_lease_ok(lease));
    server_kill9(scene.quorum.server[1]);
    int64_t end = now_ns() + INT64_C(2000000000);
    while (hf_lease_ok(lease) && now_ns() < end)
        nap_us(1000);
    assert_false(hf_lease_ok(lease));
    hf_lease_free(lease);
    server_continue(scene.quorum.server[3]);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("with two of five killed it is granted", test_two_killed),
        ON_QUORUM("one that hangs delays nobody", test_one_hung),
        ON_QUORUM("two that hang delay nobody", test_two_hung),
        ON_QUORUM("with three of five killed it is refused at once, and nothing is left", test_three_killed),
        ON_QUORUM("with three of five hung it is refused within the time-out, and nothing is left", test_three_hung),
        ON_QUORUM("who waits is let in when the quorum comes back", test_quorum_comes_back),
        ON_QUORUM("a server that comes back empty lets nobody in before the longest hold is over", test_restart_empty),
        ON_QUORUM("a server that came back is asked and released, but does not count", test_one_young_server_is_asked),
        ON_QUORUM("a renewal gives the key back to a server that lost it, with its token", test_renewal_repairs),
        ON_QUORUM("what a majority does not hold any more is lost", test_renewal_never_revives),
        ON_QUORUM("a renewal that comes too late puts nothing anywhere", test_renewal_never_after),
        ON_QUORUM("a lease is kept with two servers away, and lost with three", test_renewal_through_deaths),
    };
    if (argc > 1)
        hold_s = atoi(argv[1]);
    return cmocka_run_group_tests_name("redlock: servers", tests, NULL, NULL);
}
