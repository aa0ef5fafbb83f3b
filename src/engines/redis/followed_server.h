/* followed_server.h - a Redis engine whose server may be replaced by another one while ops go on,
 * as engines/sentinel uses it: redis_wire_engine with these differences.
 *
 * The engine is opened without a server. Ops stay unsent until redis_follow() names one, for
 * connect_timeout at most. Another server takes over all ops: requests in flight on the old one
 * have an unknown outcome, holds are checked and waiters ask again as soon as the new one has
 * greeted. None of these functions is called from inside a function of the host. */
#pragma once
#include "redis_member.h"

/* Makes an engine follow servers. Call it before the first submit. `what`: stands for the server
 * in messages until one is known. */
void redis_follow_begin(void *redis, const char *what);
/* Follows that server from now on; dials it at once if an op needs it. */
void redis_follow(void *redis, const struct endpoint *to, nanos now);
/* Fails the ops that wait for a server, because none can be found. */
void redis_follow_failed(void *redis, hf_status status, const char *why, nanos now);
/* Keeps requests for new locks unsent until `until`, because the server is about to be replaced.
 * With 0 they are sent. */
void redis_follow_hold_back(void *redis, nanos until, nanos now);
/* Names the connections that will tell which server to follow. Ops that wait for the server wait
 * on these connections. */
void redis_follow_seek_by(void *redis, connection_set connections);

/* Returns true if ops wait and no server is known. */
bool redis_follow_is_sought(const void *redis);
/* Returns true if the server has greeted and is a primary. */
bool redis_follow_is_up(const void *redis);
/* Returns the connections to a new server that are not up yet. No op waits for them, but holds need
 * them, so somebody must read them. */
connection_set redis_follow_greeting(const void *redis);
/* Returns when the background thread should begin to read the connection for requests, so that it
 * notices if the server closes it: the connection has been idle for a moment, and there are ops.
 * TIME_NEVER: no such time is planned. */
nanos redis_follow_watch_from(const void *redis);
/* Returns the connection for requests if the time of redis_follow_watch_from() has come; otherwise
 * none. */
connection_set redis_follow_watched(const void *redis, nanos now);
/* Returns true if a connection to the server was lost or refused since the last call. */
bool redis_follow_take_loss(void *redis);
