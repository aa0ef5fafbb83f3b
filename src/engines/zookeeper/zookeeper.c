/* zookeeper.c - the engine for ZooKeeper: the functions of its table, and its URL. */
#include "zookeeper.h"

#include "base/error.h"
#include "base/url.h"
#include "sys/clock.h"
#include "sys/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- URL and settings ---- */

/* Returns true if no component of the path is empty, "." or "..". */
static bool is_path(const char *path)
{
    for (const char *at = path; *at == '/';) {
        size_t len = strcspn(at + 1, "/");
        bool dots = (len == 1 || len == 2) && strncmp(at + 1, "..", len) == 0;
        if (len == 0 || dots)
            return false;
        at += 1 + len;
    }
    return true;
}

/* Reads the path: the node below which all locks are. */
static hf_status read_root(struct zk *zk, const char *scheme, const char *rest)
{
    hf_status status = url_decode(rest, strlen(rest), zk->root, ZK_ROOT_MAX);
    if (status != HF_OK)
        return error_set(status, "%s: the URL's path, which is the node of the locks: %s", scheme,
                         error_text());

    size_t len = strlen(zk->root);
    if (len && zk->root[len - 1] == '/')
        zk->root[--len] = '\0';
    if (len == 0)
        strcpy(zk->root, "/holdfast");
    if (!is_path(zk->root))
        return error_set(HF_CONFIG, "%s: %s is not the path of a node", scheme, zk->root);
    return HF_OK;
}

static hf_status read_url(struct zk *zk, const struct url *url, const struct settings *settings)
{
    struct endpoint_form form = {.example = "user:password@host:2181,host2:2181/node",
                                 .default_host = "127.0.0.1",
                                 .default_port = "2181",
                                 .most = ENDPOINTS_MAX,
                                 .tls = strcmp(url->scheme, "zookeepers") == 0};
    hf_status status = endpoints_read(&zk->endpoints, url, settings, &form);
    if (status != HF_OK)
        return status;
    status = read_root(zk, url->scheme, zk->endpoints.rest);
    if (status != HF_OK)
        endpoints_free(&zk->endpoints);
    return status;
}

static void name_client(struct zk *zk)
{
    char host[65];
    snprintf(host, sizeof host, "%s", process_host_name());
    for (char *at = host; *at; at++)
        if (*at <= ' ' || *at > '~')
            *at = '-';
    snprintf(zk->about, sizeof zk->about, "%lld %s", (long long)process_id(), host[0] ? host : "-");
}

/* Reads the setting interop. "off" has the same names of places as "curator", those of Curator and
 * go-zk: other programs know them, too. */
static hf_status read_interop(struct zk *zk, const char *mode)
{
    bool is_kazoo = strcmp(mode, "kazoo") == 0;
    bool is_known = is_kazoo || strcmp(mode, "curator") == 0 || strcmp(mode, "off") == 0;
    zk->joint = is_kazoo ? "__lock__" : "-lock-";

    return is_known ? HF_OK
                    : error_set(HF_CONFIG, "interop=%s: ZooKeeper has curator and kazoo", mode);
}

static hf_status read_settings(struct zk *zk, const struct settings *s)
{
    zk->limits = (struct engine_limits)ZOOKEEPER_LIMITS;
    timing_set_drift(&zk->limits, s);
    zk->overrides = timing_overrides_of(s);
    zk->connect_timeout = NANOS_OF_MS(s->value[SETTING_CONNECT_TIMEOUT]);
    nanos set = NANOS_OF_MS(zk->overrides.op_timeout_ms);
    /* Several servers: give up early and try the next one. A single one is given more time. */
    nanos usual = zk->endpoints.count > 1 ? ZK_CALL_TIMEOUT : 3 * ZK_CALL_TIMEOUT;
    zk->call_timeout = set > 0 ? set : usual;
    zk->default_ttl_ms = s->value[SETTING_TTL];
    zk->wall_offset_ms = clock_wall_us() / 1000 - clock_boot() / NANOS_OF_MS(1);
    return read_interop(zk, s->text[SETTING_INTEROP]);
}

/* ---- The door ---- */

