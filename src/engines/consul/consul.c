/* consul.c - the engine for Consul: the functions of its table, and its URL. */
#include "consul.h"
#include "json_library.h"

#include "base/error.h"
#include "base/url.h"
#include "sys/clock.h"
#include "sys/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- URL and settings ---- */

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

/* Returns true if a part of the path is empty, "." or "..": the agent would redirect such a
 * path. */
static bool has_odd_part(const char *prefix)
{
    for (const char *part = prefix; *part;) {
        size_t len = strcspn(part, "/");
        bool odd = len == 0 || (len <= 2 && strncmp(part, "..", len) == 0);
        if (odd)
            return true;
        part += len + (part[len] == '/');
    }
    return false;
}

/* Reads the path as the prefix of all keys, and adds a slash at its end. */
static hf_status read_prefix(struct consul *c, const char *scheme, const char *rest)
{
    const char *path = *rest == '/' ? rest + 1 : rest;
    hf_status status = url_decode(path, strlen(path), c->prefix, CONSUL_PREFIX_MAX);
    if (status != HF_OK)
        return error_set(status, "%s: the URL's path, which is the prefix of the keys: %s", scheme,
                         error_text());
    if (!is_printable(c->prefix) || has_odd_part(c->prefix))
        return error_set(HF_CONFIG,
                         "%s: the URL's path, which is the prefix of the keys: %s: it must be "
                         "printable ASCII without blanks and without parts that are empty or dots",
                         scheme, is_printable(c->prefix) ? c->prefix : "(not printable)");

    c->prefix_len = strlen(c->prefix);
    if (c->prefix_len == 0)
        c->prefix_len = (size_t)sprintf(c->prefix, "lock/");
    else if (c->prefix[c->prefix_len - 1] != '/')
        c->prefix[c->prefix_len++] = '/';
    c->prefix[c->prefix_len] = '\0';
    return HF_OK;
}

static hf_status read_url(struct consul *c, const struct url *url, const struct settings *settings)
{
    bool tls = strcmp(url->scheme, "consuls") == 0;
    struct endpoint_form form = {.example = ":TOKEN@host:8500,host2:8500/prefix",
                                 .default_host = "127.0.0.1",
                                 .default_port = tls ? "8501" : "8500",
                                 .most = ENDPOINTS_MAX,
                                 .tls = tls};
    hf_status status = endpoints_read(&c->endpoints, url, settings, &form);
    if (status != HF_OK)
        return status;
    if (c->endpoints.user[0] || !is_printable(c->endpoints.password))
        status =
            error_set(HF_CONFIG, "%s: %s", url->scheme,
                      c->endpoints.user[0] ? "Consul has tokens and no users: write :TOKEN@host"
                                           : "the token has a character that no token has");
    if (status == HF_OK)
        status = read_prefix(c, url->scheme, c->endpoints.rest);
    if (status != HF_OK)
        endpoints_free(&c->endpoints);
    return status;
}

