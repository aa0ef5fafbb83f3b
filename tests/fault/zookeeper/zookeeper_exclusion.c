/* zookeeper_exclusion.c - one holder at a time on a real ZooKeeper while workers are killed, the
 * server is killed and restarted with its data, replies are lost, and nodes are deleted by hand. */
#include "lib/exclusion.h"
#include "lib/proxy.h"
#include "lib/zookeeper_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct zookeeper_server *server;

static int setup(void **state)
{
    (void)state;
    zookeeper_needed();
    server = zookeeper_start(NULL);
    char url[128];
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%u/fault", zookeeper_port(server));
    return exclusion_setup(url);
}

static int teardown(void **state)
{
    (void)state;
    exclusion_teardown();
    zookeeper_servers_end();
    return 0;
}

/* ---- Tests ---- */

static void test_killed_workers(void **state)
{
    (void)state;
    pid_t pid[WORKERS];
    start_workers(pid);
    for (int round = 0; round < 6; round++) {
        int before = atomic_load(&board->turns), which = round % WORKERS;
        replace_worker(&pid[which]);
        await_turns(before + 5);
    }
    stop_workers(pid);
}

static void test_restarted_server(void **state)
{
    (void)state;
    pid_t pid[WORKERS];
    start_workers(pid);
    for (int round = 0; round < 3; round++) {
        int before = atomic_load(&board->turns);
        zookeeper_restart(server);
        await_turns(before + 10);
    }
    stop_workers(pid);
}

/* A hold that an administrator breaks: its holder is told at once, because its place is watched
 * from the first renewal on. */
static void test_broken_hold(void **state)
{
    (void)state;
    struct outcome lost = {0};
    hf_client *client = connect_here(), *admin = connect_here();
    hf_lease *lease = take(client, ASK(.name = "d", .ttl_ms = 6000, .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    nap_ms(2500); /* renewed at 2 s */
    assert_true(hf_lease_ok(lease));
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(hf_break(admin, "d", hf_lease_token(lease), NULL), HF_OK);
    assert_int_equal(await_outcome(&lost), HF_LOST);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec <= 1); /* not at the next renewal, 2 s later */
    hf_lease_free(lease);
    close_client(client);
    close_client(admin);
}

/* Bytes of the reply to the greeting: what follows are replies to requests. */
enum { GREETING = 41, BYTES = 400, STEP = 9 };

/* One cycle through a connection that breaks behind that byte of the replies. Returns true if the
 * cycle was long enough for it. */
static bool cut_cycle(struct proxy *proxy, hf_client *direct, uint64_t after)
{
    char through[128];
    hf_client *client;
    snprintf(through, sizeof through, "zookeeper://127.0.0.1:%u/fault", proxy_port(proxy));
    assert_int_equal(hf_open(through, NULL, &client), HF_OK);
    int fault = proxy_plant(proxy, &(struct proxy_fault){.kind = PROXY_CUT,
                                                         .way = PROXY_REPLIES,
                                                         .connection = proxy_connections(proxy) + 1,
                                                         .after = after});
    hf_lease *lease = take(client, ASK(.name = "r", .ttl_ms = 10000, .wait_ms = 20000));
    struct view view = look_at(direct, "r");
    assert_int_equal(view.holders, 1);
    assert_int_equal(view.waiters, 0);
    assert_int_equal(view.row[0].token, hf_lease_token(lease));
    hf_status released = hf_release(lease);
    assert_true(released == HF_OK || released == HF_IN_DOUBT);
    hf_lease_free(lease);
    close_client(client);
    return proxy_happened(proxy, fault);
}

/* G51. The connection breaks behind every few bytes of the replies: what the server did without a
 * reply is found by the attempt in the name of the place, and nothing is left in the queue. */
static void test_lost_replies(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(zookeeper_port(server));
    hf_client *direct = connect_here();
    int happened = 0;
    for (uint64_t after = GREETING; after < GREETING + BYTES; after += STEP) {
        happened += cut_cycle(proxy, direct, after);
        assert_int_equal(look_at(direct, "r").holders, 0);
        give(take(direct, ASK(.name = "r", .ttl_ms = 10000)));
    }
    assert_true(happened > 20);
    close_client(direct);
    proxy_end(proxy);
}

/* A client that stands still for longer than its session: lost at once when it goes on. */
static void test_stopped_client(void **state)
{
    (void)state;
    memset(board, 0, sizeof *board);
    pid_t pid = fork();
    if (pid == 0) {
        hf_client *client = connect_here();
        hf_lease *lease = take(client, ASK(.name = "z", .ttl_ms = 600, .flags = HF_AUTO_RENEW));
        atomic_store(&board->turns, 1);
        while (hf_lease_ok(lease))
            nap_ms(1);
        _exit(atomic_load(&board->inside) == 1 ? 0 : 1); /* it must not be lost before */
    }
    await_turns(1);
    nap_ms(1500);
    kill(pid, SIGSTOP);
    hf_client *client = connect_here();
    hf_lease *next = take(client, ASK(.name = "z", .ttl_ms = 2000, .wait_ms = 10000));
    atomic_store(&board->inside, 1);
    kill(pid, SIGCONT);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    give(next);
    close_client(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("killed workers cost turns, and never let two hold at once", test_killed_workers),
        SENTENCE("a restarted server goes on with its holds, and tokens rise",
                 test_restarted_server),
        SENTENCE("the holder of a lock that was broken is told at once", test_broken_hold),
        SENTENCE("a lost reply leaves one place, and nothing behind", test_lost_replies),
        SENTENCE("a client that stood still beyond its session has lost its hold",
                 test_stopped_client),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
