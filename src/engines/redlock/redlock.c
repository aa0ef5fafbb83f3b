/* redlock.c - the engine for a quorum of independent servers: the functions of its table. */
#include "redlock.h"

#include "base/error.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Opening and closing ---- */

static void free_pending_replies(struct pending_reply *h)
{
    for (struct pending_reply *next; h; h = next) {
        next = h->next;
        free(h);
    }
}

static void free_pools(struct redlock *l)
{
    for (struct quorum_try *b = l->unused_tries, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (struct quorum_op *quorum_op = l->unused_quorum_ops, *next; quorum_op; quorum_op = next) {
        next = quorum_op->next;
        free(quorum_op);
    }
    free_pending_replies(l->pending_replies);
    free_pending_replies(l->unused);
}

static void close_redlock(void *self)
{
    struct redlock *l = self;

    while (l->tries)
        redlock_try_free(l, l->tries);
    heap_free(&l->quorum_op_alarms); /* the nodes of this tree are part of the quorum ops */

    /* do not touch the engine_op of a quorum op: the client may have freed it */
    for (struct quorum_op *quorum_op = l->quorum_ops, *next; quorum_op; quorum_op = next) {
        next = quorum_op->next;
        redlock_admin_free(l, quorum_op);
        free(quorum_op);
    }
    assert(l->answers_due == 0); /* no reply is due any more */

    for (unsigned i = 0; i < l->servers; i++)
        redis_wire_engine.close(l->node[i].redis);
    heap_free(&l->try_alarms);
    free_pools(l);
    free(l);
}

static hf_status open_redlock(void **self, const struct url *url, const struct settings *settings,
                              const struct wire_engine_host *host)
{
    *self = NULL;
    struct redlock *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    l->host = host;
    l->limits = (struct engine_limits)REDLOCK_LIMITS;
    timing_set_drift(&l->limits, settings);
    l->overrides = timing_overrides_of(settings);
    redis_override_timing(&l->overrides, settings);
    l->max_ttl = NANOS_OF_MS(settings->value[SETTING_MAX_TTL]);

    hf_status status =
        redis_wants_replicas(settings)
            ? error_set(HF_CONFIG,
                        "replicas: a quorum has none; its servers know nothing of each other")
            : redlock_servers_open(l, url, settings);
    if (status == HF_OK)
        *self = l;
    else
        close_redlock(l);
    return status;
}

/* ---- Ops ---- */

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct redlock *l = self;
    struct quorum_op *quorum_op = op->engine_state ? op->engine_state : redlock_op_make(l, op);
    assert(!quorum_op || quorum_op->op == op);

    if (quorum_op) {
        redlock_op_submit(l, quorum_op, now);
    } else {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .retry_at = TIME_NEVER,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        l->host->on_reply(l->host->ctx, op, &reply);
    }
    redlock_servers_settle(l, now);
}

static void forget(void *self, struct engine_op *op)
{
    if (op->engine_state)
        redlock_op_forget(self, op->engine_state);
}

/* ---- Connections and time ---- */

static void *redis_of(const struct redlock *l, unsigned connection)
{
    unsigned server = connection / QUORUM_MEMBER_CONNECTIONS;
    assert(server < l->servers);
    return l->node[server].redis;
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct redlock *l = self;
    redis_wire_engine.connection_up(redis_of(l, connection), connection % QUORUM_MEMBER_CONNECTIONS,
                                    now);
    redlock_servers_settle(l, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct redlock *l = self;
    redis_wire_engine.connection_bytes(redis_of(l, connection),
                                       connection % QUORUM_MEMBER_CONNECTIONS, bytes, len, now);
    redlock_servers_settle(l, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct redlock *l = self;
    redis_wire_engine.connection_down(redis_of(l, connection),
                                      connection % QUORUM_MEMBER_CONNECTIONS, status, why, now);
    redlock_servers_settle(l, now);
}

static nanos sooner(nanos a, nanos b)
{
    return a < b ? a : b;
}

static nanos tick(void *self, nanos now)
{
    struct redlock *l = self;
    nanos next = TIME_NEVER;

    for (unsigned i = 0; i < l->servers; i++)
        next = sooner(next, redis_wire_engine.tick(l->node[i].redis, now));
    redlock_servers_settle(l, now);
    redlock_tries_tick(l, now);
    redlock_ops_tick(l, now);
    redlock_servers_settle(l, now);

    const struct heap_node *first_try = heap_first(&l->try_alarms);
    const struct heap_node *first_op = heap_first(&l->quorum_op_alarms);
    next = first_try ? sooner(next, first_try->key) : next;
    return first_op ? sooner(next, first_op->key) : next;
}

/* Returns the connections with replies that no op waits for: from slow servers after a majority
 * has answered, and to releases in the background. */
static connection_set connections(void *self)
{
    struct redlock *l = self;
    connection_set all = l->background_connections;

    for (unsigned i = 0; i < l->servers; i++)
        all |= redis_wire_engine.connections(l->node[i].redis) << i * QUORUM_MEMBER_CONNECTIONS;
    return all;
}

/* Returns true if a release was not yet sent to that server. When a server that hangs resumes, it
 * reads only what was sent. */
static bool owes_release(const struct redlock *l, unsigned server)
{
    for (const struct quorum_try *b = l->tries; b; b = b->next) {
        const struct node_op *node_op = &b->node_op[server];
        bool is_unsent =
            node_op->again != TIME_NEVER || redis_quorum_member_is_unsent(&node_op->member.op);
        if (b->round == ROUND_RELEASE && node_op->freed == VOTE_OPEN && is_unsent)
            return true;
    }
    return false;
}

static connection_set connections_of(unsigned server)
{
    const connection_set all_of_one = (UINT64_C(1) << QUORUM_MEMBER_CONNECTIONS) - 1;
    return all_of_one << server * QUORUM_MEMBER_CONNECTIONS;
}

/* Returns the connections to servers that have never greeted this client, and so hold nothing for
 * it. If this client has adopted a lease that another client acquired, they may hold that lease:
 * then returns none. */
static connection_set unused_connections(void *self)
{
    const struct redlock *l = self;
    connection_set unused = 0;

    for (unsigned i = 0; i < l->servers && !l->has_adopted; i++)
        if (!redis_quorum_member_has_greeted(l->node[i].redis))
            unused |= connections_of(i);
    return unused;
}

/* Closing waits for a slow server, because it must get the release. It does not wait for a server
 * that answered quickly and then stopped, once the release was sent: the server's kernel has the
 * release, and the server reads it when it resumes. */
static connection_set silent_connections(void *self, nanos now)
{
    const struct redlock *l = self;
    connection_set silent = 0;

    for (unsigned i = 0; i < l->servers; i++)
        if (redis_quorum_member_is_hung(l->node[i].redis, now) && !owes_release(l, i))
            silent |= connections_of(i);
    return silent;
}

const struct wire_engine_type redlock_wire_engine = {
    .open = open_redlock,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .unused_connections = unused_connections,
    .silent_connections = silent_connections,
    .tick = tick,
    .close = close_redlock,
};
