/* session_list.h - the sessions of a client: one for each ttl, shared by the holds with that ttl,
 * and private ones.
 *
 * An engine embeds struct session (core/session.h) as the first field of what it keeps of one. */
#pragma once
#include "core/session.h"

#include <stddef.h>

/* Returns the session for a ttl, or the private one of an attempt (NULL: shared). Makes it, with
 * `size` bytes of which those behind struct session are zero, if there is none. NULL: no memory. */
void *session_list_find_or_make(struct session **list, int64_t ttl, const struct id *attempt,
                                size_t size);
/* Frees the private sessions that have no members, unless something is in flight for one. They
 * expire at the server by themselves: a detached hold may have been passed to another process.
 * Shared ones are kept. */
void session_list_drop_unused(struct session **list,
                              bool (*is_in_flight)(void *ctx, const struct session *session),
                              void *ctx);
/* Calls `renew` for the sessions with waiters that are due. Sessions with holds are renewed by the
 * EXTENDs of their holds. Returns when to call it again. */
nanos session_list_renew(struct session *list, nanos now,
                         void (*renew)(void *ctx, struct session *session, nanos now), void *ctx);
void session_list_free(struct session **list);
