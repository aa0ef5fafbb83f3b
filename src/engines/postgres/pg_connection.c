/* pg_connection.c - the connection to the server: dialling, the greeting, installing the schema,
 * the requests in flight, and its end.
 *
 * Replies come in the order of the requests, and nothing else ties them together. So after a reply
 * that does not fit its request, no later reply on this connection can be trusted. */
#include "postgres.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a connection that was up for this long does not count as a failure when it is lost */
#define GOOD_FOR NANOS_OF_MS(100)
#define TAKES_STEP NANOS_OF_MS(25)
#define IDLE_AFTER NANOS_OF_MS(50)
#define INSTALL_PATIENCE NANOS_OF_MS(30000)
#define SWEEP_EVERY NANOS_OF_MS(600000)

enum { ECHOING_MAX = 1000 };

/* ---- The end ---- */

static void reply_unknown(struct postgres *p, const struct pg_request *request)
{
    struct pg_op *a = request->op;
    if (!a)
        return;

    a->in_flight--;
    if (request->kind == PG_REQ_ADMIN) {
        pg_op_fail(p, a, request->sent_at, HF_UNAVAILABLE, p->connection.why);
        return;
    }

    bool acquires = request->verb == OP_ACQUIRE;
    a->acquiring -= acquires;
    a->cut |= acquires;
    pg_op_reply(p, a,
                &(struct engine_reply){.kind = REPLY_UNKNOWN,
                                       .asked_at = request->sent_at,
                                       .retry_at = TIME_NEVER,
                                       .text = p->connection.why});
}

static void reply_to_all(struct postgres *p, nanos now)
{
    struct pg_connection *connection = &p->connection;
    while (connection->count) {
        struct pg_request request = connection->queue[connection->first];
        connection->first = (connection->first + 1) & (connection->room - 1);
        connection->count--;
        reply_unknown(p, &request);
    }

    connection->unclaimed = 0;

    for (struct pg_op *a = p->active, *next; a; a = next) {
        next = a->next_active;
        a->queued_reply.set = false;
        if (a->unsent) {
            a->unsent = false;
            pg_op_fail_with_connection(p, a, now);
        }
    }
}

void pg_connection_drop(struct postgres *p, hf_status status, nanos now, const char *format, ...)
{
    assert(status != HF_OK && format);
    struct pg_connection *connection = &p->connection;
    if (connection->state == PG_DOWN)
        return;

    va_list args;
    va_start(args, format);
    int len = snprintf(connection->why, sizeof connection->why, "%.150s: ", p->where);
    vsnprintf(connection->why + len, sizeof connection->why - (size_t)len, format, args);
    va_end(args);

    bool lasted = connection->state == PG_UP && now - connection->since >= GOOD_FOR;
    p->host->hang_up(p->host->ctx, 0);
    pg_session_close(connection->session);
    connection->session = NULL;
    connection->state = PG_DOWN;
    connection->listens = connection->installed = false;
    connection->last_status = status;
    redial_lost(&connection->redial, lasted ? REDIAL_AFTER_LONG : REDIAL_AFTER_FAILURE, now,
                &p->limits, &p->overrides, lasted ? 0 : p->host->random(p->host->ctx));
    reply_to_all(p, now);
    if (p->interop) /* the session's advisory locks have ended with the session */
        p->host->recheck(p->host->ctx);
}

/* Drops a connection that has failed. The session's error names the server already. */
static void drop_failed(struct postgres *p, nanos now)
{
    assert(p->connection.session);
    char why[600];
    snprintf(why, sizeof why, "%s", pg_session_error(p->connection.session));
    bool denied = strstr(why, "authentication failed") || strstr(why, "pg_hba.conf") ||
                  strstr(why, "no password supplied") || strstr(why, "requires a valid client");
    bool missing = (strstr(why, "does not exist") && strstr(why, "FATAL")) ||
                   strstr(why, "definition of service");
    hf_status status = denied ? HF_DENIED : HF_UNAVAILABLE;
    pg_connection_drop(p, missing ? HF_CONFIG : status, now, "%s", why);
}

/* ---- Errors ---- */