static void close_zookeeper(void *self)
{
    struct zk *zk = self;
    zk_admins_close(zk);
    zk_entries_close(zk);
    zk_sessions_free(zk);
    if (zk->message.bytes)
        explicit_bzero(zk->message.bytes, zk->message.room);
    jute_free(&zk->message);
    endpoints_free(&zk->endpoints);
    connection_numbers_free(&zk->numbers);
    free(zk);
}

static hf_status open_zookeeper(void **self, const struct url *url, const struct settings *settings,
                                const struct wire_engine_host *host)
{
    *self = NULL;
    struct zk *zk = calloc(1, sizeof *zk);
    if (!zk)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    zk->host = host;
    hf_status status = read_url(zk, url, settings);
    if (status == HF_OK)
        status = read_settings(zk, settings);
    if (status != HF_OK) {
        endpoints_free(&zk->endpoints);
        free(zk);
        return status;
    }
    name_client(zk);
    *self = zk;
    return HF_OK;
}

/* Ends every function of the engine's table: continues what waited, and frees what is broken or
 * done. */
static void finish(struct zk *zk, nanos now)
{
    if (zk->has_backlog && !zk->deleting) {
        zk->has_backlog = false;
        zk_entries_advance(zk, now);
        for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s))
            zk_admins_advance(s, now);
    }
    zk_entries_reap(zk);
    zk_sessions_finish(zk, now);
    zk_entries_reap(zk);
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct zk *zk = self;
    zk->last_now = now;
    if (op->verb == OP_ADMIN)
        zk_admin_submit(zk, op, now);
    else
        zk_entry_submit(zk, op, now);
    finish(zk, now);
}

static void forget(void *self, struct engine_op *op)
{
    struct zk *zk = self;
    if (op->verb == OP_ADMIN)
        zk_admin_forget(zk, op);
    else
        zk_entry_forget(zk, op);
    finish(zk, zk->last_now);
}

static struct zk_session *session_at(struct zk *zk, unsigned connection, nanos now)
{
    struct zk_session *session = connection_numbers_owner(&zk->numbers, connection);
    assert(session);
    zk->last_now = now;
    return session;
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    if (zk_words_are_on(self, connection))
        zk_words_up(self);
    else
        zk_session_up(session_at(self, connection, now), now);
    finish(self, now);
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    if (zk_words_are_on(self, connection))
        zk_words_bytes(self, bytes, len);
    else
        zk_session_bytes(session_at(self, connection, now), bytes, len, now);
    finish(self, now);
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    if (zk_words_are_on(self, connection))
        zk_words_down(self);
    else
        zk_session_down(session_at(self, connection, now), status, why, now);
    finish(self, now);
}

static connection_set connections(void *self)
{
    const struct zk *zk = self;
    connection_set set = 0;
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        bool is_due = s->state == SESSION_UP && (s->unclaimed || s->pinged_at);
        set |= is_due ? zk_session_bit(s) : 0;
    }
    return set;
}

static connection_set listening_connections(void *self)
{
    const struct zk *zk = self;
    connection_set set = zk_words_bit(zk);
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s)) {
        bool begins = s->state == SESSION_DIALLED || s->state == SESSION_GREETING;
        /* An op may move to a private session after its submit; then no parked caller knows that it
         * should read this connection. */
        bool serves = s->base.is_private && s->state == SESSION_UP;
        set |= begins || serves || s->watched ? zk_session_bit(s) : 0;
    }
    return set;
}

static nanos tick(void *self, nanos now)
{
    struct zk *zk = self;
    zk->last_now = now;
    nanos next = zk_sessions_tick(zk, now), words = zk_words_tick(zk, now);
    finish(zk, now);
    return next < words ? next : words;
}

static void farewell(void *self, bool hurries, nanos now)
{
    struct zk *zk = self;
    /* the server executes the requests of a session in order, so there is nothing to wait for */
    (void)hurries;
    zk->last_now = now;
    zk_sessions_end(zk, now);
}

const struct wire_engine_type zookeeper_wire_engine = {
    .open = open_zookeeper,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .farewell = farewell,
    .close = close_zookeeper,
};
