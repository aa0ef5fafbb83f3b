/* cluster_many.c - a cluster with more primaries than a client once had connections for: locks on
 * all of them are held, renewed, waited for, listed and handed over by one client (G44). */
#include "lib/actors.h"
#include "lib/cluster_setup.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PRIMARIES = CLUSTER_MOST, TTL_MS = 5000, NAMES_TRIED = 5000 };

static struct cluster_servers cluster;
static hf_client *holder, *other;
static char name[PRIMARIES][16]; /* one for each primary */
static _Atomic unsigned lost;

static hf_client *open_client(void)
{
    char url[256];
    hf_client *client;
    int len = snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%u,127.0.0.1:%u",
                       server_port(cluster.server[0]), server_port(cluster.server[PRIMARIES - 1]));
    assert_true(len > 0 && (size_t)len < sizeof url);
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    return client;
}

/* cluster_start() gave primary i the slots from i * 16384 / PRIMARIES on. */
static void find_names(void)
{
    unsigned found = 0;
    for (int i = 0; found < PRIMARIES && i < NAMES_TRIED; i++) {
        char key[32];
        snprintf(key, sizeof key, "lock:job%d", i);
        unsigned slot = cluster_slot_of(&cluster, key);
        unsigned primary = ((slot + 1) * PRIMARIES - 1) / CLUSTER_SLOT_COUNT;
        if (!name[primary][0]) {
            snprintf(name[primary], sizeof name[primary], "job%d", i);
            found++;
        }
    }
    assert_int_equal(found, PRIMARIES);
}

static int start(void **state)
{
    (void)state;
    if (server_missing(SERVER_REDIS))
        return 0;
    cluster_start(&cluster,
                  &(struct cluster_options){.primaries = PRIMARIES, .node_timeout_ms = 15000});
    find_names();
    holder = open_client();
    other = open_client();
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (holder) {
        assert_int_equal(hf_close(holder, 5000), HF_OK);
        assert_int_equal(hf_close(other, 5000), HF_OK);
    }
    servers_end();
    return 0;
}

static int64_t sockets(void)
{
    int64_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char path[300], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        count += readlink(path, to, sizeof to - 1) > 0 && strncmp(to, "socket:", 7) == 0;
    }
    closedir(dir);
    return count;
}

static void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    (void)lease;
    (void)why;
    (void)arg;
    atomic_fetch_add(&lost, 1);
}

static hf_lease *hold(hf_client *client, const char *which, int64_t wait_ms)
{
    hf_lease *lease;
    struct hf_request want = {.size = sizeof want,
                              .name = which,
                              .ttl_ms = TTL_MS,
                              .wait_ms = wait_ms,
                              .flags = HF_AUTO_RENEW,
                              .on_lost = note_loss};
    if (hf_acquire(client, &want, &lease) != HF_OK)
        fail_msg("%s: %s", which, hf_error_text());
    return lease;
}

struct waiter {
    pthread_t thread;
    const char *name;
    hf_lease *lease;
};

static void *wait_for_turn(void *arg)
{
    struct waiter *w = arg;
    w->lease = hold(other, w->name, 60000);
    return NULL;
}

static void note_row(void *arg, const struct hf_row *row)
{
    unsigned *rows = arg;
    rows[row->role == HF_WAITER]++;
}

/* A client that holds one of each and waits for none has a connection to each primary; one that
 * waits has two. */
static void test_all_primaries(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    hf_lease *lease[PRIMARIES];
    struct waiter waiter[PRIMARIES];
    unsigned rows[2] = {0};
    for (int i = 0; i < PRIMARIES; i++)
        lease[i] = hold(holder, name[i], 0);
    for (int i = 0; i < PRIMARIES; i++) {
        waiter[i] = (struct waiter){.name = name[i]};
        assert_int_equal(pthread_create(&waiter[i].thread, NULL, wait_for_turn, &waiter[i]), 0);
    }
    for (int i = 0; i < PRIMARIES; i++)
        await_sight(holder, name[i], 1, 1);
    assert_true(sockets() >= 3 * PRIMARIES);
    nap_us(TTL_MS * 1500); /* all are renewed meanwhile */

    assert_int_equal(hf_list(holder, "job", note_row, rows), HF_OK);
    assert_int_equal(rows[0], PRIMARIES);
    assert_int_equal(rows[1], PRIMARIES);
    for (int i = 0; i < PRIMARIES; i++) {
        uint64_t token = hf_lease_token(lease[i]);
        must_release(lease[i]);
        pthread_join(waiter[i].thread, NULL);
        assert_true(hf_lease_token(waiter[i].lease) > token);
    }
    for (int i = 0; i < PRIMARIES; i++)
        must_release(waiter[i].lease);
    assert_int_equal(atomic_load(&lost), 0);
}

/* The connections to the last primary share their bits with those to others. */
static void test_cut(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    hf_lease *lease[PRIMARIES];
    struct waiter waiter = {.name = name[PRIMARIES - 1]};
    for (int i = 0; i < PRIMARIES; i++)
        lease[i] = hold(holder, name[i], 0);
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_turn, &waiter), 0);
    await_sight(holder, waiter.name, 1, 1);

    server_does(cluster.server[PRIMARIES - 1], "CLIENT KILL TYPE normal");
    server_does(cluster.server[PRIMARIES - 1], "CLIENT KILL TYPE pubsub");
    for (int i = 0; i < PRIMARIES; i++)
        must_release(lease[i]);
    pthread_join(waiter.thread, NULL);
    must_release(waiter.lease);
    assert_int_equal(atomic_load(&lost), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "one client holds, renews, lists and hands over locks on forty primaries",
         .test_func = test_all_primaries},
        {.name = "cut connections to one of forty primaries cost nothing elsewhere",
         .test_func = test_cut},
    };
    return cmocka_run_group_tests(tests, start, end);
}
