/* postgres_network.h - pg_session.h for the simulator: statements and replies travel as wholes, in
 * order, and statements arrive also when their connection was closed. */
#pragma once
#include "postgres_model.h"

#include "sim/wire_world/wire_links.h"

enum { FRAME = 4000, COLUMNS = 4, WAITING = 64, FD = 1000 /* never polled */ };
#define NEXT "\x1f" /* between the parts of a frame */
#define NO_VALUE "\x1e"

/* ---- The server's side ---- */

static void send_frame(unsigned link, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void send_frame(unsigned link, const char *format, ...)
{
    char text[FRAME];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    note("server to connection %u: %s", link, text);
    answer(link, text, strlen(text) + 1);
}

static void notify(const struct model_waiter *waiter, int64_t token, int64_t till, int64_t now)
{
    for (unsigned i = 0; i < w.links && waiter->channel[0]; i++)
        if (!served[i].is_over && strcmp(served[i].channel, waiter->channel) == 0)
            send_frame(i, "N%s %ld %ld %ld", waiter->id, token, till, now);
}

/* A transaction is over. */
static void commit(bool is_relied_on, bool is_confirmed)
{
    db.state[++db.written % STATES] = db.rows;
    if (is_relied_on)
        db.durable = db.written;
    if (is_relied_on && is_confirmed)
        db.confirmed = db.written;
}

/* What a pooler has left of another client's session goes out first. */
static void send_leftover(unsigned link)
{
    if (!served[link].leftover[0])
        return;
    sum.mixed++;
    send_frame(link, "%s", served[link].leftover);
    served[link].leftover[0] = 0;
}

static void serve_verb(const struct statement *s, bool (*verb)(const struct statement *, char *))
{
    char numbers[NUMBERS_TEXT], echo[24] = "";
    if (w.now < db.blocked_until) {
        sum.blocked++;
        send_frame(s->link, "E55P03" NEXT "canceling statement due to lock timeout");
        return;
    }
    bool is_relied_on = verb(s, numbers) && !served[s->link].commits_lazily;
    bool warns = is_relied_on && db.is_alone && db.loss == REPLICATES;
    commit(is_relied_on, !warns);
    sum.unconfirmed += warns;
    const char *last = s->name ? NULL : strrchr(s->sql, ',');
    if (last && sscanf(last, ", '%20[0-9a-f]'", echo) == 1)
        send_leftover(s->link);
    send_frame(s->link, "%c%s" NEXT "%s", warns ? 'W' : 'R', numbers, echo);
}

/* The statements of the greeting, and others without rows that matter. */
static void serve_other(const struct statement *s)
{
    struct served *session = &served[s->link];
    if (strstr(s->sql, "pg_backend_pid"))
        send_frame(s->link, "R%ld" NEXT "150000" NEXT "f" NEXT "on", db.pids + db.pooled);
    else if (strstr(s->sql, ".setup"))
        send_frame(s->link, "R%d" NEXT "%c", pg_sql_count, db.loss == FORGETS ? 't' : 'f');
    else
        send_frame(s->link, "R");
    if (strstr(s->sql, "set_config('synchronous_commit'"))
        session->commits_lazily = planted == PLANT_NO_COMMIT;
    sscanf(s->sql, "SELECT pg_advisory_lock(%ld)", &session->key);
    sscanf(s->sql, "LISTEN %47s", session->channel);
}

static void serve(const struct statement *s)
{
    bool (*verb)(const struct statement *, char *) = NULL;
    const char *what = s->name ? s->name : s->sql;
    if (served[s->link].is_over)
        return;
    if (strstr(what, "acquire"))
        verb = acquire;
    else if (strstr(what, "release"))
        verb = release;
    else if (strstr(what, "extend"))
        verb = extend;
    else if (strstr(what, "convert"))
        verb = convert_hold;
    if (verb && s->count)
        serve_verb(s, verb);
    else
        serve_other(s);
}

static void servers_receive(const struct occurrence *o)
{
    struct statement s = {.link = o->who};
    char *at = o->bytes;
    note("connection %u to server: %s", o->who, at);
    const char *name = strsep(&at, NEXT);
    s.sql = strsep(&at, NEXT);
    s.name = *name ? name : NULL;
    for (char *value; (value = strsep(&at, NEXT));)
        s.value[s.count++] = strcmp(value, NO_VALUE) == 0 ? NULL : value;
    serve(&s);
}

/* ---- The client's side ---- */

struct pg_session {
    struct client *client;
    enum pg_progress progress;
    int64_t pid;
    bool is_broken;
    struct {
        char text[FRAME];
        const char *column[COLUMNS];
    } frame[WAITING];
    unsigned first, count; /* of frames that the engine has not taken */
    unsigned unanswered;   /* number of statements; as in libpq, no more replies are passed on */
};

static struct client *running; /* whose engine runs */
static struct pg_session *sessions[CLIENTS];

struct pg_session *__wrap_pg_session_open(const struct pg_keywords *keywords);
struct pg_session *__wrap_pg_session_open(const struct pg_keywords *keywords)
{
    struct pg_session *s = calloc(1, sizeof *s);
    (void)keywords;
    if (!s)
        abort();
    s->client = running;
    s->pid = db.pids;
    sessions[running - w.client] = s;
    dial(running, 0, &(struct endpoint){.host = "s"});
    served[w.links - 1] = (struct served){.commits_lazily = planted == PLANT_NO_COMMIT};
    return s;
}

void __wrap_pg_session_close(struct pg_session *s);
void __wrap_pg_session_close(struct pg_session *s)
{
    if (s && sessions[s->client - w.client] == s)
        sessions[s->client - w.client] = NULL;
    free(s);
}

enum pg_progress __wrap_pg_session_connect(struct pg_session *s);
enum pg_progress __wrap_pg_session_connect(struct pg_session *s)
{
    return s->is_broken ? PG_FAILED : s->progress;
}

int __wrap_pg_session_fd(const struct pg_session *s);
int __wrap_pg_session_fd(const struct pg_session *s)
{
    (void)s;
    return FD;
}

bool __wrap_pg_session_wants_to_write(const struct pg_session *s);
bool __wrap_pg_session_wants_to_write(const struct pg_session *s)
{
    (void)s;
    return false;
}

bool __wrap_pg_session_wants_to_read(const struct pg_session *s);
bool __wrap_pg_session_wants_to_read(const struct pg_session *s)
{
    (void)s;
    return true;
}

const char *__wrap_pg_session_error(const struct pg_session *s);
const char *__wrap_pg_session_error(const struct pg_session *s)
{
    return s->is_broken ? "the server closed the connection" : "";
}

int __wrap_pg_session_pid(const struct pg_session *s);
int __wrap_pg_session_pid(const struct pg_session *s)
{
    return (int)s->pid;
}

static bool send_statement(struct pg_session *s, const char *name, const char *sql, int count,
                           const char *const *values)
{
    s->unanswered++;
    char text[FRAME];
    int len = snprintf(text, sizeof text, "%s" NEXT "%s", name, sql);
    for (int i = 0; i < count; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, NEXT "%s",
                        values[i] ? values[i] : NO_VALUE);
    return !s->is_broken && send_bytes(s->client, 0, text, (size_t)len + 1);
}

bool __wrap_pg_session_prepare(struct pg_session *s, const char *name, const char *sql);
bool __wrap_pg_session_prepare(struct pg_session *s, const char *name, const char *sql)
{
    return send_statement(s, name, sql, 0, NULL);
}

/* Planted bugs in what the engine sends. */
static void spoil_values(const char *what, const char **values)
{
    bool acquires = strstr(what, "acquire"), releases = strstr(what, "release");
    bool is_repeated = acquires && values[ARG_AGAIN][0] == 't';
    bool is_plain = acquires && values[ARG_KIND][0] == 'e' && values[ARG_QUEUE][0] == 't';
    if (planted == PLANT_NO_TOMBSTONE && releases)
        values[RELEASE_TOMBSTONE] = "0";
    if (planted == PLANT_GUESS_AGAIN && is_repeated && is_plain)
        values[ARG_GUESS] = "2";
    if (planted == PLANT_NO_AGAIN && acquires)
        values[ARG_AGAIN] = "f";
}

bool __wrap_pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                               const char *const *values);
bool __wrap_pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                               const char *const *values)
{
    const char *spoilt[24];
    for (int i = 0; i < count; i++)
        spoilt[i] = values[i];
    if (count)
        spoil_values(name ? name : sql, spoilt);
    return send_statement(s, name ? name : "", sql ? sql : "", count, spoilt);
}

