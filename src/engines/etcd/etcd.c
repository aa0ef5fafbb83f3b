/* etcd.c - the engine for etcd: the functions of its table, and its URL. */
#include "etcd.h"

#include "base/error.h"
#include "base/url.h"
#include "sys/clock.h"
#include "sys/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- URL and settings ---- */

/* Reads the path as the prefix of all keys, and adds a slash at its end. */
static hf_status read_prefix(struct etcd *e, const char *scheme, const char *rest)
{
    const char *path = *rest == '/' ? rest + 1 : rest;
    hf_status status = url_decode(path, strlen(path), e->prefix, ETCD_PREFIX_MAX);
    if (status != HF_OK)
        return error_set(status, "%s: the URL's path, which is the prefix of the keys: %s", scheme,
                         error_text());

    e->prefix_len = strlen(e->prefix);
    if (e->prefix_len == 0)
        e->prefix_len = (size_t)sprintf(e->prefix, "lock/");
    else if (e->prefix[e->prefix_len - 1] != '/')
        e->prefix[e->prefix_len++] = '/';
    e->prefix[e->prefix_len] = '\0';
    return HF_OK;
}

static hf_status read_url(struct etcd *e, const struct url *url, const struct settings *settings)
{
    bool tls = strcmp(url->scheme, "etcds") == 0;
    struct endpoint_form form = {.example = "user:password@host:2379,host2:2379/prefix",
                                 .default_host = "127.0.0.1",
                                 .default_port = "2379",
                                 .most = ENDPOINTS_MAX,
                                 .tls = tls,
                                 .alpn = "h2"};
    hf_status status = endpoints_read(&e->endpoints, url, settings, &form);
    return status == HF_OK ? read_prefix(e, url->scheme, e->endpoints.rest) : status;
}

static void name_client(struct etcd *e)
{
    char host[65];
    snprintf(host, sizeof host, "%s", process_host_name());
    for (char *at = host; *at; at++)
        if (*at <= ' ' || *at > '~')
            *at = '-';
    snprintf(e->about, sizeof e->about, "%lld %s", (long long)process_id(), host[0] ? host : "-");

    uint32_t high = e->host->random(e->host->ctx), low = e->host->random(e->host->ctx);
    snprintf(e->epoch_key, sizeof e->epoch_key, "%s.s/%08x%08x", e->prefix, high, low);
}

static void read_settings(struct etcd *e, const struct settings *s)
{
    e->limits = (struct engine_limits)ETCD_LIMITS;
    timing_set_drift(&e->limits, s);
    e->overrides = timing_overrides_of(s);
    e->connect_timeout = NANOS_OF_MS(s->value[SETTING_CONNECT_TIMEOUT]);
    e->lock_delay = NANOS_OF_MS(s->value[SETTING_LOCK_DELAY]);
    nanos set = NANOS_OF_MS(e->overrides.op_timeout_ms);
    /* Several servers: give up early and try the next one. A single one is given more time. */
    nanos usual = e->endpoints.count > 1 ? ETCD_CALL_TIMEOUT : 3 * ETCD_CALL_TIMEOUT;
    e->call_timeout = set > 0 ? set : usual;
    e->wall_offset_ms = clock_wall_us() / 1000 - clock_boot() / NANOS_OF_MS(1);
}

/* ---- The door ---- */

static void close_etcd(void *self)
{
    struct etcd *e = self;
    e->watch_stream = -1;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        etcd_connection_close(&e->connection[i]);
    for (struct etcd_entry *entry = e->entries; entry; entry = entry->next)
        entry->call = NULL;
    etcd_admins_close(e);
    etcd_entries_close(e);
    etcd_views_close(e);
    etcd_sessions_close(e);
    pb_free(&e->message);
    block_pool_end(&e->pool);
    endpoints_free(&e->endpoints);
    explicit_bzero(e->token, sizeof e->token);
    free(e);
}

