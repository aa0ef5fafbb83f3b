/* redlock_tokens.c - tokens on a quorum rise with every grant: whichever majority grants, whatever
 * the servers' clocks say, and when servers forget everything (G36). docs/redlock.md has the
 * argument. */
#include "redlock_fixture.h"

enum { ROUNDS = 12 };

static uint64_t grant_token(hf_client *client)
{
    hf_lease *lease =
        must_acquire(client, &(struct want){.name = "job", .ttl_ms = 1000, .wait_ms = 5000});
    uint64_t token = hf_lease_token(lease);
    must_release(lease);
    return token;
}

static void check_rises(uint64_t *last, uint64_t token)
{
    if (token <= *last)
        fail_msg("token %llu behind %llu", (unsigned long long)token, (unsigned long long)*last);
    *last = token;
}

/* A client that has no way to the servers in the mask. */
static hf_client *client_without(unsigned mask, const char *query)
{
    char url[512];
    unsigned way = scene.proxied;
    scene_proxied_url(query, url, sizeof url);
    for (unsigned i = 0; i < 5; i++)
        if (mask & 1u << i)
            proxy_refuse(scene.proxy[way][i], true);
    return scene_open(url);
}

/* Two clients whose majorities share one server. */
static void try_two_majorities(uint64_t *last)
{
    hf_client *low = client_without(0x18, NULL), *high = client_without(0x03, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        check_rises(last, grant_token(low));
        check_rises(last, grant_token(high));
    }
}

static void test_two_majorities(void **state)
{
    (void)state;
    uint64_t last = 0;
    scene_start(5);
    try_two_majorities(&last);
}

/* Clocks that differ by minutes. The shared server proposes less than the others; it was told what
 * they agreed on. */
static void test_clocks_apart(void **state)
{
    (void)state;
    uint64_t last = 0;
    scene_start(5);
    quorum_step_clock(&scene.quorum, 0, 300);
    quorum_step_clock(&scene.quorum, 1, 120);
    quorum_step_clock(&scene.quorum, 4, -600);
    try_two_majorities(&last);
}

/* One clock steps by an hour, ahead and back, while the lock is used. */
static void test_clock_steps(void **state)
{
    (void)state;
    static const int64_t step[] = {3600, -3600, -3600, 3600, 7200, -7200};
    uint64_t last = 0;
    scene_start(5);
    hf_client *low = client_without(0x18, NULL), *high = client_without(0x03, NULL),
              *all = scene_client(NULL);
    for (unsigned i = 0; i < sizeof step / sizeof *step; i++) {
        for (unsigned server = 0; server < 5;
             server += 2) { /* the shared one, and one of each side */
            check_rises(&last, grant_token(low));
            check_rises(&last, grant_token(high));
            quorum_step_clock(&scene.quorum, server, step[i]);
            check_rises(&last, grant_token(all));
            check_rises(&last, grant_token(high));
            check_rises(&last, grant_token(low));
            quorum_step_clock(&scene.quorum, server, -step[i]);
        }
    }
}

/* A step while it is held: its key is gone on that server at once, or stays there; that is one
 * vote. */
static void test_step_while_held(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *holder = scene_client(NULL), *other = scene_client(NULL);
    hf_lease *lease = must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 1500});
    uint64_t last = hf_lease_token(lease);
    scene_await_keys("job", 5);
    quorum_step_clock(&scene.quorum, 2, 3600);
    assert_false(scene_has_key(2, "job"));
    refused(other, &(struct want){.name = "job", .ttl_ms = 1500}, HF_BUSY, "held by pid");
    assert_int_equal(hf_extend(lease, 1500), HF_OK);
    scene_await_keys("job", 5);
    quorum_step_clock(&scene.quorum, 1, -3600);
    hf_lease_free(lease);
    check_rises(&last, grant_token(other));
}

/* Servers forget everything, and their clocks are wrong by less than half of max_ttl: 0 and 1 are
 * ahead, and the one that both majorities share comes back empty. */
static void test_forgotten(void **state)
{
    (void)state;
    static const char query[] = "max_ttl=3s";
    uint64_t last = 0;
    scene_start(5);
    quorum_step_clock(&scene.quorum, 0, 1);
    quorum_step_clock(&scene.quorum, 1, 1);
    hf_client *low = client_without(0x18, query), *high = client_without(0x03, query);
    for (int i = 0; i < 2; i++) {
        check_rises(&last, grant_token(low));
        server_kill9(scene.quorum.server[2]);
        server_restart(scene.quorum.server[2], false);
        check_rises(&last, grant_token(high));
    }
}

/* What was granted is what the majority has, and the counters are not below it. */
static void test_written_back(void **state)
{
    (void)state;
    scene_start(5);
    quorum_step_clock(&scene.quorum, 3, 500);
    hf_client *client = scene_client(NULL);
    for (int i = 0; i < ROUNDS; i++) {
        hf_lease *lease = must_acquire(client, &(struct want){.name = "job", .ttl_ms = 5000});
        unsigned knows = 0;
        for (unsigned j = 0; j < 5; j++) {
            redisReply *counter = server_cli(scene.quorum.server[j], "GET {lock:job}:t");
            knows += counter->type == REDIS_REPLY_STRING &&
                     strtoull(counter->str + (counter->str[0] == '~'), NULL, 10) >=
                         hf_lease_token(lease);
            freeReplyObject(counter);
        }
        assert_true(knows >= 3);
        must_release(lease);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("tokens rise when the majorities differ", test_two_majorities),
        ON_QUORUM("tokens rise when the clocks differ by minutes", test_clocks_apart),
        ON_QUORUM("tokens rise when a clock steps by an hour", test_clock_steps),
        ON_QUORUM("a clock that steps while it is held costs one vote", test_step_while_held),
        ON_QUORUM("tokens rise when servers forget everything", test_forgotten),
        ON_QUORUM("a majority knows of a token before it is granted", test_written_back),
    };
    return cmocka_run_group_tests_name("redlock: tokens", tests, NULL, NULL);
}