bool __wrap_pg_session_process(struct pg_session *s);
bool __wrap_pg_session_process(struct pg_session *s)
{
    return !s->is_broken;
}

/* Takes the first frame, if it is a notification or not, as asked. */
static const char *take_frame(struct pg_session *s, bool notification, const char **columns)
{
    static char text[FRAME];
    unsigned at = s->first % WAITING;
    if (!s->count || (s->frame[at].text[0] == 'N') != notification)
        return NULL;
    memcpy(text, s->frame[at].text, sizeof text);
    s->first++;
    s->count--;
    char *rest = text + 1;
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = strsep(&rest, NEXT);
    return text;
}

static const char *columns_now[COLUMNS];

bool __wrap_pg_session_next(struct pg_session *s, struct pg_reply *reply);
bool __wrap_pg_session_next(struct pg_session *s, struct pg_reply *reply)
{
    const char *text = s->unanswered ? take_frame(s, false, columns_now) : NULL;
    if (!text)
        return false;
    s->unanswered--;
    *reply = (struct pg_reply){.rows = text[0] != 'E' && columns_now[0][0],
                               .warned = text[0] == 'W' && planted != PLANT_TRUST_WARNING,
                               .text = ""};
    if (text[0] == 'E') {
        reply->sqlstate = columns_now[0];
        reply->text = columns_now[1];
    }
    return true;
}

