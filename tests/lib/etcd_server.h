/* etcd_server.h - real etcd servers for tests, alone or three in a cluster: each a process with a
 * directory and two loopback ports of its own. Short election timeouts, so that leases of 1 s are
 * granted. A function that cannot do its work fails the test that called it. */
#pragma once
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct etcd_server;

/* Returns why etcd cannot be started here; NULL: it can be. */
const char *etcd_missing(void);
void etcd_needed(void); /* skips the test, with the reason, where etcd cannot be started */

/* Starts a server, and returns when it answers. `args`: more of its command line, ends with NULL;
 * or NULL. */
struct etcd_server *etcd_start(const char *const *args);
void etcd_servers_end(void); /* ends all servers, removes their directories */

/* Starts three nodes of one cluster, which has a leader when this returns. */
enum { ETCD_NODES = 3 };
void etcd_cluster_start(struct etcd_server *node[ETCD_NODES]);
/* Returns the number of the leader among the nodes that run. Waits until there is one. */
int etcd_leader(struct etcd_server *const node[ETCD_NODES]);

uint16_t etcd_port(const struct etcd_server *s); /* stays the same after a restart */
uint16_t etcd_peer_port(const struct etcd_server *s);
pid_t etcd_pid(const struct etcd_server *s);
const char *etcd_directory(const struct etcd_server *s);

void etcd_kill9(struct etcd_server *s);
void etcd_stop(struct etcd_server *s); /* SIGTERM, and waits for its end */
/* Starts the server again on the same ports, and kills it first if it is up. */
void etcd_restart(struct etcd_server *s, bool keep_data);
/* Restarts the server as a process of that group, by number, so that rules of nftables can tell
 * which connections are the server's own. Only root may. */
void etcd_use_group(struct etcd_server *s, const char *group);
/* SIGSTOP. A node that is paused is not asked who leads. */
void etcd_pause(struct etcd_server *s);
void etcd_continue(struct etcd_server *s);

/* Runs etcdctl with these words, "get --prefix lock/", and returns what it printed, valid until the
 * next call. It must succeed. */
const char *etcdctl(const struct etcd_server *s, const char *words);
