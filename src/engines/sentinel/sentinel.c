/* sentinel.c - the engine for a primary that sentinels watch: the functions of its table, its
 * URL, and the connections to sentinels.
 *
 * The connections of the primary have the same numbers here as in the Redis engine. The
 * connections to sentinels have the numbers behind these: first those for queries, then those for
 * subscriptions. */
#include "sentinel.h"

#include "base/error.h"
#include "base/url.h"
#include "core/backoff.h"
#include "engines/kit/endpoints.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY_FIRST = REDIS_CONNECTIONS, LISTEN_FIRST = QUERY_FIRST + SENTINELS_MAX };
enum { REPLY_MOST = 1 << 20 }; /* bytes */
#define EXAMPLE "user:password@sentinel:26379,sentinel:26379/mymaster/0"
#define REDIAL_MIN NANOS_OF_MS(1000)
#define REDIAL_MAX NANOS_OF_MS(30000)

_Static_assert(LISTEN_FIRST + SENTINELS_MAX <= CONNECTION_GROUPS, "a group each");

/* ---- Connections to sentinels ---- */

void sentinel_connection_dial(struct sentinel *s, struct sentinel_node *node,
                              struct sentinel_connection *connection, nanos now)
{
    assert(connection == &node->query || connection == &node->listen);
    if (connection->state != SENTINEL_DOWN || now < connection->dial_at)
        return;
    connection->state = SENTINEL_DIALLING;
    connection->since = now;
    node->address.skip = connection->failures;
    s->host->dial(s->host->ctx, connection->number, &node->address);
}

bool sentinel_connection_send(struct sentinel *s, struct sentinel_connection *connection)
{
    assert(connection->state == SENTINEL_UP);
    struct resp_command *c = &s->command;
    bool is_sent = !c->failed && s->host->send(s->host->ctx, connection->number, c->bytes, c->len);
    c->len = 0;
    c->failed = false;
    return is_sent;
}

bool sentinel_connection_log_in(struct sentinel *s, struct sentinel_connection *connection)
{
    bool has_login = s->user[0] || s->password[0];
    if (!has_login)
        return true;

    resp_command_begin(&s->command, s->user[0] ? 3 : 2);
    resp_command_text(&s->command, "AUTH");
    if (s->user[0])
        resp_command_text(&s->command, s->user);
    resp_command_text(&s->command, s->password);
    return sentinel_connection_send(s, connection);
}

static void put_down(struct sentinel_connection *connection)
{
    assert(connection->state != SENTINEL_DOWN);
    connection->state = SENTINEL_DOWN;
    resp_reader_close(connection->replies);
    connection->replies = NULL;
}

void sentinel_connection_close(struct sentinel *s, struct sentinel_connection *connection)
{
    if (connection->state == SENTINEL_DOWN)
        return;
    s->host->hang_up(s->host->ctx, connection->number);
    put_down(connection);
}

/* Plans the next dial. The pause doubles from REDIAL_MIN on. */
static void plan_redial(struct sentinel *s, struct sentinel_connection *connection, nanos now)
{
    uint32_t doublings = connection->failures < 5 ? connection->failures : 5;
    nanos pause = REDIAL_MIN << doublings;
    pause = pause < REDIAL_MAX ? pause : REDIAL_MAX;
    connection->failures++;
    connection->dial_at = now + pause / 2 + pause * (s->host->random(s->host->ctx) % 100) / 200;
}

void sentinel_connection_fail(struct sentinel *s, struct sentinel_connection *connection, nanos now)
{
    sentinel_connection_close(s, connection);
    plan_redial(s, connection, now);
}

static bool is_query(const struct sentinel *s, const struct sentinel_connection *connection)
{
    (void)s;
    return connection->number < LISTEN_FIRST;
}

static struct sentinel_node *node_of(struct sentinel *s, unsigned number,
                                     struct sentinel_connection **connection)
{
    assert(number >= QUERY_FIRST && number < LISTEN_FIRST + SENTINELS_MAX);
    unsigned index = number < LISTEN_FIRST ? number - QUERY_FIRST : number - LISTEN_FIRST;
    struct sentinel_node *node = &s->node[index];
    assert(index < s->nodes);
    *connection = number < LISTEN_FIRST ? &node->query : &node->listen;
    return node;
}

static void sentinel_up(struct sentinel *s, unsigned number, nanos now)
{
    struct sentinel_connection *connection;
    struct sentinel_node *node = node_of(s, number, &connection);

    connection->state = SENTINEL_UP;
    connection->since = now;
    connection->replies = resp_reader_open();
    if (!connection->replies)
        sentinel_connection_fail(s, connection, now);
    else if (is_query(s, connection))
        sentinel_query_up(s, node, now);
    else
        sentinel_listen_up(s, node, now);
}