bool __wrap_pg_session_notification(struct pg_session *s, char *payload, size_t size);
bool __wrap_pg_session_notification(struct pg_session *s, char *payload, size_t size)
{
    const char *columns[COLUMNS];
    if (!take_frame(s, true, columns))
        return false;
    snprintf(payload, size, "%s", columns[0]);
    return true;
}

const char *__wrap_pg_reply_value(const struct pg_reply *reply, int row, int column);
const char *__wrap_pg_reply_value(const struct pg_reply *reply, int row, int column)
{
    (void)reply, (void)row;
    return columns_now[column] ? columns_now[column] : "";
}

/* The linker sends the engine's calls of these here, those from other files. */

bool __real_pg_op_gives_back(const struct postgres *p, const struct pg_op *a);
bool __wrap_pg_op_gives_back(const struct postgres *p, const struct pg_op *a);
bool __wrap_pg_op_gives_back(const struct postgres *p, const struct pg_op *a)
{
    return planted != PLANT_TRUST_LEFT && __real_pg_op_gives_back(p, a);
}

/* ---- The engine, called for the client that it belongs to ---- */

static void be(const void *engine)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (w.client[i].engine == engine)
            running = &w.client[i];
}

static void ignore_adoption(void *ctx, unsigned connection, int fd, unsigned interest)
{
    (void)ctx, (void)connection, (void)fd, (void)interest;
}

static hf_status world_open(void **self, const struct url *url, const struct settings *settings,
                            const struct wire_engine_host *host)
{
    struct client *c = host->ctx;
    c->host.adopt = ignore_adoption;
    return postgres_wire_engine.open(self, url, settings, host);
}

static void world_submit(void *self, struct engine_op *op, nanos now)
{
    be(self);
    postgres_wire_engine.submit(self, op, now);
}

static void world_forget(void *self, struct engine_op *op)
{
    be(self);
    postgres_wire_engine.forget(self, op);
}

static void world_up(void *self, unsigned connection, nanos now)
{
    be(self);
    sessions[running - w.client]->progress = PG_CONNECTED;
    postgres_wire_engine.connection_ready(self, connection, WIRE_READABLE, now);
}

static void world_bytes(void *self, unsigned connection, const char *bytes, size_t len, nanos now)
{
    be(self);
    struct pg_session *s = sessions[running - w.client];
    struct postgres *p = self;
    bool was_memory = p->memory;
    if (s->count == WAITING || len > FRAME)
        abort();
    memcpy(s->frame[(s->first + s->count++) % WAITING].text, bytes, len);
    p->memory |= planted == PLANT_TRUST_NOTIFY && bytes[0] == 'N';
    postgres_wire_engine.connection_ready(self, connection, WIRE_READABLE, now);
    p->memory = was_memory;
}

static void world_down(void *self, unsigned connection, hf_status status, const char *why,
                       nanos now)
{
    be(self);
    (void)status, (void)why;
    sessions[running - w.client]->is_broken = true;
    postgres_wire_engine.connection_ready(self, connection, WIRE_READABLE, now);
}

static nanos world_tick(void *self, nanos now)
{
    be(self);
    return postgres_wire_engine.tick(self, now);
}

/* A client that dies forgot its ops before. */
static void world_close(void *self)
{
    struct postgres *p = self;
    be(self);
    for (struct pg_op *a = p->ops; a; a = a->next)
        a->op->engine_state = a;
    postgres_wire_engine.close(self);
}

static const struct wire_engine_type world_engine = {
    .open = world_open,
    .submit = world_submit,
    .forget = world_forget,
    .connection_up = world_up,
    .connection_bytes = world_bytes,
    .connection_down = world_down,
    .tick = world_tick,
    .close = world_close,
};
