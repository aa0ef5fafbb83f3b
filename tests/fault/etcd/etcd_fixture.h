/* etcd_fixture.h - what the fault tests of etcd share: clients on a prefix of their own, threads
 * that wait for a lock, and the keys of a name. */
#pragma once
#include "lib/actors.h"
#include "lib/etcd_server.h"
#include "lib/loss_notes.h"

#include <pthread.h>

/* Opens a client; the test fails with its words if it cannot. */
hf_client *etcd_client(const char *url);
void etcd_client_close(hf_client *client);

int64_t ms_since(int64_t from_ns);

/* ---- A thread that waits ---- */

struct waiter {
    hf_client *client;
    const char *name;
    int64_t ttl_ms, wait_ms;
    pthread_t thread;
    hf_lease *lease; /* once it is granted */
    hf_status status;
    char text[256]; /* of a refusal */
    int64_t at_ns;  /* when the call returned */
    _Atomic bool is_over;
};

void waiter_start(struct waiter *waiter);
void waiter_join(struct waiter *waiter);
/* Joined, granted, and released. */
void waiter_must_hold(struct waiter *waiter);

/* ---- Keys ---- */

enum { KEYS_MAX = 256 };

/* The entries of a lock, in the order of creation. */
struct etcd_keys {
    int count;
    char key[KEYS_MAX][160];
    uint64_t created[KEYS_MAX];
    int64_t lease[KEYS_MAX];
};

/* `prefix` is that of the keys: "fault/job/". */
struct etcd_keys etcd_keys(const struct etcd_server *server, const char *prefix);
void etcd_await_keys(const struct etcd_server *server, const char *prefix, int count);
void etcd_revoke(const struct etcd_server *server, int64_t lease);
