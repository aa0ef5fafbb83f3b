/* consul_server.h - real Consul agents for tests: one server each in development mode, a process
 * with a directory and three loopback ports of its own. Sessions of 1 s are allowed. A function
 * that cannot do its work fails the test that called it. */
#pragma once
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct consul_server;

/* Returns why Consul cannot be started here; NULL: it can be. The first call may fetch it. */
const char *consul_missing(void);
void consul_needed(void); /* skips the test, with the reason, where Consul cannot be started */

/* Starts an agent, and returns when it has a leader. `settings`: more of its configuration, as JSON
 * fields that begin with a comma; or NULL. */
struct consul_server *consul_start(const char *settings);
void consul_servers_end(void); /* ends all agents, removes their directories */

uint16_t consul_port(const struct consul_server *s); /* stays the same after a restart */
pid_t consul_pid(const struct consul_server *s);
const char *consul_directory(const struct consul_server *s);
const char *consul_program(void);

void consul_kill9(struct consul_server *s);
/* Starts the agent again on the same ports, and kills it first if it is up. It keeps no data. */
void consul_restart(struct consul_server *s);
void consul_pause(struct consul_server *s);
void consul_continue(struct consul_server *s);

/* Sends one request of HTTP to the agent: "GET /v1/kv/lock/?recurse", with a body or "". Returns
 * the body of the reply, valid until the next call; "" if there is no reply. */
const char *consul_ask(const struct consul_server *s, const char *request, const char *body);
/* Returns the Raft index of the server, which rises with every write. */
uint64_t consul_raft_index(const struct consul_server *s);