struct pg_error pg_error_of(const struct postgres *p, const struct pg_reply *reply)
{
    enum { KEEP, DROP };
    static const struct {
        const char *code;
        hf_status status;
        int connection;
        const char *words;
    } known[] = {
#define SQLSTATE(code, status, connection, words) {code, status, connection, words},
#include "sqlstates.def"
#undef SQLSTATE
    };
    assert(reply->sqlstate);

    size_t i = 0;
    while (strncmp(known[i].code, reply->sqlstate, strlen(known[i].code)) != 0)
        i++;
    struct pg_error error = {.status = known[i].status, .drop = known[i].connection == DROP};

    snprintf(error.text, sizeof error.text, "%s%.200s (%s, SQLSTATE %.5s)", known[i].words,
             reply->text, p->where, reply->sqlstate);
    return error;
}

/* ---- Requests ---- */

static bool add_request(struct pg_connection *connection, const struct pg_request *request)
{
    if (connection->count == connection->room) {
        uint32_t room = connection->room ? connection->room * 2 : 16;
        struct pg_request *queue = malloc(room * sizeof *queue);
        if (!queue)
            return false;
        for (uint32_t i = 0; i < connection->count; i++)
            queue[i] = connection->queue[(connection->first + i) & (connection->room - 1)];
        free(connection->queue);
        connection->queue = queue;
        connection->room = room;
        connection->first = 0;
    }

    uint32_t at = (connection->first + connection->count++) & (connection->room - 1);
    connection->queue[at] = *request;
    if (request->op)
        request->op->in_flight++;
    connection->unclaimed += request->kind == PG_REQ_UNCLAIMED;
    return true;
}

/* Tells the driver for which events of the session's socket to poll. */
static void adopt(struct postgres *p)
{
    const struct pg_session *s = p->connection.session;
    unsigned interest = (pg_session_wants_to_read(s) ? (unsigned)WIRE_READABLE : 0u) |
                        (pg_session_wants_to_write(s) ? (unsigned)WIRE_WRITABLE : 0u);
    if (pg_session_fd(s) >= 0)
        p->host->adopt(p->host->ctx, 0, pg_session_fd(s), interest);
}

/* Sends a statement. Behind a pooler a verb carries a number, which the reply repeats in a
 * second column. */
bool pg_connection_send(struct postgres *p, struct pg_request request, const char *name,
                        const char *sql, int count, const char *const *values, nanos now)
{
    struct pg_connection *connection = &p->connection;
    assert(connection->session);
    request.sent_at = now;
    request.measures = !connection->count;
    char echoing[ECHOING_MAX];
    if (connection->pooled)
        name = NULL;

    if (connection->pooled && request.kind == PG_REQ_VERB) {
        request.echo = ++connection->echo;
        snprintf(echoing, sizeof echoing, "%s, '%" PRIx64 "'", sql, request.echo);
        sql = echoing;
    }

    if (!add_request(connection, &request)) {
        pg_connection_drop(p, HF_NO_MEMORY, now, "no memory to send");
        return false;
    }

    bool sent = request.kind == PG_REQ_PREPARE
                    ? pg_session_prepare(connection->session, name, sql)
                    : pg_session_execute(connection->session, name, sql, count, values);
    if (sent) {
        adopt(p);
        return true;
    }

    /* false: the caller of this function replies */
    connection->count--;
    if (request.op)
        request.op->in_flight--;
    drop_failed(p, now);
    return false;
}

void pg_connection_forget(struct postgres *p, const struct pg_op *a)
{
    assert(a->in_flight);
    struct pg_connection *connection = &p->connection;

    for (uint32_t i = 0; i < connection->count; i++) {
        struct pg_request *request =
            &connection->queue[(connection->first + i) & (connection->room - 1)];
        if (request->op != a)
            continue;
        request->op = NULL;
        request->kind = PG_REQ_UNCLAIMED;
        connection->unclaimed++;
    }
}

/* ---- The beginning ---- */

bool pg_connection_need(struct postgres *p, nanos now)
{
    assert((p->connection.state == PG_DOWN) == !p->connection.session);
    struct pg_connection *connection = &p->connection;
    /* Servers and firewalls close connections that were idle for long. Find out now: otherwise the
     * next op would lose its request. */
    bool was_idle = connection->state == PG_UP && !connection->count &&
                    now - connection->received_at > IDLE_AFTER;

    if (was_idle)
        pg_connection_ready(p, now);
    if (connection->state != PG_DOWN)
        return true;
    if (now < connection->redial.dial_at)
        return false;

    connection->session = pg_session_open(&p->keywords);
    connection->since = connection->received_at = now;
    connection->state = PG_DIALLING;
    if (!connection->session) {
        pg_connection_drop(p, HF_NO_MEMORY, now, "no memory for a connection");
        return false;
    }

    /* libpq has begun to connect, so its descriptor is known */
    pg_connection_ready(p, now);
    return connection->state != PG_DOWN;
}