static void sentinel_reply(struct sentinel *s, struct sentinel_node *node,
                           const struct sentinel_connection *connection,
                           const struct resp_reply *resp, nanos now)
{
    bool is_login = resp->type == RESP_STATUS; /* the OK in reply to AUTH, on a subscription */
    if (is_query(s, connection))
        sentinel_query_reply(s, node, resp, now);
    else if (!is_login)
        sentinel_listen_reply(s, node, resp, now);
}

static void sentinel_bytes(struct sentinel *s, unsigned number, const char *bytes, size_t len,
                           nanos now)
{
    struct sentinel_connection *connection;
    struct sentinel_node *node = node_of(s, number, &connection);
    const char *error = NULL;
    if (connection->state != SENTINEL_UP)
        return;

    connection->since = now;
    bool is_read = resp_reader_feed(connection->replies, bytes, len, REPLY_MOST);
    for (const struct resp_reply *resp;
         is_read && connection->replies && (resp = resp_reader_next(connection->replies, &error));)
        sentinel_reply(s, node, connection, resp, now);
    if (connection->state != SENTINEL_UP || (is_read && !error))
        return;

    if (is_query(s, connection))
        sentinel_query_failed(s, node, HF_UNAVAILABLE, "not the protocol of Redis", now);
    else
        sentinel_connection_fail(s, connection, now);
}

static void sentinel_down(struct sentinel *s, unsigned number, hf_status status, const char *why,
                          nanos now)
{
    struct sentinel_connection *connection;
    struct sentinel_node *node = node_of(s, number, &connection);
    put_down(connection);
    if (!is_query(s, connection)) {
        plan_redial(s, connection, now);
        primary_query_all(s, now); /* announcements are missed while the subscription is down */
        return;
    }

    size_t prefix = strlen(node->where); /* `why` names the server already */
    bool has_prefix = strncmp(why, node->where, prefix) == 0 && strncmp(why + prefix, ": ", 2) == 0;
    sentinel_query_failed(s, node, status, has_prefix ? why + prefix + 2 : why, now);
}

/* ---- Opening and closing ---- */

static void close_sentinel(void *self)
{
    struct sentinel *s = self;
    for (unsigned i = 0; i < s->nodes; i++) {
        sentinel_connection_close(s, &s->node[i].query);
        sentinel_connection_close(s, &s->node[i].listen);
    }

    if (s->redis)
        redis_wire_engine.close(s->redis);
    resp_command_free(&s->command);
    explicit_bzero(s->password, sizeof s->password);
    free(s);
}

static bool is_tls(const struct url *url)
{
    return strncmp(url->scheme, "rediss", 6) == 0 || strncmp(url->scheme, "valkeys", 7) == 0;
}

static hf_status bad_url(const struct url *url, const char *what)
{
    return error_set(HF_CONFIG, "%s: the URL: %s (it looks like %s://" EXAMPLE ")", url->scheme,
                     what, url->scheme);
}

/* Reads "/mymaster" or "/mymaster/0". */
static hf_status read_name(struct sentinel *s, const struct url *url, const char *rest,
                           const char **database)
{
    const char *name = *rest ? rest + 1 : rest;
    size_t len = strcspn(name, "/");
    *database = name[len] ? name + len + 1 : "";
    if (len == 0)
        return bad_url(url, "behind the sentinels comes the name of the primary");

    hf_status status = url_decode(name, len, s->name, sizeof s->name);
    return status == HF_OK ? HF_OK
                           : error_set(status, "%s: the URL's name of the primary: %s", url->scheme,
                                       error_text());
}

/* Opens the engine of the primary, whose address is not known yet. */
static hf_status open_redis(struct sentinel *s, const struct url *url,
                            const struct settings *settings, const char *database)
{
    struct url one = {0};
    char what[SENTINEL_NAME_MAX + 32];
    const char *hosts = url->body + 2, *at = memrchr(hosts, '@', strcspn(hosts, "/"));
    strcpy(one.scheme, is_tls(url) ? "rediss" : "redis");
    snprintf(one.body, sizeof one.body, "//%.*s%s/%s", at ? (int)(at - hosts) + 1 : 0, hosts,
             "primary", database);
    hf_status status = redis_wire_engine.open(&s->redis, &one, settings, s->host);
    if (status != HF_OK)
        return status;

    snprintf(what, sizeof what, "the primary \"%s\"", s->name);
    redis_follow_begin(s->redis, what);
    return HF_OK;
}

static void add_nodes(struct sentinel *s, const struct endpoints *endpoints,
                      const struct settings *settings)
{
    int64_t tls = settings->value[SETTING_SENTINEL_TLS];
    for (s->nodes = 0; s->nodes < endpoints->count; s->nodes++) {
        struct sentinel_node *node = &s->node[s->nodes];
        node->address = endpoints->one[s->nodes];
        node->address.tls = tls < 0 ? node->address.tls : tls != 0;
        endpoint_print(&node->address, node->where);
        node->query.number = QUERY_FIRST + s->nodes;
        node->listen.number = LISTEN_FIRST + s->nodes;
        node->status = HF_UNAVAILABLE;
        strcpy(node->why, "was not asked");
    }

    s->primary = endpoints->one[0];
    s->primary.host[0] = s->primary.port[0] = 0;
}

