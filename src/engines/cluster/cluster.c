/* cluster.c - the engine for a Redis Cluster: the functions of its table, and its URL.
 *
 * The connections that ask for the map of slots have the first numbers. A shard gets numbers for
 * its own when its first op comes. */
#include "cluster.h"

#include "base/error.h"
#include "engines/kit/endpoints.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE "user:password@node:6379,node:6379"

/* ---- Opening and closing ---- */

static void close_cluster(void *self)
{
    struct cluster *c = self;
    surveys_close(c);
    map_query_close(c);
    shards_close(c);

    connection_numbers_free(&c->numbers);
    free(c->node);
    resp_command_free(&c->command);

    explicit_bzero(c->password, sizeof c->password);
    explicit_bzero(&c->url, sizeof c->url);
    free(c);
}

static bool is_tls(const struct url *url)
{
    return strncmp(url->scheme, "rediss", 6) == 0 || strncmp(url->scheme, "valkeys", 7) == 0;
}

static hf_status read_settings(struct cluster *c, const struct settings *settings)
{
    const char *wake = settings->text[SETTING_WAKE];
    bool is_chosen = strcmp(settings->source[SETTING_WAKE], "default") != 0;
    bool is_known = strcmp(wake, "pubsub") == 0 || strcmp(wake, "poll") == 0;
    if (is_chosen && !is_known)
        return error_set(HF_CONFIG,
                         "wake=%s: a cluster has pubsub and poll; an inbox is a key of the client, "
                         "which no script may write from the slot of a lock",
                         wake);

    c->settings = *settings;
    c->prefix = c->settings.text[SETTING_PREFIX];
    c->polls = strcmp(wake, "poll") == 0;
    c->connect_timeout = NANOS_OF_MS(settings->value[SETTING_CONNECT_TIMEOUT]);
    c->stride = redis_cluster_connections(settings, c->polls);
    assert(c->stride > 0);
    for (unsigned i = 0; i < CLUSTER_QUERIES; i++)
        c->query[i].number = i;
    return HF_OK;
}

static hf_status add_seeds(struct cluster *c, const struct endpoints *endpoints)
{
    assert(endpoints->count > 0 && c->nodes == 0);
    for (unsigned i = 0; i < endpoints->count; i++) {
        struct cluster_node node = {.id = ""};
        memcpy(node.host, endpoints->one[i].host, sizeof node.host);
        memcpy(node.port, endpoints->one[i].port, sizeof node.port);
        map_query_add_node(c, &node);
    }

    c->seeds = c->nodes;
    c->endpoint = endpoints->one[0];
    memcpy(c->user, endpoints->user, sizeof c->user);
    memcpy(c->password, endpoints->password, sizeof c->password);
    return c->seeds ? HF_OK : error_set(HF_NO_MEMORY, "%s: no memory for a client", c->scheme);
}

/* Writes the URL of one server: user, password and database are the same for all. */
static hf_status write_url(struct cluster *c, const struct url *url, const char *rest)
{
    const char *hosts = url->body + 2, *at = memrchr(hosts, '@', strcspn(hosts, "/"));

    int len = snprintf(c->url.body, sizeof c->url.body, "//%.*snode%s",
                       at ? (int)(at - hosts) + 1 : 0, hosts, rest);
    strcpy(c->url.scheme, is_tls(url) ? "rediss" : "redis");
    if ((size_t)len < sizeof c->url.body)
        return HF_OK;
    return error_set(HF_CONFIG, "%s: the URL is too long", url->scheme);
}

static hf_status read_url(struct cluster *c, const struct url *url, const struct settings *settings)
{
    struct endpoint_form form = {
        .example = EXAMPLE, .default_port = "6379", .most = ENDPOINTS_MAX, .tls = is_tls(url)};
    struct endpoints endpoints;
    hf_status status = endpoints_read(&endpoints, url, settings, &form);
    if (status != HF_OK)
        return status;

    status = add_seeds(c, &endpoints);
    if (status == HF_OK)
        status = write_url(c, url, endpoints.rest);
    endpoints_free(&endpoints);
    return status;
}

static hf_status open_cluster(void **self, const struct url *url, const struct settings *settings,
                              const struct wire_engine_host *host)
{
    *self = NULL;
    struct cluster *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    c->host = host;
    c->review_at = TIME_NEVER;
    snprintf(c->scheme, sizeof c->scheme, "%s", url->scheme);
    hf_status status = read_settings(c, settings);
    if (status == HF_OK)
        status = read_url(c, url, settings);
    if (status == HF_OK)
        status = shards_open(c);
    if (status == HF_OK)
        *self = c;
    else
        close_cluster(c);
    return status;
}

/* ---- The door ---- */

