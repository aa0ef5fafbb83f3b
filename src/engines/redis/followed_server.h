/* followed_server.h - a Redis engine whose server may be replaced by another one while ops go on,
 * as engines/sentinel uses it: redis_wire_engine with these differences.
 *
 * The engine is opened without a server. Ops stay unsent until redis_follow() names one, for
 * connect_timeout at most. Another server takes over all ops: requests in flight on the old one
 * have an unknown outcome, holds are checked and waiters ask again as soon as the new one has
 * greeted. None of these functions is called from inside a function of the host. */
#pragma once
#include "redis_member.h"

/* Call it before the first submit. `what`: names the server in messages until one is known. */
void redis_follow_begin(void *redis, const char *what);
/* That server from now on: it is dialled at once if anybody needs it. */
void redis_follow(void *redis, const struct endpoint *to, nanos now);
/* No server can be named: ops that wait for one fail. */
void redis_follow_failed(void *redis, hf_status status, const char *why, nanos now);
/* Keeps requests for new locks unsent until then: the server is about to be replaced. 0: no more.
 */
void redis_follow_hold_back(void *redis, nanos until, nanos now);
/* Connections by which the name of the server will come. Ops that wait for it wait on them, too. */
void redis_follow_seek_by(void *redis, uint32_t connections);

bool redis_follow_is_sought(const void *redis); /* ops wait, and no server is known */
bool redis_follow_is_up(const void *redis);     /* the server greeted, and is a primary */
/* Connections to a new server that are not up yet: no op may wait for them, but holds do. */
uint32_t redis_follow_greeting(const void *redis);
/* Whether a connection to the server was lost or refused since the last call. */
bool redis_follow_take_loss(void *redis);
