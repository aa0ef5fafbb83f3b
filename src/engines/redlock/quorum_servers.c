/* quorum_servers.c - the servers of a quorum: the URL that names them, their replies, and whether
 * their votes count.
 *
 * Each server has a Redis engine of its own. The connections of server i are ours, shifted by i
 * times QUORUM_MEMBER_CONNECTIONS. An engine must not be called from inside its own on_reply(), so
 * replies are noted there and handled by redlock_servers_settle(). */
#include "redlock.h"

#include "base/error.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(QUORUM_SERVERS_MAX *QUORUM_MEMBER_CONNECTIONS <= CONNECTION_GROUPS,
               "a connection is a group");

/* ---- What the engines of the servers call ---- */

static unsigned connection_of(const struct node *m, unsigned connection)
{
    assert(connection < QUORUM_MEMBER_CONNECTIONS);
    return m->index * QUORUM_MEMBER_CONNECTIONS + connection;
}

static void node_dial(void *ctx, unsigned connection, const struct endpoint *to)
{
    struct node *m = ctx;
    m->lock->host->dial(m->lock->host->ctx, connection_of(m, connection), to);
}

static bool node_send(void *ctx, unsigned connection, const void *bytes, size_t len)
{
    struct node *m = ctx;
    return m->lock->host->send(m->lock->host->ctx, connection_of(m, connection), bytes, len);
}

static void node_hang_up(void *ctx, unsigned connection)
{
    struct node *m = ctx;
    m->lock->host->hang_up(m->lock->host->ctx, connection_of(m, connection));
}

static struct quorum_op *listener_of(struct quorum_member_op *listen_op)
{
    unsigned index = listen_op->op.seen;
    assert(index < QUORUM_SERVERS_MAX);
    return (struct quorum_op *)(void *)((char *)(listen_op - index) -
                                        offsetof(struct quorum_op, listen_op));
}

/* Notes a notification. "Another waiter's turn" from a silent server is too old to act on, and
 * is ignored. */
static void note_notify(struct node *m, struct engine_op *op)
{
    struct redlock *l = m->lock;
    if (op->slot != SLOT_LISTEN_OP)
        return;

    struct quorum_op *quorum_op = listener_of(quorum_member_op_of(op));
    enum quorum_turn turn = quorum_member_op_of(op)->answer.turn;
    if (m->silent && turn == QUORUM_TURN_ANOTHERS)
        return;

    quorum_op->pending_turns |= 1u << turn;
    if (turn == QUORUM_TURN_OWN)
        quorum_op->turns |= 1u << m->index;
    if (quorum_op->is_notified)
        return;

    quorum_op->is_notified = true;
    quorum_op->notified = l->notified;
    l->notified = quorum_op;
}

static void node_on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct node *m = ctx;
    struct redlock *l = m->lock;
    if (reply->kind == REPLY_NOTIFY) { /* a notification does not reply to a request */
        note_notify(m, op);
        return;
    }

    struct pending_reply *h = l->unused;
    assert(h); /* redlock_servers_expect() has reserved the struct */
    l->unused = h->next;
    *h = (struct pending_reply){.op = op, .reply = *reply};
    if (reply->kind == REPLY_BUSY)
        h->answer = quorum_member_op_of(op)->answer;
    if (reply->text) {
        snprintf(h->text, sizeof h->text, "%s", reply->text);
        h->reply.text = h->text;
    }

    *(l->pending_replies_last ? &l->pending_replies_last->next : &l->pending_replies) = h;
    l->pending_replies_last = h;
}

/* Returns the quorum op that this admin op is part of; NULL: none. */
static struct quorum_op *owner_of(const struct redlock *l, const struct engine_op *op)
{
    struct quorum_op *quorum_op = l->quorum_ops;

    while (quorum_op && !redlock_admin_owns(quorum_op, op))
        quorum_op = quorum_op->next;
    return quorum_op;
}

static void node_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    struct node *m = ctx;
    struct quorum_op *quorum_op = owner_of(m->lock, op);

    if (quorum_op)
        redlock_admin_row(quorum_op, op, row);
}

