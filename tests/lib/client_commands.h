/* client_commands.h - how many commands clients sent to a server, without those that scripts call.
 *
 * INFO commandstats counts both. But what scripts call clients never send, so it is left out, and
 * all the rest is summed up. tests/fault/redis/redis_counts.c compares that with MONITOR, which
 * tells the two apart. */
#pragma once
#include "servers.h"

struct client_commands {
    int64_t scripts, blmpop, ssubscribe, all; /* scripts: calls of the library */
};

struct client_commands client_commands_of(const struct server *s);
struct client_commands client_commands_since(const struct server *s,
                                             const struct client_commands *before);
