/* followed_server.c - replaces the server of an engine by another one. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* time without a request after which the background thread watches for the end of a connection */
#define WATCH_AFTER NANOS_OF_MS(300)

void redis_follow_begin(void *redis, const char *what)
{
    struct redis *r = redis;
    assert(!r->ops && !r->known_ops.count);
    r->follow = (struct follow){.is_on = true};
    snprintf(r->where, sizeof r->where, "%s", what);
}

static bool is_same(const struct endpoint *a, const struct endpoint *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0;
}

/* Drops a connection to the previous server. Dials that failed there do not count for the new
 * server. */
static void restart(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(r->follow.is_on && r->follow.is_known);
    bool was_needed = connection->state != CONNECTION_DOWN;
    redis_connection_drop(r, connection, HF_UNAVAILABLE, now, "another server has taken its place");
    connection->redial.failures = 0;
    connection->redial.dial_at = now;
    if (was_needed)
        redis_connection_need(r, connection, now);
}

void redis_follow(void *redis, const struct endpoint *to, nanos now)
{
    struct redis *r = redis;
    assert(r->follow.is_on);
    bool was_known = r->follow.is_known;
    if (was_known && is_same(&r->address, to))
        return;

    r->address = *to;
    r->follow.is_known = true;
    r->follow.hold_back_until = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct redis_connection *connection = &r->connection[i];
        if (was_known)
            restart(r, connection, now);
        else if (connection->state == CONNECTION_DIALLING)
            redis_connection_dial(r, connection, now);
    }
    endpoint_print(&r->address, r->where);

    /* Holders and waiters have no request in flight that would fail and make them redial. So dial
     * for them, and for releases that the new server may not know of. */
    if (was_known && (r->ops || r->known_ops.count || redis_recent_is_due(r, now)))
        redis_connection_need(r, &r->connection[CONNECTION_COMMANDS], now);
    r->follow.has_lost = false;
    redis_ops_rest(r);
}

void redis_follow_failed(void *redis, hf_status status, const char *why, nanos now)
{
    struct redis *r = redis;
    assert(r->follow.is_on && status != HF_OK);
    if (r->follow.is_known)
        return;

    for (unsigned i = 0; i < CONNECTIONS; i++)
        redis_connection_drop(r, &r->connection[i], status, now, "%s", why);
    r->follow.has_lost = false;
    redis_ops_rest(r);
}

void redis_follow_hold_back(void *redis, nanos until, nanos now)
{
    struct redis *r = redis;
    assert(r->follow.is_on);
    bool ends_now = !until && r->follow.hold_back_until;
    r->follow.hold_back_until = ends_now ? now : until;
    redis_follow_tick(r, now);
    redis_ops_rest(r);
}

/* ---- A server that is lost ---- */

void redis_follow_lost(struct redis *r, nanos now)
{
    assert(!r->follow.patience_until || r->follow.is_on);
    r->follow.has_lost = true;
    if (r->follow.is_on && !r->follow.patience_until)
        r->follow.patience_until = now + r->connect_timeout;
}

/* Returns true if the request stays unsent although no server is up. A caller that waits for a lock
 * has its own deadline. If its request failed instead, the claim would pause, and notice the new
 * server late. */
bool redis_follow_is_patient(const struct redis *r, const struct redis_op *a, hf_status status,
                             nanos now)
{
    bool waits = a->sent_op.verb == OP_ACQUIRE && a->sent_op.waits;
    return r->follow.is_on && status == HF_UNAVAILABLE && (waits || now < r->follow.patience_until);
}

static bool is_unsent(struct redis *r, const struct redis_op *a,
                      const struct redis_connection *connection)
{
    return a->unsent && redis_op_connection(r, a, a->sent_op.verb) == connection;
}

/* Redials for ops that are still unsent; when their time is over, they fail. */
static nanos tend_unsent(struct redis *r, struct redis_connection *connection, nanos now)
{
    bool any = false;
    if (connection->state != CONNECTION_DOWN)
        return TIME_NEVER;

    for (struct redis_op *a = r->ops; a; a = a->next) {
        if (!is_unsent(r, a, connection))
            continue;
        bool is_patient = redis_follow_is_patient(r, a, HF_UNAVAILABLE, now);
        any |= is_patient;
        if (!is_patient) {
            a->unsent = false;
            redis_op_fail_with(r, a, connection, now);
        }
    }

    if (!any || redis_connection_need(r, connection, now))
        return TIME_NEVER;
    nanos end = r->follow.patience_until, again = connection->redial.dial_at;
    return now < end && end < again ? end : again;
}

static nanos end_hold_back(struct redis *r, nanos now)
{
    if (!r->follow.hold_back_until)
        return TIME_NEVER;
    if (now < r->follow.hold_back_until)
        return r->follow.hold_back_until;

    r->follow.hold_back_until = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        redis_op_send_unsent(r, &r->connection[i], now);
    return TIME_NEVER;
}

nanos redis_follow_tick(struct redis *r, nanos now)
{
    assert(r->follow.is_on);
    nanos next = end_hold_back(r, now);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        nanos due = tend_unsent(r, &r->connection[i], now);
        next = due < next ? due : next;
    }
    return next;
}

void redis_follow_seek_by(void *redis, connection_set connections)
{
    struct redis *r = redis;
    assert(r->follow.is_on);
    r->follow.seek_connections = connections;
}

bool redis_follow_is_sought(const void *redis)
{
    const struct redis *r = redis;
    if (r->follow.is_known)
        return false;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (r->connection[i].state == CONNECTION_DIALLING)
            return true;
    return false;
}

bool redis_follow_is_up(const void *redis)
{
    return ((const struct redis *)redis)->connection[CONNECTION_COMMANDS].state == CONNECTION_UP;
}

/* From that time on the background thread reads the connection, because no request in flight makes
 * another thread read it. */
nanos redis_follow_watch_from(const void *redis)
{
    const struct redis *r = redis;
    const struct redis_connection *connection = &r->connection[CONNECTION_COMMANDS];
    bool is_idle = connection->state == CONNECTION_UP && !connection->queue.count;
    bool matters = r->known_ops.count > 0;
    return is_idle && matters ? connection->queue.received_at + WATCH_AFTER : TIME_NEVER;
}

connection_set redis_follow_watched(const void *redis, nanos now)
{
    connection_set commands = (connection_set)1 << CONNECTION_COMMANDS;
    return now >= redis_follow_watch_from(redis) ? commands : 0;
}

connection_set redis_follow_greeting(const void *redis)
{
    const struct redis *r = redis;
    connection_set all = 0;
    for (unsigned i = 0; i < CONNECTIONS && r->follow.is_known; i++) {
        enum connection_state state = r->connection[i].state;
        bool greets = state == CONNECTION_DIALLING || state == CONNECTION_GREETING;
        all |= (connection_set)greets << i;
    }
    return all;
}

bool redis_follow_take_loss(void *redis)
{
    struct redis *r = redis;
    bool has_lost = r->follow.has_lost;
    r->follow.has_lost = false;
    return has_lost;
}
