/* zookeeper_server.h - real ZooKeeper servers for tests: one alone each, a process with a directory
 * and a loopback port of its own. Ticks of 150 ms, so that sessions of 300 ms are given. A function
 * that cannot do its work fails the test that called it. */
#pragma once
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct zookeeper_server;

/* Returns why ZooKeeper cannot be started here; NULL: it can be. */
const char *zookeeper_missing(void);
/* skips the test, with the reason, where ZooKeeper cannot be started */
void zookeeper_needed(void);

/* Starts a server, and returns when it serves. `config`: more lines of zoo.cfg, or NULL. */
struct zookeeper_server *zookeeper_start(const char *config);
/* Does the same, with an option for java: "-Djute.maxbuffer=8192". */
struct zookeeper_server *zookeeper_start_with(const char *config, const char *option);
void zookeeper_servers_end(void); /* ends all servers, removes their directories */

/* Returns a number that the server counts (`mntr`), by its name without the "zk_". */
int64_t zookeeper_count(const struct zookeeper_server *s, const char *name);

uint16_t zookeeper_port(const struct zookeeper_server *s); /* stays the same after a restart */
pid_t zookeeper_pid(const struct zookeeper_server *s);

void zookeeper_kill9(struct zookeeper_server *s);
/* Starts the server again on the same port, with its data, and kills it first if it is up. */
void zookeeper_restart(struct zookeeper_server *s);
void zookeeper_pause(struct zookeeper_server *s);
void zookeeper_continue(struct zookeeper_server *s);
