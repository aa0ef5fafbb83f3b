/* redlock_servers.c - a lease on a majority while servers die, hang and come back empty (G35, G36,
 * G37). Usage: redlock_servers [SECONDS of the hold that a server forgets] */
#include "redlock_fixture.h"

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
    refused(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 300}, HF_NO_QUORUM,
            "3 are needed");
    for (unsigned i = 0; i < 3; i++)
        server_continue(scene.quorum.server[i]);
    must_release(
        must_acquire(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 3000}));
    scene_await_keys("job", 0);
}

/* ---- The rest of a hold ---- */

static const struct want patient_one = {.name = "job",
                                        .ttl_ms = 10000}; /* its round lasts 750 ms */

/* Two servers are dead, so this one's vote is needed: it refuses, but nobody holds. */
static void test_rest_beside_dead(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    scene_connect(client);
    server_kill9(scene.quorum.server[0]);
    server_kill9(scene.quorum.server[1]);
    server_does(scene.quorum.server[2], "SET lock:job somebody PX 100");
    must_release(must_acquire(client, &patient_one));
    scene_await_keys("job", 0);
}

/* How such a rest comes to be: a release is over when a majority has heard of it, and two of these
 * are away when the next one asks. */
static void test_rest_of_a_release(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    scene_proxied_url(NULL, url, sizeof url);
    hf_client *first = scene_open(url), *next = scene_client(NULL);
    scene_connect(next);
    hf_lease *lease = must_acquire(first, &patient_one);
    scene_await_keys("job", 5);
    proxy_delay(scene.proxy[0][2], PROXY_REQUESTS, 300);
    must_release(lease);
    server_kill9(scene.quorum.server[0]);
    server_pause(scene.quorum.server[1]);
    assert_true(scene_has_key(2, "job"));
    must_release(must_acquire(next, &patient_one));
    server_continue(scene.quorum.server[1]);
    scene_await_keys("job", 0);
}

/* One that stays may be the holder's last, or a rest: who can know? Busy it is when those that
 * refuse are enough. */
static void test_unclear_is_not_busy(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    scene_connect(client);
    for (unsigned refuse = 2; refuse < 5; refuse++) {
        server_does(scene.quorum.server[refuse], "SET lock:job somebody PX 60000");
        if (refuse == 2)
            server_kill9(scene.quorum.server[0]);
        if (refuse == 2)
            server_kill9(scene.quorum.server[1]);
        char words[80];
        snprintf(words, sizeof words,
                 "held by another program on %u of 5 servers; 127.0.0.1:", refuse - 1);
        refused(client, &short_one, refuse < 4 ? HF_NO_QUORUM : HF_BUSY, words);
        refused(client, &short_one, refuse < 4 ? HF_NO_QUORUM : HF_BUSY,
                refuse < 4 ? "agreed, and 3 are needed" : "");
        refused(client, &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 50}, HF_TIMEOUT,
                "of 5 servers");
        scene_await_keys("job", refuse - 1);
    }
}

enum { RACES = 10 };

/* Both ask at the same moment, one of them without a thread that waits; who gets it holds it until
 * both have their answer. */
static unsigned race(struct actor *const *rival, uint32_t id)
{
    unsigned winners = 0;
    struct answer answer[2];
    for (unsigned i = 0; i < 2; i++)
        actor_acquire(rival[i], id, i ? ORDER_START : ORDER_ACQUIRE, &patient_one);
    for (unsigned i = 0; i < 2; i++) {
        answer[i] = actor_answer(rival[i], i ? ORDER_START : ORDER_ACQUIRE, id);
        winners += answer[i].status == HF_OK;
    }
    for (unsigned i = 0; i < 2; i++)
        if (answer[i].status == HF_OK)
            actor_does(rival[i], ORDER_RELEASE, id);
    return winners;
}

/* Each is nearer to two of the four servers that are left, and gets these: the first tries split,
 * every time. */
static void test_one_of_rivals_wins(void **state)
{
    (void)state;
    static char url[2][512];
    struct actor *rival[2];
    unsigned won = 0;
    scene_start(5);
    for (unsigned i = 0; i < 2; i++) {
        scene_proxied_url(NULL, url[i], sizeof url[i]);
        rival[i] = scene_actor(url[i]);
        actor_holds(rival[i], 1, &(struct want){.name = i ? "warm1" : "warm0", .ttl_ms = 20000});
        scene_await_keys(i ? "warm1" : "warm0", 5);
        for (unsigned j = 0; j < 2; j++)
            proxy_delay(scene.proxy[i][j + 2 * i], PROXY_REQUESTS, 10);
    }
    server_kill9(scene.quorum.server[4]);
    for (uint32_t id = 2; id < 2 + RACES; id++) {
        unsigned winners = race(rival, id);
        assert_in_range(winners, 0, 1);
        won += winners;
    }
    print_message("# %u of %d races have a winner\n", won, RACES);
    assert_in_range(won, RACES - 2, RACES);
}