static void name_client(struct consul *c)
{
    char host[65];
    snprintf(host, sizeof host, "%s", process_host_name());
    for (char *at = host; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '-';
    snprintf(c->about, sizeof c->about, "%lld %s", (long long)process_id(), host[0] ? host : "-");
}

static void read_settings(struct consul *c, const struct settings *s)
{
    c->limits = (struct engine_limits)CONSUL_LIMITS;
    c->limits.ttl_min_ms = s->value[SETTING_SESSION_MIN];
    c->lock_delay_ms = s->value[SETTING_LOCK_DELAY];
    timing_set_drift(&c->limits, s);
    c->overrides = timing_overrides_of(s);
    c->connect_timeout = NANOS_OF_MS(s->value[SETTING_CONNECT_TIMEOUT]);
    nanos set = NANOS_OF_MS(c->overrides.op_timeout_ms);
    /* Several agents: give up early and try the next one. A single one is given more time. */
    nanos usual = c->endpoints.count > 1 ? CONSUL_CALL_TIMEOUT : 3 * CONSUL_CALL_TIMEOUT;
    c->call_timeout = set > 0 ? set : usual;
    c->wall_offset_ms = clock_wall_us() / 1000 - clock_boot() / NANOS_OF_MS(1);
}

/* ---- The door ---- */

static void close_consul(void *self)
{
    struct consul *c = self;
    for (unsigned i = 0; i < CONSUL_CONNECTIONS; i++)
        consul_connection_close(&c->connection[i]);
    for (struct consul_entry *entry = c->entries; entry; entry = entry->next)
        entry->call = NULL;
    consul_admins_close(c);
    consul_entries_close(c);
    consul_views_close(c);
    consul_sessions_close(c);
    text_free(&c->body);
    if (c->head.at)
        explicit_bzero(c->head.at, c->head.room);
    text_free(&c->head);
    endpoints_free(&c->endpoints);
    free(c);
}

static hf_status open_consul(void **self, const struct url *url, const struct settings *settings,
                             const struct wire_engine_host *host)
{
    *self = NULL;
    if (!consul_json_load())
        return error_set(HF_CONFIG, "%s: %s", url->scheme, consul_json_error());

    struct consul *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    c->host = host;
    for (unsigned i = 0; i < CONSUL_CONNECTIONS; i++) {
        struct consul_connection *connection = &c->connection[i];
        connection->consul = c;
        connection->number = i;
        connection->response.body_max = CONSUL_BODY_MAX;
        connection->response.on_field = consul_connection_field;
        connection->response.ctx = connection;
    }
    hf_status status = read_url(c, url, settings);
    if (status != HF_OK) {
        free(c);
        return status;
    }
    read_settings(c, settings);
    name_client(c);
    *self = c;
    return HF_OK;
}

/* Ends every function of the engine's table: drops broken connections, and frees entries and
 * calls that are done. */
static void finish(struct consul *c, nanos now)
{
    consul_connections_mend(c, now);
    if (c->has_backlog) {
        c->has_backlog = false;
        consul_entries_advance(c, now);
        consul_admins_advance(c, now);
        consul_connections_mend(c, now);
    }
    consul_entries_reap(c);
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct consul *c = self;
    c->last_now = now;
    if (op->verb == OP_ADMIN)
        consul_admin_submit(c, op, now);
    else
        consul_entry_submit(c, op, now);
    finish(c, now);
}

static void forget(void *self, struct engine_op *op)
{
    struct consul *c = self;
    if (op->verb == OP_ADMIN)
        consul_admin_forget(c, op);
    else
        consul_entry_forget(c, op);
    finish(c, c->last_now);
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct consul *c = self;
    assert(connection < CONSUL_CONNECTIONS);
    c->last_now = now;
    consul_connection_up(&c->connection[connection], now);
    finish(c, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct consul *c = self;
    assert(connection < CONSUL_CONNECTIONS);
    c->last_now = now;
    consul_connection_bytes(&c->connection[connection], bytes, len, now);
    finish(c, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct consul *c = self;
    assert(connection < CONSUL_CONNECTIONS);
    c->last_now = now;
    consul_connection_down(&c->connection[connection], status, why, now);
    finish(c, now);
}

static connection_set connections(void *self)
{
    struct consul *c = self;
    bool is_due = consul_commands(c)->unclaimed > 0 || c->leaving > 0;
    return (connection_set)is_due << CONNECTION_COMMANDS;
}

static connection_set listening_connections(void *self)
{
    struct consul *c = self;
    connection_set listens = 0;
    for (unsigned i = CONNECTION_FIRST_QUERY; i < CONSUL_CONNECTIONS; i++) {
        const struct consul_connection *connection = &c->connection[i];
        bool speaks = connection->state == CONNECTION_DIALLED ||
                      (connection->state == CONNECTION_UP && connection->calls);
        listens |= (connection_set)speaks << i;
    }
    return listens;
}

static bool has_work(const struct consul *c)
{
    if (c->admins)
        return true;
    for (const struct consul_entry *entry = c->entries; entry; entry = entry->next)
        if (entry->verb != OP_NONE || entry->stage == ENTRY_QUEUED)
            return true;
    return false;
}

static nanos earlier(nanos a, nanos b)
{
    return a < b ? a : b;
}

static nanos tick(void *self, nanos now)
{
    struct consul *c = self;
    struct consul_connection *commands = consul_commands(c);
    nanos next = TIME_NEVER;
    c->last_now = now;
    bool is_needed = has_work(c);

    if (is_needed)
        consul_connection_need(commands, now);
    if (is_needed || commands->state != CONNECTION_DOWN)
        next = earlier(next, consul_connection_tick(commands, now));
    if (is_needed)
        consul_entries_advance(c, now);
    next = earlier(next, consul_entries_tick(c, now));
    next = earlier(next, consul_session_tick(c, now));
    next = earlier(next, consul_views_tick(c, now));
    finish(c, now);
    return next;
}

static void farewell(void *self, bool hurries, nanos now)
{
    struct consul *c = self;
    c->last_now = now;
    consul_sessions_farewell(c, hurries, now);
    finish(c, now);
}

const struct wire_engine_type consul_wire_engine = {
    .open = open_consul,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .farewell = farewell,
    .close = close_consul,
};