void pg_connection_may_install(struct postgres *p, nanos now)
{
    p->may_install = true;
    if (p->connection.state == PG_DOWN)
        p->connection.redial.dial_at = now;
}

static void greet(struct postgres *p, enum pg_request_kind kind, const char *name, const char *sql,
                  nanos now)
{
    nanos patience = kind == PG_REQ_INSTALL ? INSTALL_PATIENCE : p->connect_timeout;
    if (p->connection.state == PG_GREETING)
        pg_connection_send(p, (struct pg_request){.kind = kind, .patience = patience}, name, sql, 0,
                           NULL, now);
}

static void request_setup(struct postgres *p, nanos now)
{
    char sql[160];
    snprintf(sql, sizeof sql, "SELECT version, memory FROM %s.setup", p->schema);
    greet(p, PG_REQ_SETUP, NULL, sql, now);
}

static void begin_greeting(struct postgres *p, nanos now)
{
    p->connection.state = PG_GREETING;
    p->connection.pooled = false;
    p->connection.echo =
        (uint64_t)p->host->random(p->host->ctx) << 32 | p->host->random(p->host->ctx);
    p->connection.rtt = (struct rtt){0}; /* the new connection may lead to another server */
    greet(p, PG_REQ_HELLO, NULL,
          "SELECT pg_backend_pid(), current_setting('server_version_num'), pg_is_in_recovery(), "
          "current_setting('synchronous_commit')",
          now);
    request_setup(p, now);
}

static void prepare(struct postgres *p, const char *name, const char *sql, nanos now)
{
    if (!p->connection.pooled)
        greet(p, PG_REQ_PREPARE, name, sql, now);
}

/* Sets up the session once the schema exists. Behind a pooler it makes no setting, because a
 * setting could reach the sessions of other clients. */
static void finish_setup(struct postgres *p, nanos now)
{
    char sql[300];
    if (!p->connection.pooled) {
        snprintf(sql, sizeof sql, /* the warning: a commit that no standby has confirmed */
                 "SELECT set_config('synchronous_commit', '%s', false), "
                 "set_config('default_transaction_isolation', 'read committed', false), "
                 "set_config('client_min_messages', 'warning', false)",
                 p->commit);
        greet(p, PG_REQ_UNCLAIMED, NULL, sql, now);
    }

    snprintf(sql, sizeof sql, "SELECT %s.warm_up()", p->schema);
    greet(p, PG_REQ_UNCLAIMED, NULL, sql, now);
    prepare(p, "hf_acquire", p->acquire, now);
    prepare(p, "hf_release", p->release, now);
    prepare(p, "hf_extend", p->extend, now);
    prepare(p, "hf_convert", p->convert, now);
}

static bool is_boolean(const char *value)
{
    return strcmp(value, "t") == 0 || strcmp(value, "f") == 0;
}

/* A pooler handed on a session with replies that another client did not wait for. If this client
 * leaves now, in the middle of the greeting, the pooler closes that session. */
static void drop_out_of_step(struct postgres *p, nanos now)
{
    pg_connection_drop(p, HF_UNAVAILABLE, now, "a greeting that makes no sense");
}

