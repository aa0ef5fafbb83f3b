/* postgres.c - the engine for a PostgreSQL database: the functions of its table, and its URL. */
#include "postgres.h"

#include "base/error.h"
#include "base/url.h"
#include "engines/kit/endpoints.h"
#include "sys/process.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The URL ---- */

bool postgres_passes_on(const char *name, size_t len)
{
    return pg_keyword_is_known(name, len);
}

static bool is_ours(const struct settings *settings, const char *name, size_t len)
{
    for (size_t i = 0; i < settings->table->count; i++) {
        const char *own = settings->table->row[i].name;
        if (strlen(own) == len && memcmp(own, name, len) == 0)
            return true;
    }
    return false;
}

/* Appends those parts of the query that are keywords of libpq. */
static void add_passed_on(char *uri, size_t size, const char *query,
                          const struct settings *settings)
{
    char joint = '?';
    for (const char *pair = query; *pair;) {
        size_t len = strcspn(pair, "&"), name_len = strcspn(pair, "=&"), used = strlen(uri);
        if (!is_ours(settings, pair, name_len)) {
            snprintf(uri + used, size - used, "%c%.*s", joint, (int)len, pair);
            joint = '&';
        }
        pair += len + (pair[len] == '&');
    }
}

static void note_where(struct postgres *p)
{
    const char *host = pg_keywords_get(&p->keywords, "host");
    const char *address = pg_keywords_get(&p->keywords, "hostaddr");
    const char *port = pg_keywords_get(&p->keywords, "port");
    const char *database = pg_keywords_get(&p->keywords, "dbname");
    const char *service = pg_keywords_get(&p->keywords, "service");

    if (!*host)
        host = address;

    if (!*host && *service)
        snprintf(p->where, sizeof p->where, "service %.100s", service);
    else
        snprintf(p->where, sizeof p->where, "%.120s%s%.20s%s%.60s", *host ? host : "localhost",
                 *port ? ":" : "", port, *database ? "/" : "", database);
}

static hf_status read_url(struct postgres *p, const struct url *url,
                          const struct settings *settings)
{
    char uri[2 * URL_MAX + 32], why[300];
    snprintf(uri, sizeof uri, "postgresql:%s", url->body);
    add_passed_on(uri, sizeof uri, url->query, settings);

    hf_status status = pg_keywords_read(&p->keywords, uri, why, sizeof why);
    explicit_bzero(uri, sizeof uri);
    if (status == HF_NO_MEMORY)
        return error_set(status, "%s: no memory for a client", url->scheme);
    if (status != HF_OK)
        return error_set(HF_CONFIG,
                         "%s: the URL: %s (it looks like %s://user:password@host:5432/database)",
                         url->scheme, why, url->scheme);
    note_where(p);
    return HF_OK;
}

/* ---- Settings ---- */

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#define SETTING_TEXT SETTING_TEXT_ROW
#include "postgres_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
const struct setting_rows postgres_settings = {setting_rows,
                                               sizeof setting_rows / sizeof *setting_rows};

static void set_default_text(struct settings *settings, size_t index, const char *text)
{
    if (strcmp(settings->source[index], "default") != 0)
        return;
    snprintf(settings->text[index], sizeof settings->text[index], "%s", text);
    settings->value[index] = (int64_t)strlen(text);
}

/* Sets the defaults. There is no default prefix, because users write the names in SQL, too. */
void postgres_fit_defaults(struct settings *settings)
{
    set_default_text(settings, SETTING_PREFIX, "");
    set_default_text(settings, SETTING_WAKE, "notify");
    if (settings->value[SETTING_MEMORY])
        set_default_text(settings, SETTING_SCHEMA, "holdfast_memory");
}

static hf_status read_password_file(struct postgres *p, const char *path)
{
    char password[512] = "";
    hf_status status = endpoints_read_password(path, password, sizeof password);
    if (status == HF_OK && password[0] && !pg_keywords_set(&p->keywords, "password", password))
        status = error_set(HF_NO_MEMORY, "postgres: no memory for a client");
    explicit_bzero(password, sizeof password);
    return status;
}