/* The key is taken away between the servers' yes and their being told of the token: nobody refused.
 */
static void test_taken_away_is_not_busy(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    scene_proxied_url(NULL, url, sizeof url);
    struct actor *actor = scene_actor(url);
    actor_holds(actor, 1, &(struct want){.name = "warm", .ttl_ms = 10000});
    scene_await_keys("warm", 5);
    for (unsigned i = 0; i < 5; i++)
        proxy_delay(scene.proxy[0][i], PROXY_REPLIES, 150);
    actor_acquire(actor, 2, ORDER_ACQUIRE, &patient_one);
    scene_await_keys("job", 5);
    actor_stop(actor);
    for (unsigned i = 0; i < 5; i++)
        server_does(scene.quorum.server[i], "DEL lock:job");
    actor_go_on(actor);
    struct answer answer = actor_answer(actor, ORDER_ACQUIRE, 2);
    print_message("# %s: %s\n", hf_status_name(answer.status), answer.text);
    assert_int_equal(answer.status, HF_NO_QUORUM);
    assert_non_null(strstr(answer.text, "agreed, and had lost the key a moment later"));
}

/* ---- Servers that are slow ---- */

static hf_client *slow_client(void)
{
    char url[512];
    hf_client *client;
    scene_start(5);
    scene_proxied_url(NULL, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    scene_connect(client);
    return client;
}

/* Who comes next, when this process is over, finds it free wherever a server can be reached. */
static void test_close_hears_the_slow(void **state)
{
    (void)state;
    hf_client *client = slow_client();
    hf_lease *lease = must_acquire(client, &patient_one);
    scene_await_keys("job", 5);
    proxy_delay(scene.proxy[0][4], PROXY_REQUESTS, 100);
    must_release(lease);
    assert_true(scene_has_key(4, "job"));
    assert_int_equal(hf_close(client, 5000), HF_OK);
    assert_int_equal(scene_keys("job"), 0);
}

static void test_close_hears_the_cut(void **state)
{
    (void)state;
    hf_client *client = slow_client();
    hf_lease *lease = must_acquire(client, &patient_one);
    scene_await_keys("job", 5);
    assert_int_equal(proxy_cut_all(scene.proxy[0][4]), 1);
    must_release(lease);
    assert_int_equal(hf_close(client, 5000), HF_OK);
    assert_int_equal(scene_keys("job"), 0);
}

/* `holdfast release` does this: a new process releases a lease that another one made. A server that
 * is slow to greet the new process has the key, too. */
static void test_close_hears_the_greeting(void **state)
{
    (void)state;
    char url[1024], text[HF_EXPORT_MAX];
    hf_client *second;
    scene_start(5);
    hf_lease *made = must_acquire(
        scene_client(NULL), &(struct want){.name = "job", .ttl_ms = 20000, .flags = HF_DETACHED});
    assert_int_equal(hf_lease_export(made, text, sizeof text), HF_OK);
    hf_lease_free(made);
    scene_await_keys("job", 5);

    scene_proxied_url(NULL, url, sizeof url);
    proxy_delay(scene.proxy[0][4], PROXY_REQUESTS, 100);
    assert_int_equal(hf_open(url, NULL, &second), HF_OK);
    hf_lease *lease;
    assert_int_equal(hf_lease_attach(second, text, &lease), HF_OK);
    must_release(lease);
    assert_true(scene_has_key(4, "job"));
    int64_t begin = now_ns();
    assert_int_equal(hf_close(second, 5000), HF_OK);
    print_message("# closed after %lld ms\n", (long long)(now_ns() - begin) / 1000000);
    assert_int_equal(scene_keys("job"), 0);
}

static int64_t time_of_close(hf_client *client, hf_lease *held)
{
    must_release(held);
    int64_t begin = now_ns();
    assert_int_equal(hf_close(client, 5000), HF_OK);
    return (now_ns() - begin) / 1000000;
}

static void test_close_leaves_the_hung(void **state)
{
    (void)state;
    hf_client *client = slow_client();
    hf_lease *lease = must_acquire(client, &patient_one);
    scene_await_keys("job", 5);
    server_pause(scene.quorum.server[4]);
    int64_t took_ms = time_of_close(client, lease);
    server_continue(scene.quorum.server[4]);
    assert_in_range(took_ms, 0, 1000);
}

/* It is dialled once more, after a pause of at most 100 ms, and that is all. */
/* The connection is dropped while the lease is held, with the request to acquire in it. */
static void test_close_releases_the_hung(void **state)
{
    (void)state;
    char url[512];
    hf_client *client;
    scene_start(3);
    quorum_url(&scene.quorum, NULL, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    scene_connect(client);
    server_pause(scene.quorum.server[2]);
    hf_lease *lease = must_acquire(client, &patient_one);
    nap_us(1000000); /* an operation's time-out is 500 ms */
    int64_t took_ms = time_of_close(client, lease);
    server_continue(scene.quorum.server[2]);
    int64_t freed_ms = scene_await_keys("job", 0);
    print_message("# closed after %lld ms, and free %lld ms after the server went on\n",
                  (long long)took_ms, (long long)freed_ms);
    assert_in_range(took_ms, 0, 1000);
    nap_us(200000); /* nothing comes later */
    assert_int_equal(scene_keys("job"), 0);
}

static void test_close_leaves_the_dead(void **state)
{
    (void)state;
    scene_start(5);
    char url[512];
    hf_client *client;
    quorum_url(&scene.quorum, NULL, url, sizeof url);
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    hf_lease *lease = must_acquire(client, &patient_one);
    scene_await_keys("job", 5);
    server_kill9(scene.quorum.server[4]);
    assert_in_range(time_of_close(client, lease), 0,
                    450); /* 500 would be the time that one which hangs gets */
    server_restart(scene.quorum.server[4], false);
}

/* Nobody repairs a hold that outlives its process: it should not end with the first of three
 * servers that dies. */
static void test_detached_reaches_the_slow(void **state)
{
    (void)state;
    hf_client *client = slow_client();
    for (unsigned i = 0; i < 5; i++)
        proxy_delay(scene.proxy[0][i], PROXY_REQUESTS, i < 3 ? 30 : 80);
    hf_lease *lease =
        must_acquire(client, &(struct want){.name = "job", .ttl_ms = 10000, .flags = HF_DETACHED});
    assert_int_equal(scene_keys("job"), 5);
    must_release(lease);
    assert_int_equal(hf_close(client, 5000), HF_OK);
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
    refused(second, &(struct want){.name = "job", .ttl_ms = 1000}, HF_NO_QUORUM, "counts again in");
    hf_lease *next = must_acquire(
        second, &(struct want){.name = "job", .ttl_ms = 1000, .wait_ms = hold_s * 1000 + 5000});
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
    scene_connect(client);
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

/* The lease has ended by its own clock while its process stood still: the next renewal puts nothing
 * anywhere. */
static void test_renewal_never_after(void **state)
{
    (void)state;
    scene_start(5);
    char url[512];
    quorum_url(&scene.quorum, NULL, url, sizeof url);
    struct actor *holder = scene_actor(url);
    actor_holds(holder, 2,
                &(struct want){.name = "warm", .ttl_ms = 20000}); /* it has its connections, then */
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
    hf_lease *lease =
        must_acquire(client, &(struct want){.name = "job", .ttl_ms = 600, .flags = HF_AUTO_RENEW});
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
        ON_QUORUM("with three of five killed it is refused at once, and nothing is left",
                  test_three_killed),
        ON_QUORUM("with three of five hung it is refused within the time-out, and nothing is left",
                  test_three_hung),
        ON_QUORUM("who waits is let in when the quorum comes back", test_quorum_comes_back),
        ON_QUORUM("the rest of a hold keeps nobody out while two others are dead",
                  test_rest_beside_dead),
        ON_QUORUM("nor while one is dead and one hangs, and the release is on its way",
                  test_rest_of_a_release),
        ON_QUORUM("busy is said when those that refuse are enough to refuse it",
                  test_unclear_is_not_busy),
        ON_QUORUM("of rivals that do not wait one gets it, also when a server is dead",
                  test_one_of_rivals_wins),
        ON_QUORUM("a key that is taken away during the try is not another's",
                  test_taken_away_is_not_busy),
        ON_QUORUM("a client that closes hears that slow servers have released",
                  test_close_hears_the_slow),
        ON_QUORUM("and one whose connection was cut, too", test_close_hears_the_cut),
        ON_QUORUM("and one that has yet to greet it, if the lease was another client's",
                  test_close_hears_the_greeting),
        ON_QUORUM("but does not wait for one that hangs", test_close_leaves_the_hung),
        ON_QUORUM("nor for one that is dead", test_close_leaves_the_dead),
        ON_QUORUM("a client that closes leaves no lease on a server that hangs",
                  test_close_releases_the_hung),
        ON_QUORUM("a detached hold is told when slow servers had time to take it",
                  test_detached_reaches_the_slow),
        ON_QUORUM("a server that comes back empty lets nobody in before the longest hold is over",
                  test_restart_empty),
        ON_QUORUM("a server that came back is asked and released, but does not count",
                  test_one_young_server_is_asked),
        ON_QUORUM("a renewal gives the key back to a server that lost it, with its token",
                  test_renewal_repairs),
        ON_QUORUM("what a majority does not hold any more is lost", test_renewal_never_revives),
        ON_QUORUM("a renewal that comes too late puts nothing anywhere", test_renewal_never_after),
        ON_QUORUM("a lease is kept with two servers away, and lost with three",
                  test_renewal_through_deaths),
    };
    if (argc > 1)
        hold_s = atoi(argv[1]);
    return cmocka_run_group_tests_name("redlock: servers", tests, NULL, NULL);
}