static hf_status read_settings(struct sentinel *s, const struct settings *settings)
{
    s->connect_timeout = NANOS_OF_MS(settings->value[SETTING_CONNECT_TIMEOUT]);
    snprintf(s->user, sizeof s->user, "%s", settings->text[SETTING_SENTINEL_USER]);
    return endpoints_read_password(settings->text[SETTING_SENTINEL_PASSWORD_FILE], s->password,
                                   sizeof s->password);
}

static hf_status read_url(struct sentinel *s, const struct url *url,
                          const struct settings *settings)
{
    struct endpoint_form form = {
        .example = EXAMPLE, .default_port = "26379", .most = SENTINELS_MAX, .tls = is_tls(url)};
    struct endpoints endpoints;
    const char *database;
    hf_status status = endpoints_read(&endpoints, url, settings, &form);
    if (status != HF_OK)
        return status;

    add_nodes(s, &endpoints, settings);
    status = read_name(s, url, endpoints.rest, &database);
    if (status == HF_OK)
        status = open_redis(s, url, settings, database);
    endpoints_free(&endpoints);
    return status;
}

static hf_status open_sentinel(void **self, const struct url *url, const struct settings *settings,
                               const struct wire_engine_host *host)
{
    *self = NULL;
    struct sentinel *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    s->host = host;
    hf_status status = read_settings(s, settings);
    if (status == HF_OK)
        status = read_url(s, url, settings);
    if (status == HF_OK)
        *self = s;
    else
        close_sentinel(s);
    return status;
}

/* ---- The door ---- */

/* Returns the connections with a query in flight. */
static connection_set query_connections(const struct sentinel *s)
{
    connection_set all = 0;
    for (unsigned i = 0; i < s->nodes; i++)
        all |= (connection_set)(s->node[i].query.state != SENTINEL_DOWN) << s->node[i].query.number;
    return all;
}

/* Called after every event. Returns when to call it again. */
static nanos settle(struct sentinel *s, nanos now)
{
    nanos next = primary_tick(s, now);
    for (unsigned i = 0; i < s->nodes; i++) {
        nanos query = sentinel_query_tick(s, &s->node[i], now);
        nanos listen = sentinel_listen_tick(s, &s->node[i], now);
        next = query < next ? query : next;
        next = listen < next ? listen : next;
    }

    redis_follow_seek_by(s->redis, query_connections(s));
    return next;
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct sentinel *s = self;
    bool is_sought = !s->primary.host[0];
    redis_wire_engine.submit(s->redis, op, now);
    settle(s, now);
    /* settle() began a search, so the op waits for its connections as well */
    if (is_sought && op->connections)
        op->connections |= query_connections(s);
}

static void forget(void *self, struct engine_op *op)
{
    struct sentinel *s = self;
    redis_wire_engine.forget(s->redis, op);
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct sentinel *s = self;
    if (connection < REDIS_CONNECTIONS)
        redis_wire_engine.connection_up(s->redis, connection, now);
    else
        sentinel_up(s, connection, now);
    settle(s, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct sentinel *s = self;
    if (connection < REDIS_CONNECTIONS)
        redis_wire_engine.connection_bytes(s->redis, connection, bytes, len, now);
    else
        sentinel_bytes(s, connection, bytes, len, now);
    settle(s, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct sentinel *s = self;
    if (connection < REDIS_CONNECTIONS)
        redis_wire_engine.connection_down(s->redis, connection, status, why, now);
    else
        sentinel_down(s, connection, status, why, now);
    settle(s, now);
}

static connection_set connections(void *self)
{
    struct sentinel *s = self;
    return redis_wire_engine.connections(s->redis);
}

/* Returns the connections whose bytes belong to no op: those to sentinels, and a greeting of a
 * new primary. */
static connection_set listening_connections(void *self)
{
    struct sentinel *s = self;
    connection_set all = query_connections(s) | redis_follow_greeting(s->redis);
    for (unsigned i = 0; i < s->nodes; i++)
        all |= (connection_set)(s->node[i].listen.state != SENTINEL_DOWN)
               << s->node[i].listen.number;
    return all;
}

static nanos tick(void *self, nanos now)
{
    struct sentinel *s = self;
    nanos next = redis_wire_engine.tick(s->redis, now), own = settle(s, now);
    return own < next ? own : next;
}

const struct wire_engine_type sentinel_wire_engine = {
    .open = open_sentinel,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .close = close_sentinel,
};