/* Reads pid, version, "in recovery" and synchronous_commit. */
static void on_hello(struct postgres *p, const struct pg_reply *reply, nanos now)
{
    if (reply->rows != 1 || !is_boolean(pg_reply_value(reply, 0, 2))) {
        drop_out_of_step(p, now);
        return;
    }

    struct pg_connection *connection = &p->connection;
    connection->pooled = atoi(pg_reply_value(reply, 0, 0)) != pg_session_pid(connection->session);
    connection->version = atoi(pg_reply_value(reply, 0, 1));
    bool is_standby = pg_reply_value(reply, 0, 2)[0] == 't';
    bool commits_lazily = strcmp(pg_reply_value(reply, 0, 3), "off") == 0;

    if (connection->version < PG_VERSION_LEAST)
        pg_connection_drop(p, HF_CONFIG, now, "PostgreSQL %d is too old: Holdfast needs %d",
                           connection->version / 10000, PG_VERSION_LEAST / 10000);
    else if (is_standby)
        pg_connection_drop(p, HF_UNAVAILABLE, now, "a standby, which takes no locks");
    else if (connection->pooled && commits_lazily && !p->memory)
        pg_connection_drop(p, HF_CONFIG, now,
                           "synchronous_commit is off behind this pooler, where it cannot be set; "
                           "set it for the role, or use memory=1");
    else if (connection->pooled && p->interop)
        pg_connection_drop(p, HF_CONFIG, now,
                           "interop= needs a session of its own, and a pooler is in between");

    if (connection->pooled)
        p->polls = true;
}

static char *replace_word(const char *text, const char *word, const char *by)
{
    size_t count = 0, len = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += len)
        count++;

    char *out = malloc(strlen(text) + count * strlen(by) + 1), *to = out;
    for (const char *next; out && (next = strstr(text, word)); text = next + len) {
        to = mempcpy(to, text, (size_t)(next - text));
        to = stpcpy(to, by);
    }

    if (out)
        strcpy(to, text);
    return out;
}

/* Returns one statement that runs a file of sql/ as one transaction. Clients that install at the
 * same time wait for each other, and the second client finds the work done. */
static char *install_text(const struct postgres *p, int number)
{
    char is_due[160];
    const char *file = pg_sql_files[number];
    const char *unlogged = p->memory ? "UNLOGGED" : "", *memory = p->memory ? "true" : "false";
    char *schema = replace_word(file, "@schema@", p->schema);
    char *kind = schema ? replace_word(schema, "@unlogged@", unlogged) : NULL;
    char *script = kind ? replace_word(kind, "@memory@", memory) : NULL;
    char *text = NULL;

    if (number == 0)
        snprintf(is_due, sizeof is_due, "to_regclass('%s.setup') IS NULL", p->schema);
    else
        snprintf(is_due, sizeof is_due, "(SELECT version FROM %s.setup FOR UPDATE) = %d", p->schema,
                 number);
    if (script && asprintf(&text,
                           "DO $install$ BEGIN PERFORM pg_advisory_xact_lock(hashtextextended("
                           "'holdfast install', 0)); IF %s THEN EXECUTE $script$%s$script$; "
                           "END IF; END $install$",
                           is_due, script) < 0)
        text = NULL;

    free(schema);
    free(kind);
    free(script);
    return text;
}

/* Runs the files of sql/ that come after this version. */
static void install(struct postgres *p, int version, nanos now)
{
    for (int i = version; i < pg_sql_count && p->connection.state == PG_GREETING; i++) {
        char *text = install_text(p, i);
        if (text)
            greet(p, PG_REQ_INSTALL, NULL, text, now);
        else
            pg_connection_drop(p, HF_NO_MEMORY, now, "no memory to install");
        free(text);
    }

    p->connection.installed = true;
    p->connection.found_version = version;
    request_setup(p, now);
}

static bool is_missing(const char *sqlstate)
{
    return strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "3F000") == 0;
}

static void on_setup_error(struct postgres *p, const struct pg_reply *reply, nanos now)
{
    struct pg_error error = pg_error_of(p, reply);
    bool missing = is_missing(reply->sqlstate);

    if (missing && p->may_install && !p->connection.installed)
        install(p, 0, now);
    else if (missing)
        pg_connection_drop(p, HF_CONFIG, now,
                           "the schema %s is not installed: run holdfast doctor --install as a "
                           "user who may create it (docs/postgres.md)",
                           p->schema);
    else
        pg_connection_drop(p, error.status, now, "%s", error.text);
}