static void node_find(void *ctx, struct engine_op *op, const struct hf_finding *finding)
{
    struct node *m = ctx;
    struct quorum_op *quorum_op = owner_of(m->lock, op);

    if (quorum_op)
        m->lock->host->find(m->lock->host->ctx, quorum_op->op, finding);
}

static void node_recheck(void *ctx)
{
    struct node *m = ctx;
    m->lock->host->recheck(m->lock->host->ctx);
}

static uint32_t node_random(void *ctx)
{
    struct node *m = ctx;
    return m->lock->host->random(m->lock->host->ctx);
}

/* ---- Handling replies ---- */

/* Reserve one more than the number of replies due: the reply that is being handled still occupies
 * one. */
bool redlock_servers_expect(struct redlock *l)
{
    for (struct pending_reply *h; l->room_for_answers < l->answers_due + 2; l->room_for_answers++) {
        if (!(h = malloc(sizeof *h)))
            return false;
        h->next = l->unused;
        l->unused = h;
    }
    l->answers_due++;
    assert(l->room_for_answers > l->answers_due);
    return true;
}

static void handle_one(struct redlock *l, const struct pending_reply *h, nanos now)
{
    assert(h->op->slot != SLOT_LISTEN_OP); /* a listening op gets only NOTIFY replies */
    if (h->op->slot == SLOT_NODE_OP) {
        struct node_op *node_op =
            (struct node_op *)(void *)((char *)h->op - offsetof(struct node_op, member.op));
        redlock_try_on_reply(l, node_op, &h->reply, &h->answer, now);
        return;
    }

    struct quorum_op *quorum_op = owner_of(l, h->op);
    if (quorum_op)
        redlock_admin_on_reply(l, quorum_op, h->op, &h->reply, now);
}

static void on_notifications(struct redlock *l, nanos now)
{
    for (struct quorum_op *quorum_op; (quorum_op = l->notified);) {
        assert(quorum_op->is_notified);
        l->notified = quorum_op->notified;
        quorum_op->is_notified = false;
        redlock_place_on_turn(l, quorum_op, now);
    }
}

void redlock_servers_drop_replies(struct redlock *l, const struct engine_op *op)
{
    for (struct pending_reply *h = l->pending_replies; h; h = h->next)
        if (h->op == op)
            h->op = NULL;
}

void redlock_servers_settle(struct redlock *l, nanos now)
{
    l->last_now = now;

    for (struct pending_reply *h; (h = l->pending_replies);) {
        l->pending_replies = h->next;
        if (!l->pending_replies)
            l->pending_replies_last = NULL;
        if (h->op)
            handle_one(l, h, now);
        h->next = l->unused;
        l->unused = h;
    }
    on_notifications(l, now);
}

/* ---- Votes that count ---- */

/* Returns another name of the same server that has already voted yes. If `votes` is NULL (no vote
 * was cast yet), returns another name that stands earlier in the URL. Two names of one server are
 * recognized by its run id, so only after both connections were made. */
static const struct node *twin(const struct redlock *l, unsigned server, const struct quorum *votes)
{
    const char *run_id = redis_quorum_member_run_id(l->node[server].redis);

    for (unsigned i = 0; run_id[0] && i < l->servers; i++) {
        bool is_first = votes ? i != server && votes->vote[i] == VOTE_YES : i < server;
        if (is_first && strcmp(redis_quorum_member_run_id(l->node[i].redis), run_id) == 0)
            return &l->node[i];
    }
    return NULL;
}

/* Returns true if the server's vote counts. A server that restarted may have forgotten holds; its
 * yes counts again when the longest of these holds must be over. Use the uptime as of the request,
 * so that a client suspended before reading the reply does not overestimate it. Servers report
 * whole seconds, and their clocks may be faster than ours. A single server always counts: no other
 * server remembers more. */
