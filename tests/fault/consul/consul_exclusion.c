/* consul_exclusion.c - one holder at a time on a real Consul while workers are killed, the agent is
 * stopped or restarted, sessions and keys are ended by hand; and `consul lock` beside ours. */
#include "lib/consul_server.h"
#include "lib/exclusion.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct consul_server *server;

static int setup(void **state)
{
    (void)state;
    consul_needed();
    server = consul_start(NULL);
    char url[128];
    snprintf(url, sizeof url, "consul://127.0.0.1:%u/fault?session_min=1s", consul_port(server));
    return exclusion_setup(url);
}

static int teardown(void **state)
{
    (void)state;
    exclusion_teardown();
    consul_servers_end();
    return 0;
}

/* ---- Tests ---- */

static void test_killed_workers(void **state)
{
    (void)state;
    pid_t pid[WORKERS];
    start_workers(pid);
    for (int round = 0; round < 4; round++) {
        int before = atomic_load(&board->turns), which = round % WORKERS;
        replace_worker(&pid[which]);
        await_turns(before + 5);
    }
    stop_workers(pid);
}

/* Shorter than the ttl: nobody is lost, and nobody holds beside another. */
static void test_stopped_agent(void **state)
{
    (void)state;
    pid_t pid[WORKERS];
    start_workers(pid);
    for (int round = 0; round < 2; round++) {
        int before = atomic_load(&board->turns);
        consul_pause(server);
        nap_ms(WORKER_TTL_MS / 2);
        consul_continue(server);
        await_turns(before + 5);
    }
    stop_workers(pid);
}

/* An agent in development mode keeps nothing: its index begins anew, and all holds are lost. */
static void test_empty_agent(void **state)
{
    (void)state;
    struct outcome lost = {0};
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "r", .ttl_ms = 10000, .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    consul_restart(server);
    assert_int_equal(await_outcome(&lost), HF_LOST);
    hf_lease_free(lease);
    give(take(client, ASK(.name = "r", .ttl_ms = 10000, .wait_ms = 10000)));
    close_client(client);
}

/* The session that has locked the key. */
static void session_of(const char *key, char session[64])
{
    char request[256];
    snprintf(request, sizeof request, "GET /v1/kv/%s?recurse", key);
    const char *at = strstr(consul_ask(server, request, ""), "\"Session\": \"");
    assert_non_null(at);
    snprintf(session, 37, "%s", at + strlen("\"Session\": \""));
}

/* Finds a session that has locked a key below the prefix, other than that one. */
static bool find_other_session(const char *prefix, const char *known, char session[64])
{
    char request[256];
    snprintf(request, sizeof request, "GET /v1/kv/%s?recurse", prefix);
    const char *at = consul_ask(server, request, "");
    while ((at = strstr(at, "\"Session\": \""))) {
        at += strlen("\"Session\": \"");
        if (strncmp(at, known, 36) != 0)
            return snprintf(session, 37, "%s", at);
    }
    return false;
}