/* Reads the version of the schema, and whether its tables are in memory (UNLOGGED). */
static void on_setup(struct postgres *p, const struct pg_reply *reply, nanos now)
{
    if (reply->rows != 1) {
        pg_connection_drop(p, HF_DAMAGED, now, "the table %s.setup has no row", p->schema);
        return;
    }

    int version = atoi(pg_reply_value(reply, 0, 0));
    bool memory = pg_reply_value(reply, 0, 1)[0] == 't';
    if (version < 1 || !is_boolean(pg_reply_value(reply, 0, 1)))
        drop_out_of_step(p, now);
    else if (version > pg_sql_count)
        pg_connection_drop(p, HF_CONFIG, now,
                           "the schema %s has version %d and was made by a newer Holdfast; this "
                           "one knows %d",
                           p->schema, version, pg_sql_count);
    else if (memory != p->memory)
        pg_connection_drop(p, HF_CONFIG, now, "the schema %s was installed with memory=%d",
                           p->schema, memory);
    else if (version < pg_sql_count && p->may_install && !p->connection.installed)
        install(p, version, now);
    else if (version < pg_sql_count)
        pg_connection_drop(p, HF_CONFIG, now,
                           "the schema %s has version %d, and %d is needed: run holdfast doctor "
                           "--install as its owner",
                           p->schema, version, pg_sql_count);
    else
        finish_setup(p, now);
}

/* If the installation failed, another client may have installed the schema meanwhile: asks for the
 * version again. */
static void on_installed(struct postgres *p, const struct pg_reply *reply, nanos now)
{
    if (!reply->sqlstate)
        return;

    /* 40001: the default isolation of this session hides the version that another client
     * installed */
    bool exists = strncmp(reply->sqlstate, "42P0", 4) == 0 ||
                  strcmp(reply->sqlstate, "42710") == 0 || strcmp(reply->sqlstate, "23505") == 0 ||
                  strcmp(reply->sqlstate, "40001") == 0;
    struct pg_error error = pg_error_of(p, reply);
    if (exists)
        return;

    char what[60] = "is not installed";
    if (p->connection.found_version)
        snprintf(what, sizeof what, "has version %d, and %d is needed", p->connection.found_version,
                 pg_sql_count);
    pg_connection_drop(p, error.status == HF_DENIED ? HF_DENIED : HF_CONFIG, now,
                       "the schema %s %s, and this user cannot do it: %s (docs/postgres.md)",
                       p->schema, what, error.text);
}

static void sweep(struct postgres *p, nanos now)
{
    char sql[100];
    if (p->connection.state != PG_UP || now - p->swept_at < SWEEP_EVERY)
        return;

    p->swept_at = now;
    snprintf(sql, sizeof sql, "SELECT %s.sweep(1000)", p->schema);
    pg_connection_send(
        p, (struct pg_request){.kind = PG_REQ_UNCLAIMED, .patience = p->connect_timeout}, NULL, sql,
        0, NULL, now);
}

static void finish_greeting(struct postgres *p, nanos now)
{
    struct pg_connection *connection = &p->connection;
    connection->state = PG_UP;
    connection->since = now;
    connection->redial.failures = 0;
    /* A client that lives long sweeps every ten minutes. Short-lived clients sweep in one of 64
     * cases. */
    if (connection->ups || p->host->random(p->host->ctx) % 64)
        p->swept_at = now;

    if (connection->ups++) { /* after a reconnect: holds may have been lost, so check them too */
        p->host->recheck(p->host->ctx);
        pg_reply_notify_all(p);
    }

    pg_op_send_unsent(p, now);
}

void pg_connection_listen(struct postgres *p, nanos now)
{
    assert(!p->connection.listens || p->connection.session);
    struct pg_connection *connection = &p->connection;
    char sql[200];
    if (p->polls || connection->listens || connection->state != PG_UP)
        return;

    uint32_t high = p->host->random(p->host->ctx), low = p->host->random(p->host->ctx);
    connection->session_key = (int64_t)((uint64_t)(high >> 1) << 32 | low | 1);
    connection->listens = true;
    struct pg_request request = {.kind = PG_REQ_UNCLAIMED, .patience = p->connect_timeout};
    snprintf(sql, sizeof sql,
             "SELECT pg_advisory_lock(%" PRId64 "), set_config('holdfast.session', '%" PRId64
             "', false)",
             connection->session_key, connection->session_key);
    if (!pg_connection_send(p, request, NULL, sql, 0, NULL, now))
        return;

    snprintf(sql, sizeof sql, "LISTEN %s", p->channel);
    pg_connection_send(p, request, NULL, sql, 0, NULL, now);
}

/* ---- Replies ---- */

/* Notes how long requests take. The value moves in steps, so it changes rarely, and falls only if
 * requests became much faster. */