bool redlock_server_counts(struct redlock *l, unsigned server, const struct quorum *votes,
                           nanos asked_at)
{
    assert(server < l->servers);
    struct node *m = &l->node[server];
    const char *where = redis_quorum_member_where(m->redis);
    const struct node *same = twin(l, server, votes);
    nanos since = redis_quorum_member_up_since(m->redis);
    nanos age = asked_at > since ? asked_at - since : 0;
    nanos needed = l->max_ttl + timing_drift(&l->limits, l->max_ttl) + NANOS_OF_MS(1000);
    bool is_old_enough = l->servers == 1 || (since != TIME_NEVER && age > needed);
    if (!same && is_old_enough)
        return true;

    if (same)
        snprintf(m->error_text, sizeof m->error_text,
                 "%.90s: is the same server as %.90s, and counts once", where,
                 redis_quorum_member_where(same->redis));
    else if (since == TIME_NEVER)
        snprintf(m->error_text, sizeof m->error_text,
                 "%.100s: does not say since when it runs, so it does not count", where);
    else
        snprintf(m->error_text, sizeof m->error_text,
                 "%.100s: runs for %lld s only and counts again in %lld s", where,
                 (long long)(age / NANOS_OF_MS(1000)),
                 (long long)((needed - age) / NANOS_OF_MS(1000) + 1));
    return false;
}

/* ---- The URL ---- */

static const struct wire_engine_host host_of_nodes = {
    .dial = node_dial,
    .send = node_send,
    .hang_up = node_hang_up,
    .on_reply = node_on_reply,
    .row = node_row,
    .find = node_find,
    .recheck = node_recheck,
    .random = node_random,
};

/* Reads one server of the list: user:password@host:port. TLS is used if the scheme of the URL or of
 * this server says so. */
static hf_status read_server(const struct url *url, const char *text, size_t len, struct url *one)
{
    static const char *const schemes[] = {"redis", "rediss", "valkey", "valkeys"};
    assert(len > 0);
    const char *mark = memmem(text, len, "://", 3);
    if (!mark) {
        strcpy(one->scheme, strcmp(url->scheme, "redlocks") == 0 ? "rediss" : "redis");
        snprintf(one->body, sizeof one->body, "//%.*s", (int)len, text);
        return HF_OK;
    }

    size_t before = (size_t)(mark - text);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strlen(schemes[i]) == before && strncasecmp(text, schemes[i], before) == 0) {
            strcpy(one->scheme, schemes[i]);
            snprintf(one->body, sizeof one->body, "%.*s", (int)(len - before - 1), mark + 1);
            return HF_OK;
        }
    return error_set(HF_CONFIG,
                     "%s: the URL: a server begins with redis://, rediss:// (TLS), or its host",
                     url->scheme);
}

static hf_status open_node(struct redlock *l, const struct url *url,
                           const struct settings *settings, const char *text, size_t len)
{
    struct url one = {0};
    if (l->servers == QUORUM_SERVERS_MAX)
        return error_set(HF_CONFIG, "%s: the URL: more than %d servers", url->scheme,
                         QUORUM_SERVERS_MAX);

    struct node *m = &l->node[l->servers];
    m->lock = l;
    m->index = l->servers;
    m->host = host_of_nodes;
    m->host.ctx = m;
    hf_status status = read_server(url, text, len, &one);
    if (status == HF_OK)
        status = redis_wire_engine.open(&m->redis, &one, settings, &m->host);
    if (status != HF_OK)
        return error_set(status, "server %u: %s", l->servers + 1, error_text());
    redis_quorum_member_join(m->redis);
    l->servers++;

    for (unsigned i = 0; i + 1 < l->servers; i++)
        if (strcasecmp(redis_quorum_member_where(l->node[i].redis),
                       redis_quorum_member_where(m->redis)) == 0)
            return error_set(HF_CONFIG, "%s: the URL: it names %s twice", url->scheme,
                             redis_quorum_member_where(m->redis));
    return HF_OK;
}

/* Reads "h:p,h:p,h:p". */
hf_status redlock_servers_open(struct redlock *l, const struct url *url,
                               const struct settings *settings)
{
    const char *at = url->body;
    if (strncmp(at, "//", 2) != 0 || !at[2])
        return error_set(HF_CONFIG, "%s: the URL: it looks like %s://host:port,host:port,host:port",
                         url->scheme, url->scheme);

    for (at += 2;; at++) {
        size_t len = strcspn(at, ",");
        if (len == 0)
            return error_set(HF_CONFIG, "%s: the URL: a server without a name", url->scheme);
        hf_status status = open_node(l, url, settings, at, len);
        if (status != HF_OK || !at[len])
            return status;
        at += len;
    }
}