static void test_destroyed_session(void **state)
{
    (void)state;
    struct outcome lost = {0};
    char session[64], request[128];
    hf_client *client = connect_here(), *other = connect_here();
    hf_lease *lease = take(client, ASK(.name = "d", .ttl_ms = 6000, .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    uint64_t token = hf_lease_token(lease);
    nap_ms(2500); /* renewed at 2 s: from then on its keys are watched */
    assert_true(hf_lease_ok(lease));
    session_of("fault/d/", session);
    snprintf(request, sizeof request, "PUT /v1/session/destroy/%s", session);
    int64_t before = now_ms();
    assert_non_null(strstr(consul_ask(server, request, ""), "true"));
    assert_int_equal(await_outcome(&lost), HF_LOST);
    assert_true(now_ms() - before < 1500); /* not at the next renewal, 2 s later */
    hf_lease_free(lease);
    lease = take(other, ASK(.name = "d", .ttl_ms = 6000, .wait_ms = 5000));
    assert_true(hf_lease_token(lease) > token);
    give(lease);
    close_client(client);
    close_client(other);
}

/* A holder keeps its own session; the waiter's place is gone, and it takes another one. */
static void test_waiter_without_session(void **state)
{
    (void)state;
    struct outcome done = {0};
    char holders[64], key[128], session[64], request[128];
    hf_client *client = connect_here(), *other = connect_here();
    hf_lease *lease = take(client, ASK(.name = "w", .ttl_ms = 10000));
    session_of("fault/w/.lock", holders);
    start_ask(other, ASK(.name = "w", .ttl_ms = 10000, .wait_ms = 20000), &done);
    for (int waited = 0; !find_other_session("fault/w/", holders, session); waited += 20) {
        assert_true(waited < 10000);
        nap_ms(20);
    }
    snprintf(request, sizeof request, "PUT /v1/session/destroy/%s", session);
    assert_non_null(strstr(consul_ask(server, request, ""), "true"));
    assert_false(find_other_session("fault/w/", holders, key));
    for (int waited = 0; !find_other_session("fault/w/", holders, key); waited += 20) {
        assert_true(waited < 10000); /* it asks again, and does not believe that it holds */
        assert_int_equal(atomic_load(&done.calls), 0);
        nap_ms(20);
    }
    assert_string_not_equal(key, session);
    uint64_t token = hf_lease_token(lease);
    give(lease);
    assert_int_equal(await_outcome(&done), HF_OK);
    assert_true(hf_lease_token(done.lease) > token);
    give(done.lease);
    close_client(client);
    close_client(other);
}

static void test_deleted_lock(void **state)
{
    (void)state;
    struct outcome lost = {0};
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "k", .ttl_ms = 6000, .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    nap_ms(2500);
    int64_t before = now_ms();
    consul_ask(server, "DELETE /v1/kv/fault/k/.lock", "");
    assert_int_equal(await_outcome(&lost), HF_LOST);
    assert_true(now_ms() - before < 1500);
    hf_lease_free(lease);
    give(take(client, ASK(.name = "k", .ttl_ms = 6000))); /* nothing of it is left */
    close_client(client);
}

/* Ended between one and two ttl. */
static void test_dead_holder(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        hf_client *client = connect_here();
        take(client, ASK(.name = "dead", .ttl_ms = WORKER_TTL_MS));
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    int64_t died = now_ms();
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "dead", .ttl_ms = WORKER_TTL_MS, .wait_ms = 15000));
    int64_t passed = now_ms() - died;
    assert_in_range(passed, WORKER_TTL_MS - 1000, 2 * WORKER_TTL_MS + 2000);
    give(lease);
    close_client(client);
}

/* A session that ended keeps its lock closed for so long; a release does not. */
static void test_lock_delay(void **state)
{
    (void)state;
    char session[64], request[128];
    hf_client *client = connect_with("&lock_delay=3s");
    give(take(client, ASK(.name = "y", .ttl_ms = 10000)));
    hf_lease *lease = take(client, ASK(.name = "y", .ttl_ms = 10000));
    session_of("fault/y/", session);
    snprintf(request, sizeof request, "PUT /v1/session/destroy/%s", session);
    int64_t before = now_ms();
    consul_ask(server, request, "");
    hf_client *other = connect_here();
    hf_lease *next = take(other, ASK(.name = "y", .ttl_ms = 10000, .wait_ms = 10000));
    assert_in_range(now_ms() - before, 2900, 8000);
    give(next);
    refuse(client, ASK(.name = "s", .ttl_ms = 10000, .kind = HF_SEMAPHORE, .capacity = 2),
           HF_UNSUPPORTED, "lock_delay");
    hf_lease_free(lease);
    close_client(other);
    close_client(client);
}

/* As `consul lock` holds it, by a session with a lock-delay. */
static void test_native_lock_delay(void **state)
{
    (void)state;
    char session[64], request[256];
    const char *made =
        consul_ask(server, "PUT /v1/session/create", "{\"TTL\": \"10s\", \"LockDelay\": \"3s\"}");
    const char *id = strstr(made, "\"ID\": \"");
    assert_non_null(id);
    snprintf(session, 37, "%s", id + strlen("\"ID\": \""));
    snprintf(request, sizeof request, "PUT /v1/kv/fault/z/.lock?acquire=%s&flags=%llu", session,
             0x2ddccbc058a50c18ull);
    assert_non_null(strstr(consul_ask(server, request, ""), "true"));

    hf_client *client = connect_here();
    refuse(client, ASK(.name = "z", .ttl_ms = 10000), HF_BUSY, "z");
    snprintf(request, sizeof request, "PUT /v1/session/destroy/%s", session);
    int64_t before = now_ms();
    assert_non_null(strstr(consul_ask(server, request, ""), "true"));
    refuse(client, ASK(.name = "z", .ttl_ms = 10000), HF_BUSY, "z"); /* nobody has it */
    hf_lease *lease = take(client, ASK(.name = "z", .ttl_ms = 10000, .wait_ms = 15000));
    assert_in_range(now_ms() - before, 2900, 6000);
    give(lease);
    close_client(client);
}

