/* redis.c - the engine for one Redis or Valkey server: the functions of its table, and its URL. */
#include "redis.h"

#include "base/error.h"
#include "base/url.h"
#include "engines/kit/endpoints.h"
#include "sys/process.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE "user:password@host:6379/0"

/* ---- The URL ---- */

static hf_status read_database(struct redis *r, const struct url *url, const char *rest)
{
    const char *text = *rest ? rest + 1 : rest;
    size_t len = strlen(text);

    if (len > 6 || strspn(text, "0123456789") < len)
        return error_set(HF_CONFIG,
                         "%s: the URL: after the host comes the number of a database, and nothing "
                         "else (it looks like %s://" EXAMPLE ")",
                         url->scheme, url->scheme);
    r->db = atoi(text);
    return HF_OK;
}

/* Reads redis://user:password@host:port/db or redis+unix://user:password@/path/of/socket. */
static hf_status read_url(struct redis *r, const struct url *url, const struct settings *settings)
{
    bool is_path = strstr(url->scheme, "+unix") != NULL;
    struct endpoint_form form = {
        .example = is_path ? "/run/redis.sock" : EXAMPLE,
        .default_host = "127.0.0.1",
        .default_port = "6379",
        .most = 1,
        .is_path = is_path,
        .tls = strcmp(url->scheme, "rediss") == 0 || strcmp(url->scheme, "valkeys") == 0,
    };
    struct endpoints server;
    hf_status status = endpoints_read(&server, url, settings, &form);
    if (status != HF_OK)
        return status;

    r->address = server.one[0];
    endpoint_print(&r->address, r->where);
    memcpy(r->user, server.user, sizeof r->user);
    memcpy(r->password, server.password, sizeof r->password);
    status = read_database(r, url, server.rest);
    endpoints_free(&server);
    return status;
}

/* ---- Settings ---- */

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#define SETTING_TEXT SETTING_TEXT_ROW
#include "redis_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
const struct setting_rows redis_settings = {setting_rows,
                                            sizeof setting_rows / sizeof *setting_rows};

bool redis_wants_replicas(const struct settings *settings)
{
    return settings->value[SETTING_REPLICAS] > 0;
}

void redis_override_timing(struct timing_overrides *overrides, const struct settings *settings)
{
    if (redis_wants_replicas(settings) || settings->value[SETTING_FSYNC])
        overrides->acknowledge_ms = settings->value[SETTING_REPLICA_TIMEOUT];
}

/* Replaces characters that a server or a list may be unable to show. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            *text = '-';
}

static void name_client(struct redis *r, const char *wished)
{
    char host[65];
    snprintf(host, sizeof host, "%s", process_host_name());
    make_printable(host);
    r->about_len = (size_t)snprintf(r->about, sizeof r->about, " %lld %s ", (long long)process_id(),
                                    host[0] ? host : "-");

    if (*wished)
        snprintf(r->client_name, sizeof r->client_name, "%.100s/%s", wished, redis_library_name);
    else
        snprintf(r->client_name, sizeof r->client_name, "holdfast/%s/%lld/%s", host,
                 (long long)process_id(), redis_library_name);
    make_printable(r->client_name);
}

/* Writes how and where this client is notified: "i" inbox (a list), "p" pubsub channel or "n" not
 * at all, then the name of its inbox. The name of the presence key begins with the name of the
 * inbox. */
static void name_box(struct redis *r, const char *wake)
{
    struct id id;
    assert(*wake && !r->self[0]);
    for (size_t i = 0; i < sizeof id.b; i += 4) {
        uint32_t random = r->host->random(r->host->ctx);
        memcpy(id.b + i, &random, 4);
    }
    redis_id_text(&id, r->self);

    char letter = strcmp(wake, "poll") == 0 ? 'n' : wake[0];
    snprintf(r->box, sizeof r->box, "%c{%s}:inbox:%s", letter, r->prefix, r->self);
    /* The inbox must be one word in the record of a waiter (scripts/holdfast.lua), whatever the
     * prefix is. */
    for (char *at = r->box; *at; at++)
        *at = isspace((unsigned char)*at) ? '-' : *at;
}

static hf_status read_settings(struct redis *r, const struct settings *s)
{
    r->limits = (struct engine_limits)REDIS_LIMITS;
    timing_set_drift(&r->limits, s);
    r->overrides = timing_overrides_of(s);
    redis_override_timing(&r->overrides, s);

    r->connect_timeout = NANOS_OF_MS(s->value[SETTING_CONNECT_TIMEOUT]);
    r->replicas = s->value[SETTING_REPLICAS];
    r->replica_timeout_ms = s->value[SETTING_REPLICA_TIMEOUT];
    r->synced = s->value[SETTING_FSYNC];
    r->durable = r->replicas || r->synced;
    r->history = s->value[SETTING_HISTORY];
    r->history_age_ms = s->value[SETTING_HISTORY_AGE];
    r->past = resp_words_of((const int64_t[]){r->history, r->history_age_ms}, 2);

    snprintf(r->prefix, sizeof r->prefix, "%.*s", REDIS_PREFIX_MAX, s->text[SETTING_PREFIX]);
    name_client(r, s->text[SETTING_NAME]);
    if (strcmp(s->text[SETTING_WAKE], "notify") == 0)
        return error_set(HF_CONFIG, "wake=notify: a Redis server has inbox, pubsub and poll");
    name_box(r, s->text[SETTING_WAKE]);
    return HF_OK;
}

/* ---- The door ---- */

static inline void rest(struct redis *r)
{
    if (r->replied)
        redis_ops_rest(r);
}