/* Reads the name of the schema, which is inserted into SQL: only safe letters are accepted. */
static hf_status read_schema(struct postgres *p, const char *text)
{
    bool good = islower((unsigned char)text[0]) || text[0] == '_';
    for (const char *at = text; *at; at++)
        good = good && (islower((unsigned char)*at) || isdigit((unsigned char)*at) || *at == '_');
    if (!good || strncmp(text, "pg_", 3) == 0)
        return error_set(
            HF_CONFIG,
            "schema=%s: must consist of a-z, 0-9 and _, and not begin with pg_ or a digit", text);
    snprintf(p->schema, sizeof p->schema, "%.*s", PG_SCHEMA_MAX, text);
    return HF_OK;
}

static hf_status read_wake(struct postgres *p, const char *text)
{
    p->polls = strcmp(text, "poll") == 0;
    if (p->polls || strcmp(text, "notify") == 0)
        return HF_OK;
    return error_set(HF_CONFIG, "wake=%s: postgres: has notify and poll", text);
}

/* Sets a keyword unless the URL has set the same keyword. */
static bool set_unless_given(struct postgres *p, const char *name, const char *value)
{
    return *pg_keywords_get(&p->keywords, name) || !*value ||
           pg_keywords_set(&p->keywords, name, value);
}

static hf_status set_keywords(struct postgres *p, const struct settings *s)
{
    char client_name[128];
    snprintf(client_name, sizeof client_name, "holdfast/%s/%lld", process_host_name(),
             (long long)process_id());
    const char *name = s->text[SETTING_NAME];
    bool set = set_unless_given(p, "application_name", *name ? name : client_name) &&
               set_unless_given(p, "sslrootcert", s->text[SETTING_CA]) &&
               set_unless_given(p, "sslcert", s->text[SETTING_CERT]) &&
               set_unless_given(p, "sslkey", s->text[SETTING_KEY]) &&
               set_unless_given(p, "gssencmode", "disable") &&
               set_unless_given(p, "keepalives_idle", "10") &&
               pg_keywords_set(&p->keywords, "target_session_attrs", "read-write") &&
               pg_keywords_set(&p->keywords, "client_encoding", "UTF8");
    return set ? HF_OK : error_set(HF_NO_MEMORY, "postgres: no memory for a client");
}

static uint32_t draw(const struct postgres *p)
{
    return p->host->random(p->host->ctx);
}

static void name_client(struct postgres *p)
{
    char host[65];
    snprintf(host, sizeof host, "%s", process_host_name());
    for (char *at = host; *at; at++)
        *at = *at <= ' ' || *at > '~' ? '-' : *at;

    snprintf(p->about, sizeof p->about, " %lld %s ", (long long)process_id(), host[0] ? host : "-");
    snprintf(p->channel, sizeof p->channel, "hf_%08x%08x%08x%08x", draw(p), draw(p), draw(p),
             draw(p));
}

static void write_statements(struct postgres *p)
{
    snprintf(p->acquire, sizeof p->acquire,
             "SELECT %s.acquire($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,"
             "$20)",
             p->schema);
    snprintf(p->release, sizeof p->release, "SELECT %s.release($1,$2,$3,$4,$5,$6,$7,$8,$9)",
             p->schema);
    snprintf(p->extend, sizeof p->extend, "SELECT %s.extend($1,$2,$3,$4,$5)", p->schema);
    snprintf(p->convert, sizeof p->convert, "SELECT %s.convert($1,$2,$3,$4)", p->schema);
}

