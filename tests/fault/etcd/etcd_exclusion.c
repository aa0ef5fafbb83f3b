/* etcd_exclusion.c - one holder at a time on a real etcd while workers are killed, the server is
 * killed and restarted with its data, and keys are deleted by hand; natives stand in the same
 * queue.
 *
 * Each worker writes its pid into shared memory while it holds the lock, waits, and reads it back.
 * If its lease is still good and the pid is another one, two held at once. */
#include "lib/engines.h"
#include "lib/etcd_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, TTL_MS = 2000 };

struct board {
    _Atomic int inside, overlaps, turns, token_went_back, stop;
    _Atomic uint64_t token;
};

static struct etcd_server *server;
static struct board *board;
static char url[128];

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void await(_Atomic int *word, int at_least)
{
    for (int waited = 0; atomic_load(word) < at_least; waited += 10) {
        if (waited > 30000)
            fail_msg("%d instead of %d after 30 s", atomic_load(word), at_least);
        nap_ms(10);
    }
}

static hf_client *connect_here(void)
{
    hf_client *client;
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

static int setup(void **state)
{
    (void)state;
    etcd_needed();
    server = etcd_start(NULL);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%u/fault", etcd_port(server));
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    munmap(board, sizeof *board);
    etcd_servers_end();
    return 0;
}

/* ---- Workers ---- */

static void note_token(uint64_t token)
{
    uint64_t before = atomic_exchange(&board->token, token);
    atomic_fetch_add(&board->token_went_back, token <= before);
}

static void turn(hf_client *client)
{
    hf_lease *lease;
    hf_status status =
        hf_acquire(client, ASK(.name = "e", .ttl_ms = TTL_MS, .wait_ms = 20000), &lease);
    if (status != HF_OK) {
        nap_ms(20);
        return;
    }
    /* Whoever holds writes its pid, and finds it still there unless another one holds, too. */
    atomic_store(&board->inside, (int)getpid());
    note_token(hf_lease_token(lease));
    nap_ms(2);
    bool still_mine = atomic_load(&board->inside) == (int)getpid();
    if (hf_lease_ok(lease)) {
        atomic_fetch_add(&board->overlaps, !still_mine);
        atomic_fetch_add(&board->turns, 1);
    }
    hf_lease_free(lease);
}

static pid_t start_worker(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    hf_client *client = connect_here();
    while (!atomic_load(&board->stop))
        turn(client);
    if (hf_close(client, 2000) != HF_OK)
        _exit(2);
    _exit(0);
}

static void start_workers(pid_t pid[WORKERS])
{
    memset(board, 0, sizeof *board);
    for (int i = 0; i < WORKERS; i++)
        pid[i] = start_worker();
    await(&board->turns, 5);
}

static void stop_workers(const pid_t pid[WORKERS])
{
    atomic_store(&board->stop, 1);
    for (int i = 0; i < WORKERS; i++)
        waitpid(pid[i], NULL, 0);
    assert_int_equal(atomic_load(&board->overlaps), 0);
    assert_int_equal(atomic_load(&board->token_went_back), 0);
}

/* ---- Tests ---- */

static void test_killed_workers(void **state)
{
    (void)state;
    pid_t pid[WORKERS];
    start_workers(pid);
    for (int round = 0; round < 6; round++) {
        int before = atomic_load(&board->turns), which = round % WORKERS;
        kill(pid[which], SIGKILL);
        waitpid(pid[which], NULL, 0);
        pid[which] = start_worker();
        await(&board->turns, before + 5);
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
        etcd_restart(server, true);
        await(&board->turns, before + 10);
    }
    stop_workers(pid);
}

static void test_deleted_key(void **state)
{
    (void)state;
    struct outcome lost = {0};
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "d", .ttl_ms = 6000, .flags = HF_AUTO_RENEW,
                                       .on_lost = note_outcome, .lost_arg = &lost));
    nap_ms(2500); /* renewed at 2 s: from then on its key is watched */
    assert_true(hf_lease_ok(lease));
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    etcdctl(server, "del --prefix fault/d/");
    assert_int_equal(await_outcome(&lost), HF_LOST);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec <= 1); /* not at the next renewal, 2 s later */
    hf_lease_free(lease);
    close_client(client);
}

/* Runs the commands under etcd's own lock. */
static FILE *native_lock(const char *name, const char *commands)
{
    char path[128], command[256];
    snprintf(path, sizeof path, "%s/native.sh", etcd_directory(server));
    FILE *script = fopen(path, "we");
    assert_non_null(script);
    fprintf(script, "#!/bin/sh\n%s\n", commands);
    fclose(script);
    snprintf(command, sizeof command,
             "ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%u lock %s sh %s", etcd_port(server),
             name, path);
    FILE *native = popen(command, "re");
    assert_non_null(native);
    return native;
}

static int keys_below(const char *prefix)
{
    char words[128];
    int keys = 0;
    snprintf(words, sizeof words, "get --prefix --keys-only %s", prefix);
    for (const char *at = etcdctl(server, words); (at = strstr(at, prefix)); at++)
        keys++;
    return keys;
}

static void test_native_excluded(void **state)
{
    (void)state;
    hf_client *client = connect_here();
    hf_lease *lease = take(client, ASK(.name = "n", .ttl_ms = 5000));
    uint64_t token = hf_lease_token(lease);
    char out[256] = "";
    FILE *native = native_lock("fault/n", "echo $ETCD_LOCK_REV");
    while (keys_below("fault/n/") < 2)
        nap_ms(20);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_non_null(fgets(out, sizeof out, native));
    assert_true(strtoull(out, NULL, 10) > token);
    assert_int_equal(pclose(native), 0);
    lease = take(client, ASK(.name = "n", .ttl_ms = 5000, .wait_ms = 10000));
    assert_true(hf_lease_token(lease) > strtoull(out, NULL, 10));
    give(lease);
    close_client(client);
}

static void test_native_excludes(void **state)
{
    (void)state;
    hf_client *client = connect_here();
    char line[256] = "";
    FILE *native = native_lock("fault/m", "echo held; sleep 1; echo done");
    assert_non_null(fgets(line, sizeof line, native));
    assert_string_equal(line, "held\n");
    refuse(client, ASK(.name = "m", .ttl_ms = 5000), HF_BUSY, "m");
    hf_lease *lease = take(client, ASK(.name = "m", .ttl_ms = 5000, .wait_ms = 10000));
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
        SENTENCE("a restarted server goes on with its holds, and tokens rise",
                 test_restarted_server),
        SENTENCE("the holder of a key that was deleted by hand is told at once", test_deleted_key),
        SENTENCE("etcdctl lock waits for ours, and ours for it, with rising tokens",
                 test_native_excluded),
        SENTENCE("while etcdctl lock holds, ours is busy or waits", test_native_excludes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