static void note_takes(struct postgres *p, nanos takes)
{
    nanos steps = (takes + TAKES_STEP - 1) / TAKES_STEP * TAKES_STEP;
    nanos length = steps > TAKES_STEP ? steps : 0, had = p->overrides.takes;
    if (length == had || (length < had && length > had / 4 * 3))
        return;

    p->overrides.takes = length;
    p->timing_ttl_ms = -1;
    if (p->host->takes)
        p->host->takes(p->host->ctx, length);
}

static void measure(struct postgres *p, const struct pg_request *request, nanos now)
{
    if (!request->measures || request->kind != PG_REQ_VERB)
        return;
    rtt_learn(&p->connection.rtt, request->sent_at, now);
    note_takes(p, rtt_timeout(&p->connection.rtt));
}

static void on_verb_error(struct postgres *p, const struct pg_request *request,
                          const struct pg_reply *reply, nanos now)
{
    struct pg_error error = pg_error_of(p, reply);
    if (error.drop) {
        /* The server rolled the statement back, and the connection cannot be used any more. */
        pg_op_reply(p, request->op,
                    &(struct engine_reply){.kind = REPLY_FAILED,
                                           .asked_at = request->sent_at,
                                           .retry_at = TIME_NEVER,
                                           .status = error.status,
                                           .text = error.text});
        pg_connection_drop(p, error.status, now, "%s", error.text);
        return;
    }
    pg_op_fail(p, request->op, request->sent_at, error.status, error.text);
}

/* Returns true if no standby confirmed the commit: the change is made, but may be lost with this
 * server. */
static bool is_unconfirmed(const struct pg_request *request, const struct pg_reply *reply)
{
    bool relies = request->verb == OP_ACQUIRE || request->verb == OP_EXTEND ||
                  request->verb == OP_CHECK || request->verb == OP_UPGRADE;
    return relies && reply->warned && !reply->sqlstate;
}

static bool is_own_reply(const struct pg_request *request, const struct pg_reply *reply)
{
    char echo[20];
    snprintf(echo, sizeof echo, "%" PRIx64, request->echo);
    return !request->echo || (reply->rows == 1 && strcmp(pg_reply_value(reply, 0, 1), echo) == 0);
}

static void on_verb(struct postgres *p, const struct pg_request *request,
                    const struct pg_reply *reply, nanos now)
{
    struct pg_op *a = request->op;
    a->acquiring -= request->verb == OP_ACQUIRE;
    if (reply->sqlstate) {
        if (request->verb == OP_RELEASE || request->verb == OP_LEAVE)
            /* nothing was released, so the session still has its advisory lock */
            a->key_ups = a->key_given;
        on_verb_error(p, request, reply, now);
        return;
    }

    pg_reply_note_key(p, request, reply);
    if (is_unconfirmed(request, reply)) {
        a->cut |= request->verb == OP_ACQUIRE;
        pg_op_reply(p, a,
                    &(struct engine_reply){.kind = REPLY_UNKNOWN,
                                           .asked_at = request->sent_at,
                                           .retry_at = TIME_NEVER,
                                           .text = "the server gave up waiting for a standby"});
        return;
    }

    if (!is_own_reply(request, reply) || !pg_reply_to_verb(p, request, reply)) {
        a->cut |= request->verb == OP_ACQUIRE;
        pg_op_reply(p, a,
                    &(struct engine_reply){.kind = REPLY_UNKNOWN,
                                           .asked_at = request->sent_at,
                                           .retry_at = TIME_NEVER,
                                           .text = "a reply that makes no sense"});
        pg_connection_drop(p, HF_UNAVAILABLE, now, "a reply that makes no sense");
    }
}

