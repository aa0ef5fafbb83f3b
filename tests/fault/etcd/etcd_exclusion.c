/* etcd_exclusion.c - one holder at a time on a real etcd while workers are killed, the server is
 * killed and restarted with its data, and keys are deleted by hand; natives stand in the same
 * queue. */
#include "lib/etcd_server.h"
#include "lib/exclusion.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct etcd_server *server;

static int setup(void **state)
{
    (void)state;
    etcd_needed();
    server = etcd_start(NULL);
    char url[128];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%u/fault", etcd_port(server));
    return exclusion_setup(url);
}

static int teardown(void **state)
{
    (void)state;
    exclusion_teardown();
    etcd_servers_end();
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
        etcd_restart(server, true);
        await_turns(before + 10);
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