static void close_redis(void *self)
{
    struct redis *r = self;

    for (unsigned i = 0; i < CONNECTIONS; i++) {
        if (r->connection[i].state != CONNECTION_DOWN)
            r->host->hang_up(r->host->ctx, i);
        resp_reader_close(r->connection[i].replies);
        pipeline_free(&r->connection[i].queue);
    }

    poll_schedule_free(&r->polls);
    redis_channels_free(r);
    redis_recent_free(r);
    redis_ops_free(r);
    resp_command_free(&r->command);
    redis_key_cache_free(r);
    explicit_bzero(r->password, sizeof r->password);
    free(r);
}

static hf_status open_redis(void **self, const struct url *url, const struct settings *settings,
                            const struct wire_engine_host *host)
{
    *self = NULL;
    struct redis *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    r->host = host;
    r->up_since = TIME_NEVER;
    r->timing_ttl_ms = -1;
    r->known_ops.size = sizeof(struct resting_op);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        r->connection[i].number = i;
        r->connection[i].queue.size = sizeof(struct request);
    }

    hf_status status = read_url(r, url, settings);
    if (status == HF_OK)
        status = read_settings(r, settings);
    if (status == HF_OK)
        *self = r;
    else
        close_redis(r);
    return status;
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct redis *r = self;
    struct redis_op *a = redis_op_find_or_make(r, op);
    r->last_now = now;

    if (a) {
        a->sent_op = *op;
        if (!a->first_ttl_ms)
            a->first_ttl_ms = op->ttl_ms;
        if (!op->of_several || !redis_joint_submit(r, a))
            redis_op_submit(r, a, now);
        rest(r);
        return;
    }

    struct engine_reply reply = {.kind = REPLY_FAILED,
                                 .asked_at = now,
                                 .retry_at = TIME_NEVER,
                                 .status = HF_NO_MEMORY,
                                 .text = "no memory for a request"};
    r->host->on_reply(r->host->ctx, op, &reply);
}

static void forget(void *self, struct engine_op *op)
{
    struct redis *r = self;
    redis_op_forget(r, op);
    rest(r);
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct redis *r = self;
    assert(connection < CONNECTIONS);
    redis_greeting_begin(r, &r->connection[connection], now);
    rest(r);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct redis *r = self;
    assert(connection < CONNECTIONS);
    r->last_now = now;
    redis_connection_bytes(r, &r->connection[connection], bytes, len, now);
    rest(r);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct redis *r = self;
    assert(connection < CONNECTIONS);
    redis_connection_down(r, &r->connection[connection], status, why, now);
    rest(r);
}

static connection_set connections(void *self)
{
    struct redis *r = self;
    connection_set all = 0;
#pragma GCC unroll 3
    for (unsigned i = 0; i < CONNECTIONS; i++)
        all |= (connection_set)(r->connection[i].unclaimed > 0) << i;
    return all;
}

static nanos tick(void *self, nanos now)
{
    struct redis *r = self;
    nanos next = TIME_NEVER;
    bool is_needed = r->queued || r->listeners; /* other ops dial when they are submitted */
    r->last_now = now;

    for (unsigned i = 0; i < CONNECTIONS; i++) {
        if (r->connection[i].state == CONNECTION_DOWN && !is_needed)
            continue;
        nanos due = redis_connection_tick(r, &r->connection[i], now);
        next = due < next ? due : next;
    }

    nanos presence = redis_presence_tick(r, now);
    next = presence < next ? presence : next;
    if (r->follow.is_on) {
        nanos follow = redis_follow_tick(r, now);
        next = follow < next ? follow : next;
    }
    if (r->cluster.is_on) {
        nanos again = redis_cluster_tick(r, now);
        next = again < next ? again : next;
    }
    rest(r);
    return next;
}

/* ---- A server of a quorum ---- */

void redis_quorum_member_join(void *redis)
{
    struct redis *r = redis;
    assert(!r->ops && !r->known_ops.count);
    r->is_quorum_member = true;
    strcpy(r->box, "-");
}

void redis_quorum_member_listen(void *redis, struct quorum_member_op *op, nanos now)
{
    struct redis *r = redis;
    struct redis_op *a = redis_op_find_or_make(r, &op->op);
    assert(r->is_quorum_member);
    r->last_now = now;
    if (!a)
        return;

    a->sent_op = op->op;
    redis_notify_set_listener(r, a, true, now);
    rest(r);
}

nanos redis_quorum_member_up_since(const void *redis)
{
    const struct redis *r = redis;
    assert(r->is_quorum_member);
    return r->up_since;
}

bool redis_quorum_member_has_greeted(const void *redis)
{
    return ((const struct redis *)redis)->connection[CONNECTION_COMMANDS].ups > 0;
}

bool redis_quorum_member_is_hung(const void *redis, nanos now)
{
    const struct redis *r = redis;
    assert(r->is_quorum_member);
    return redis_connection_is_hung(&r->connection[CONNECTION_COMMANDS], now);
}

const char *redis_quorum_member_where(const void *redis)
{
    return ((const struct redis *)redis)->where;
}

hf_status redis_quorum_member_check_name(const void *redis, const char *name, size_t len)
{
    const struct redis *r = redis;
    struct redis_keys keys;
    assert(r->is_quorum_member);
    return redis_keys_here(r, &keys, name, len);
}

const char *redis_quorum_member_run_id(const void *redis)
{
    const struct redis *r = redis;
    assert(r->is_quorum_member);
    return r->connection[CONNECTION_COMMANDS].run_id;
}

bool redis_quorum_member_is_unsent(const struct engine_op *op)
{
    const struct redis_op *a = redis_active_op(op);
    return a && a->unsent;
}

const struct wire_engine_type redis_wire_engine = {
    .open = open_redis,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .tick = tick,
    .close = close_redis,
};