static void on_reply(struct postgres *p, const struct pg_reply *reply, nanos now)
{
    struct pg_connection *connection = &p->connection;
    assert(connection->count);
    struct pg_request request = connection->queue[connection->first];

    connection->first = (connection->first + 1) & (connection->room - 1);
    connection->count--;
    if (request.op)
        request.op->in_flight--;
    measure(p, &request, now);

    switch (request.kind) {
    case PG_REQ_VERB:
        on_verb(p, &request, reply, now);
        break;
    case PG_REQ_ADMIN:
        if (!pg_admin_reply(p, &request, reply, now))
            pg_connection_drop(p, HF_UNAVAILABLE, now, "a list that makes no sense");
        break;
    case PG_REQ_UNCLAIMED:
        connection->unclaimed--;
        break;
    case PG_REQ_HELLO:
        if (!reply->sqlstate)
            on_hello(p, reply, now);
        break;
    case PG_REQ_SETUP:
        (reply->sqlstate ? on_setup_error : on_setup)(p, reply, now);
        break;
    case PG_REQ_INSTALL:
        on_installed(p, reply, now);
        break;
    case PG_REQ_PREPARE:
        if (reply->sqlstate) {
            struct pg_error error = pg_error_of(p, reply);
            pg_connection_drop(p, error.status, now, "%s", error.text);
        }
        break;
    }

    if (connection->state == PG_GREETING && connection->count == 0)
        finish_greeting(p, now);
}

static void read_session(struct postgres *p, nanos now)
{
    struct pg_session *session = p->connection.session;
    struct pg_reply reply;
    char payload[200];
    bool works = pg_session_process(session);

    while (p->connection.session == session && pg_session_next(session, &reply))
        on_reply(p, &reply, now);
    while (p->connection.session == session &&
           pg_session_notification(session, payload, sizeof payload))
        pg_reply_notified(p, payload, now);

    if (p->connection.session != session)
        return;

    if (works)
        adopt(p);
    else
        drop_failed(p, now);
}

void pg_connection_ready(struct postgres *p, nanos now)
{
    assert(p->connection.state == PG_DOWN || p->connection.session);
    struct pg_connection *connection = &p->connection;

    connection->received_at = now;
    if (connection->state == PG_DOWN)
        return;
    if (connection->state != PG_DIALLING) {
        read_session(p, now);
        return;
    }

    switch (pg_session_connect(connection->session)) {
    case PG_FAILED:
        drop_failed(p, now);
        break;
    case PG_CONNECTED:
        begin_greeting(p, now);
        break;
    case PG_CONNECTING:
        adopt(p);
        break;
    }
}

/* ---- Time ---- */

static nanos later(nanos a, nanos b)
{
    return a > b ? a : b;
}

/* Returns the request whose time limit ends first. */
static const struct pg_request *most_impatient(const struct pg_connection *connection)
{
    const struct pg_request *least = NULL;
    for (uint32_t i = 0; i < connection->count; i++) {
        const struct pg_request *request =
            &connection->queue[(connection->first + i) & (connection->room - 1)];
        if (!least || request->sent_at + request->patience < least->sent_at + least->patience)
            least = request;
        if (request->kind == PG_REQ_VERB)
            break; /* the requests behind it were sent later */
    }

    return least;
}

static nanos tick_up(struct postgres *p, nanos now)
{
    assert(p->connection.state == PG_UP);
    struct pg_connection *connection = &p->connection;
    const struct pg_request *first = most_impatient(connection);
    if (!first) {
        sweep(p, now);
        return TIME_NEVER;
    }

    nanos due = later(connection->received_at, first->sent_at) + first->patience;
    if (now < due)
        return due;

    pg_connection_drop(p, HF_UNAVAILABLE, now, "no answer for %lld ms%s",
                       (long long)(first->patience / NANOS_OF_MS(1)),
                       first->kind == PG_REQ_VERB ? " (op_timeout, at most a fifth of the ttl)"
                                                  : "");
    return TIME_NEVER;
}

nanos pg_connection_tick(struct postgres *p, nanos now)
{
    struct pg_connection *connection = &p->connection;
    if (connection->state == PG_UP)
        return tick_up(p, now);
    if (connection->state == PG_DOWN) {
        if (!p->queued) /* if no op is queued, the next submit dials */
            return TIME_NEVER;
        if (now < connection->redial.dial_at)
            return connection->redial.dial_at;
        pg_connection_need(p, now);
        return now + p->connect_timeout;
    }

    bool installs =
        connection->count && connection->queue[connection->first].kind == PG_REQ_INSTALL;
    nanos due = connection->since + (installs ? INSTALL_PATIENCE : p->connect_timeout);
    if (now < due)
        return due;

    pg_connection_drop(p, HF_UNAVAILABLE, now, "no connection within %lld ms",
                       (long long)(p->connect_timeout / NANOS_OF_MS(1)));
    return TIME_NEVER;
}