/* Called after every event. Returns when to call it again. */
static nanos settle(struct cluster *c, nanos now)
{
    assert(c->shards > 0); /* shards_open() has made the first shard */
    shards_settle(c, now);
    surveys_settle(c, now);

    nanos next = map_query_tick(c, now);
    shards_settle(c, now); /* a map of slots may have arrived */
    surveys_settle(c, now);

    connection_set seeking = map_query_connections(c);
    for (unsigned i = 0; i < c->shards; i++)
        if (c->shard[i]->redis)
            redis_follow_seek_by(c->shard[i]->redis, seeking);
    return next;
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct cluster *c = self;
    bool is_mapped = c->is_mapped, is_survey = survey_is_needed(op);
    c->last_now = now;

    if (is_survey)
        survey_begin(c, op, now);
    else
        redis_wire_engine.submit(shards_route(c, op, now)->redis, op, now);
    settle(c, now);

    /* settle() began a search, so the op waits for its connections as well */
    if (!is_mapped && !is_survey && op->connections)
        op->connections |= map_query_connections(c);
}

static void forget(void *self, struct engine_op *op)
{
    struct cluster *c = self;
    int home = redis_cluster_home(op);
    if (survey_forget(c, op) || home < 0)
        return;

    assert((unsigned)home < c->shards);
    assert(c->shard[home]->redis);
    redis_wire_engine.forget(c->shard[home]->redis, op);
}

/* Returns NULL for a connection that asks for the map. */
static struct cluster_shard *shard_of(struct cluster *c, unsigned connection)
{
    if (connection < CLUSTER_QUERIES)
        return NULL;

    struct cluster_shard *shard = connection_numbers_owner(&c->numbers, connection);
    assert(shard && shard->redis);
    return shard;
}

/* Returns the number of the connection in the shard's engine. */
static unsigned number_in(const struct cluster_shard *shard, unsigned connection)
{
    assert(shard->first >= 0 && connection >= (unsigned)shard->first);
    return connection - (unsigned)shard->first;
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct cluster *c = self;
    struct cluster_shard *shard = shard_of(c, connection);
    c->last_now = now;

    if (shard)
        redis_wire_engine.connection_up(shard->redis, number_in(shard, connection), now);
    else
        map_query_up(c, connection, now);

    settle(c, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct cluster *c = self;
    struct cluster_shard *shard = shard_of(c, connection);
    c->last_now = now;

    if (shard)
        redis_wire_engine.connection_bytes(shard->redis, number_in(shard, connection), bytes, len,
                                           now);
    else
        map_query_bytes(c, connection, bytes, len, now);

    settle(c, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct cluster *c = self;
    struct cluster_shard *shard = shard_of(c, connection);
    c->last_now = now;

    if (shard)
        redis_wire_engine.connection_down(shard->redis, number_in(shard, connection), status, why,
                                          now);
    else
        map_query_down(c, connection, status, why, now);

    settle(c, now);
}

/* Converts connection numbers of the shard's engine to numbers of this engine. */
static connection_set raised(const struct cluster_shard *shard, connection_set set)
{
    assert(shard->redis && shard->first >= 0);
    return connection_set_raised(set, (unsigned)shard->first);
}

static connection_set connections(void *self)
{
    struct cluster *c = self;
    connection_set all = 0;

    for (unsigned i = 0; i < c->shards; i++)
        if (c->shard[i]->first >= 0)
            all |= raised(c->shard[i], redis_wire_engine.connections(c->shard[i]->redis));
    return all;
}

/* Returns the time from which the connection for requests of that shard is watched. Its server may
 * die and be replaced, and holders must learn of that, although they may send nothing for long. */
static nanos watched_from(const struct cluster_shard *shard)
{
    return shard->redis && shard->first >= 0 ? redis_follow_watch_from(shard->redis) : TIME_NEVER;
}

/* Returns the connections whose bytes belong to no op: maps of slots, the greeting of a new
 * primary, and the end of a connection that is idle. */
static connection_set listening_connections(void *self)
{
    struct cluster *c = self;
    connection_set all = map_query_connections(c);

    for (unsigned i = 0; i < c->shards; i++) {
        const struct cluster_shard *shard = c->shard[i];
        if (shard->first < 0)
            continue;
        all |= raised(shard, redis_follow_greeting(shard->redis));
        all |= raised(shard, redis_follow_watched(shard->redis, c->last_now));
    }
    return all;
}

static nanos tick(void *self, nanos now)
{
    struct cluster *c = self;
    nanos next = TIME_NEVER;
    c->last_now = now;

    for (unsigned i = 0; i < c->shards; i++) {
        nanos due =
            c->shard[i]->redis ? redis_wire_engine.tick(c->shard[i]->redis, now) : TIME_NEVER;
        next = due < next ? due : next;
        nanos watched = watched_from(c->shard[i]);
        next = watched > now && watched < next ? watched : next;
    }

    nanos own = settle(c, now);
    return own < next ? own : next;
}

const struct wire_engine_type cluster_wire_engine = {
    .open = open_cluster,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .close = close_cluster,
};