static hf_status read_settings(struct postgres *p, const struct settings *s)
{
    p->limits = (struct engine_limits)POSTGRES_LIMITS;
    timing_set_drift(&p->limits, s);
    p->overrides = timing_overrides_of(s);

    p->connect_timeout = NANOS_OF_MS(s->value[SETTING_CONNECT_TIMEOUT]);
    p->history = s->value[SETTING_HISTORY];
    p->history_age_ms = s->value[SETTING_HISTORY_AGE];
    p->memory = s->value[SETTING_MEMORY];
    p->may_install = s->value[SETTING_INSTALL];
    snprintf(p->commit, sizeof p->commit, "%.15s", s->text[SETTING_COMMIT]);
    snprintf(p->prefix, sizeof p->prefix, "%.*s", PG_PREFIX_MAX, s->text[SETTING_PREFIX]);
    name_client(p);

    hf_status status = read_schema(p, s->text[SETTING_SCHEMA]);
    if (status == HF_OK)
        status = read_wake(p, s->text[SETTING_WAKE]);
    if (status == HF_OK)
        status = set_keywords(p, s);
    if (status == HF_OK)
        status = read_password_file(p, s->text[SETTING_PASSWORD_FILE]);
    if (status == HF_OK)
        status = pg_interop_read(p, s->text[SETTING_INTEROP]);
    write_statements(p);
    if (p->interop)
        pg_interop_statements(p);
    return status;
}

/* ---- The door ---- */

static void close_postgres(void *self)
{
    struct postgres *p = self;
    struct pg_connection *connection = &p->connection;

    if (connection->state != PG_DOWN)
        p->host->hang_up(p->host->ctx, 0);
    pg_session_close(connection->session);
    free(connection->queue);
    connection->session = NULL;
    connection->state = PG_DOWN;
    connection->count = 0;
    while (p->ops)
        pg_op_forget(p, p->ops->op);
    pg_keywords_free(&p->keywords);
    free(p);
}

static hf_status open_postgres(void **self, const struct url *url, const struct settings *settings,
                               const struct wire_engine_host *host)
{
    *self = NULL;
    struct postgres *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);

    p->host = host;
    p->timing_ttl_ms = -1;
    hf_status status = read_url(p, url, settings);

    if (status == HF_OK)
        status = read_settings(p, settings);
    if (status == HF_OK)
        *self = p;
    else
        close_postgres(p);
    return status;
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct postgres *p = self;
    struct pg_op *a = pg_op_find_or_make(p, op);
    if (a) {
        a->sent_op = *op;
        pg_op_submit(p, a, now);
        return;
    }

    p->host->on_reply(p->host->ctx, op,
                      &(struct engine_reply){.kind = REPLY_FAILED,
                                             .asked_at = now,
                                             .retry_at = TIME_NEVER,
                                             .status = HF_NO_MEMORY,
                                             .text = "no memory for a request"});
}

static void forget(void *self, struct engine_op *op)
{
    pg_op_forget(self, op);
}

/* Never called, because libpq dials and not the engine. */
static void connection_up(void *self, unsigned connection, nanos now)
{
    (void)self, (void)connection, (void)now;
    assert(!"no connection of the driver");
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    (void)self, (void)connection, (void)bytes, (void)len, (void)now;
    assert(!"no connection of the driver");
}

/* Called if the driver could not poll the session's descriptor. */
static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    assert(connection == 0);
    pg_connection_drop(self, status, now, "%s", why);
}

static void connection_ready(void *self, unsigned connection, unsigned events, nanos now)
{
    (void)events;
    assert(connection == 0);
    pg_connection_ready(self, now);
}

static connection_set connections(void *self)
{
    struct postgres *p = self;
    return p->connection.unclaimed > 0;
}

/* With interop= leases end with their session, so the end of an idle session must be noticed at
 * once. */
static connection_set listening_connections(void *self)
{
    const struct postgres *p = self;
    return p->interop && p->connection.state == PG_UP;
}

static nanos tick(void *self, nanos now)
{
    return pg_connection_tick(self, now);
}

const struct wire_engine_type postgres_wire_engine = {
    .open = open_postgres,
    .submit = submit,
    .forget = forget,
    .connection_up = connection_up,
    .connection_bytes = connection_bytes,
    .connection_down = connection_down,
    .connection_ready = connection_ready,
    .connections = connections,
    .listening_connections = listening_connections,
    .tick = tick,
    .close = close_postgres,
};