static int connect_idle(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(consul_port(server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The agent closes the 201st connection of an address at once. */
static void test_many_connections(void **state)
{
    (void)state;
    enum { MOST = 200 };
    int idle[MOST];
    hf_client *holder = connect_here(), *late = connect_here();
    hf_lease *lease = take(holder, ASK(.name = "o", .ttl_ms = 6000, .flags = HF_AUTO_RENEW));
    for (int i = 0; i < MOST; i++)
        idle[i] = connect_idle();
    refuse(late, ASK(.name = "o", .ttl_ms = 6000), HF_UNAVAILABLE, "http_max_conns_per_client");
    nap_ms(2500); /* the holder renews on the connection that it has */
    assert_true(hf_lease_ok(lease));
    give(lease);
    for (int i = 0; i < MOST; i++)
        close(idle[i]);
    give(take(late, ASK(.name = "o", .ttl_ms = 6000, .wait_ms = 5000)));
    close_client(late);
    close_client(holder);
}

static void test_short_ttl(void **state)
{
    (void)state;
    char usual[128];
    hf_client *client;
    snprintf(usual, sizeof usual, "consul://127.0.0.1:%u/fault", consul_port(server));
    assert_int_equal(hf_open(usual, NULL, &client), HF_OK);
    refuse(client, ASK(.name = "t", .ttl_ms = 9999), HF_INVALID, "10000");
    close_client(client);
}

/* ---- Natives ---- */

/* Runs the commands under Consul's own lock. */
static FILE *native_lock(const char *name, const char *commands)
{
    char command[1024];
    snprintf(command, sizeof command, "CONSUL_HTTP_ADDR=127.0.0.1:%u %s lock fault/%s '%s' 2>&1",
             consul_port(server), consul_program(), name, commands);
    FILE *native = popen(command, "re");
    assert_non_null(native);
    return native;
}

static bool has_native_waiter(void)
{
    return strstr(consul_ask(server, "GET /v1/session/list", ""), "Consul lock");
}

static void test_native_excluded(void **state)
{
    (void)state;
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "n", .ttl_ms = 5000, .flags = HF_AUTO_RENEW));
    char line[256] = "";
    FILE *native = native_lock("n", "echo held");
    for (int waited = 0; !has_native_waiter(); waited += 20) {
        assert_true(waited < 10000);
        nap_ms(20);
    }
    nap_ms(500);
    int64_t before = now_ms();
    assert_true(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_non_null(fgets(line, sizeof line, native));
    assert_string_equal(line, "held\n");
    assert_true(now_ms() - before < 10000);
    assert_int_equal(pclose(native), 0);
    close_client(client);
}

static void test_native_excludes(void **state)
{
    (void)state;
    hf_client *client = connect_here();
    char line[256] = "";
    FILE *native = native_lock("m", "echo held; sleep 2; echo done");
    assert_non_null(fgets(line, sizeof line, native));
    assert_string_equal(line, "held\n");
    refuse(client, ASK(.name = "m", .ttl_ms = 5000), HF_BUSY, "m");
    refuse(client, ASK(.name = "m", .ttl_ms = 5000, .kind = HF_READ), HF_BUSY, "m");
    assert_int_equal(look_at(client, "m").holders, 1);
    hf_lease *lease = take(client, ASK(.name = "m", .ttl_ms = 5000, .wait_ms = 20000));
    assert_non_null(fgets(line, sizeof line, native)); /* it was done before we held */
    assert_string_equal(line, "done\n");
    pclose(native);
    give(lease);
    close_client(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("killed workers cost turns, and never let two hold at once", test_killed_workers),
        SENTENCE("an agent that stands still for less than a ttl lets nobody hold beside another",
                 test_stopped_agent),
        SENTENCE("a holder whose session was ended by hand is told, and the next token is higher",
                 test_destroyed_session),
        SENTENCE("a waiter whose session was ended by hand asks again",
                 test_waiter_without_session),
        SENTENCE("a holder whose .lock was deleted by hand is told, and leaves nothing behind",
                 test_deleted_lock),
        SENTENCE("the lock of a dead process is free within two ttl", test_dead_holder),
        SENTENCE("lock_delay keeps a lock closed whose session was ended, and no released one",
                 test_lock_delay),
        SENTENCE("a native lock whose session was ended is waited for as long as its lock-delay",
                 test_native_lock_delay),
        SENTENCE("the 201st connection is 69, with the agent's setting in the text",
                 test_many_connections),
        SENTENCE("a ttl below the servers' minimum is refused with that minimum", test_short_ttl),
        SENTENCE("consul lock waits for ours", test_native_excluded),
        SENTENCE("while consul lock holds, ours is busy or waits", test_native_excludes),
        SENTENCE("an agent that lost its data has lost all holds, and their holders are told",
                 test_empty_agent),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