static hf_status open_etcd(void **self, const struct url *url, const struct settings *settings,
                           const struct wire_engine_host *host)
{
    *self = NULL;
    struct etcd *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    e->host = host;
    e->watch_stream = -1;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        e->connection[i].etcd = e;
        e->connection[i].number = i;
    }
    hf_status status = read_url(e, url, settings);
    if (status != HF_OK) {
        free(e);
        return status;
    }
    read_settings(e, settings);
    name_client(e);
    *self = e;
    return HF_OK;
}

/* Ends every function of the engine's table: sends what was written, and frees entries and calls
 * that are done. */
static void finish(struct etcd *e, nanos now)
{
    if (e->has_backlog) {
        e->has_backlog = false;
        etcd_entries_advance(e, now);
        etcd_admins_advance(e, now);
    }
    etcd_connection_flush(e, now);
    etcd_entries_reap(e);
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct etcd *e = self;
    e->last_now = now;
    if (op->verb == OP_ADMIN)
        etcd_admin_submit(e, op, now);
    else
        etcd_entry_submit(e, op, now);
    finish(e, now);
}

static void forget(void *self, struct engine_op *op)
{
    struct etcd *e = self;
    if (op->verb == OP_ADMIN)
        etcd_admin_forget(e, op);
    else
        etcd_entry_forget(e, op);
    finish(e, e->last_now);
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct etcd *e = self;
    assert(connection < CONNECTIONS);
    e->last_now = now;
    etcd_connection_up(&e->connection[connection], now);
    finish(e, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct etcd *e = self;
    assert(connection < CONNECTIONS);
    e->last_now = now;
    etcd_connection_bytes(&e->connection[connection], bytes, len, now);
    finish(e, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    struct etcd *e = self;
    assert(connection < CONNECTIONS);
    e->last_now = now;
    etcd_connection_down(&e->connection[connection], status, why, now);
    finish(e, now);
}

static connection_set connections(void *self)
{
    struct etcd *e = self;
    return (connection_set)(e->connection[CONNECTION_COMMANDS].unclaimed > 0)
           << CONNECTION_COMMANDS;
}

static connection_set listening_connections(void *self)
{
    struct etcd *e = self;
    bool is_dialled = e->connection[CONNECTION_WATCHES].state == CONNECTION_DIALLED;
    bool listens = etcd_views_listening(e) || is_dialled;
    return (connection_set)listens << CONNECTION_WATCHES;
}

static bool has_work(const struct etcd *e)
{
    if (e->admins)
        return true;
    for (const struct etcd_entry *entry = e->entries; entry; entry = entry->next)
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
    struct etcd *e = self;
    struct etcd_connection *commands = &e->connection[CONNECTION_COMMANDS],
                           *watches = &e->connection[CONNECTION_WATCHES];
    nanos next = TIME_NEVER;
    e->last_now = now;
    bool is_needed = has_work(e), is_watching = etcd_views_wanted(e);

    if (is_needed)
        etcd_connection_need(commands, now);
    bool may_watch = is_watching && commands->state == CONNECTION_UP;
    if (may_watch && etcd_connection_need(watches, now))
        etcd_views_resume(e, now);
    if (is_needed || commands->state != CONNECTION_DOWN)
        next = earlier(next, etcd_connection_tick(commands, now));
    if (may_watch || watches->state != CONNECTION_DOWN)
        next = earlier(next, etcd_connection_tick(watches, now));
    if (is_needed)
        etcd_entries_advance(e, now);
    next = earlier(next, etcd_entries_settle(e, now));
    next = earlier(next, etcd_guards_tick(e, now));
    next = earlier(next, etcd_session_tick(e, now));
    next = earlier(next, etcd_views_tick(e, now));
    finish(e, now);
    return next;
}

const struct wire_engine_type etcd_wire_engine = {
    .open = open_etcd,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .close = close_etcd,
};
