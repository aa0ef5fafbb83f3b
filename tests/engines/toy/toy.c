/* toy.c - the engine that docs/adding-an-engine.md builds: exclusive locks on a server that speaks
 * lines of text (toy_server.py). There is no queue, so a waiter asks again. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "engines/kit/endpoints.h"
#include "engines/kit/pipeline.h"
#include "engines/kit/redial.h"

#include "base/error.h"
#include "core/timing.h"
#include "sys/process.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

extern const struct engine_type toy_engine;

enum { CONNECTION, LINE_ROOM = 4096 };

struct request {
    struct flight flight;
    struct engine_op *op; /* NULL: forgotten */
    enum op_verb verb;
    nanos ttl;
};

struct toy {
    const struct wire_engine_host *host;
    struct endpoints servers;
    struct timing_overrides overrides;
    nanos connect_timeout;
    enum { DOWN, DIALLING, UP } state;
    nanos since;  /* DIALLING, UP: when that began */
    uint32_t ups; /* how often it came up */
    struct redial redial;
    struct pipeline queue; /* of struct request: replies come in this order */
    char line[LINE_ROOM];  /* the beginning of a reply */
    size_t len;
    char why[300]; /* DOWN: the reason */
};

/* ---- Replies ---- */

static bool is_in_flight(const struct toy *t, const struct engine_op *op)
{
    for (uint32_t i = 0; i < t->queue.count; i++)
        if (((const struct request *)pipeline_at(&t->queue, i))->op == op)
            return true;
    return false;
}

static void reply(struct toy *t, struct engine_op *op, const struct engine_reply *reply)
{
    if (!op)
        return;
    op->connections = is_in_flight(t, op) ? 1u << CONNECTION : 0;
    t->host->on_reply(t->host->ctx, op, reply);
}

/* HF_OK: the outcome is unknown. */
static void fail(struct toy *t, struct engine_op *op, nanos asked_at, hf_status status,
                 const char *text)
{
    struct engine_reply failed = {REPLY_UNKNOWN, asked_at, .status = status, .text = text};
    failed.kind = status ? REPLY_FAILED : REPLY_UNKNOWN;
    failed.retry_at = status && t->state == DOWN ? t->redial.dial_at : TIME_NEVER;
    reply(t, op, &failed);
}

/* ---- The connection ---- */

/* If the connection was never up, no request has left: nothing happened. */
static void drop(struct toy *t, const char *why, hf_status status, nanos now)
{
    bool was_up = t->state == UP;
    struct request request;
    snprintf(t->why, sizeof t->why, "%s", why);
    t->host->hang_up(t->host->ctx, CONNECTION);
    t->state = DOWN;
    t->len = 0;
    redial_lost(&t->redial, redial_after(was_up, t->since, now), now, &toy_engine.limits,
                &t->overrides, t->host->random(t->host->ctx));

    while (t->queue.count) {
        pipeline_take(&t->queue, &request, sizeof request);
        fail(t, request.op, request.flight.sent_at, was_up ? HF_OK : status, t->why);
    }
}

/* Returns false if the connection is down and may not be dialled yet. */
static bool need_connection(struct toy *t, nanos now)
{
    if (t->state != DOWN || now < t->redial.dial_at)
        return t->state != DOWN;
    t->state = DIALLING;
    t->since = now;
    t->host->dial(t->host->ctx, CONNECTION, endpoints_turn(&t->servers, t->redial.failures));
    return true;
}

static void connection_up(void *self, unsigned connection, nanos now)
{
    struct toy *t = self;
    assert(connection == CONNECTION && t->state == DIALLING);
    t->state = UP;
    t->since = t->queue.received_at = now;
    if (t->ups++)
        t->host->recheck(t->host->ctx); /* a server that restarted has forgotten all holds */
}

static void connection_down(void *self, unsigned connection, hf_status status, const char *why,
                            nanos now)
{
    assert(connection == CONNECTION);
    drop(self, why, status, now);
}

/* ---- Requests ---- */

static const char *hex(char *out, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sprintf(out + 2 * i, "%02x", (unsigned)((const uint8_t *)bytes)[i]);
    return out;
}

/* Returns the length of the line; 0: the server has no such request. */
static int write_line(const struct engine_op *op, char line[LINE_ROOM])
{
    char name[2 * HF_NAME_MAX + 1], id[33];
    hex(name, op->name, op->name_len);
    hex(id, op->attempt.b, sizeof op->attempt.b);
    switch (op->verb) {
    case OP_ACQUIRE:
        return sprintf(line, "acquire %s %s %lld %lld\n", name, id, (long long)op->ttl_ms,
                       (long long)process_id());
    case OP_EXTEND:
        return sprintf(line, "extend %s %s %lld\n", name, id, (long long)op->ttl_ms);
    case OP_CHECK:
        return sprintf(line, "check %s %s\n", name, id);
    case OP_LEAVE:
    case OP_RELEASE:
        return sprintf(line, "release %s %s %d\n", name, id, op->may_be_in_flight);
    case OP_ADMIN:
        if (admin_op_of(op)->verb == ADMIN_LIST && admin_op_of(op)->scope == LIST_ONE)
            return sprintf(line, "show %s\n", name);
        return 0;
    default:
        return 0;
    }
}

static void submit(void *self, struct engine_op *op, nanos now)
{
    struct toy *t = self;
    char line[LINE_ROOM];
    int len = write_line(op, line);
    struct timing timing; /* how long the server may take follows from the ttl */
    timing_fill(&timing, op->ttl_ms ? op->ttl_ms : 30000, &toy_engine.limits, &t->overrides);
    struct request request = {{now, timing.op_timeout, 0}, op, op->verb, NANOS_OF_MS(op->ttl_ms)};

    if (!len) {
        fail(t, op, now, HF_UNSUPPORTED, "toy: has no such request");
    } else if (!need_connection(t, now)) {
        fail(t, op, now, HF_UNAVAILABLE, t->why);
    } else if (!pipeline_add(&t->queue, &request, sizeof request)) {
        fail(t, op, now, HF_NO_MEMORY, "no memory for a request");
    } else {
        op->connections = 1u << CONNECTION;
        if (!t->host->send(t->host->ctx, CONNECTION, line, (size_t)len))
            drop(t, "cannot send on this connection", HF_UNAVAILABLE, now);
    }
}

static void forget(void *self, struct engine_op *op)
{
    struct toy *t = self;
    for (uint32_t i = 0; i < t->queue.count; i++) {
        struct request *request = pipeline_at(&t->queue, i);
        if (request->op == op)
            request->op = NULL;
    }
    op->connections = 0;
}

/* Replies to forgotten ops are due. */
static connection_set connections(void *self)
{
    return is_in_flight(self, NULL) ? 1u << CONNECTION : 0;
}

/* ---- Reading ---- */

static void show_holder(struct toy *t, struct engine_op *op, const char *line)
{
    char name[HF_NAME_MAX + 1];
    struct hf_row row = {
        .size = sizeof row, .role = HF_HOLDER, .name = name, .host = "", .label = ""};
    row.capacity = row.used = row.units = row.depth = 1;
    snprintf(name, sizeof name, "%.*s", (int)op->name_len, op->name);
    if (sscanf(line, "holder %lu %ld %ld %ld %ld", &row.token, &row.left_ms, &row.since_ms,
               &row.ttl_ms, &row.pid) == 5)
        t->host->row(t->host->ctx, op, &row);
}

/* Returns false if the line is no reply. */
static bool decode(const struct request *request, const char *line, nanos now,
                   struct engine_reply *to)
{
    long left = 0;
    *to = (struct engine_reply){.asked_at = request->flight.sent_at, .retry_at = TIME_NEVER};
    if (sscanf(line, "granted %lu", &to->token) == 1)
        to->kind = REPLY_GRANTED, to->good = request->ttl;
    else if (sscanf(line, "extended %lu", &to->token) == 1)
        to->kind = REPLY_EXTENDED, to->good = request->ttl;
    else if (sscanf(line, "left %lu %ld", &to->token, &left) == 2)
        to->kind = REPLY_EXTENDED, to->good = NANOS_OF_MS(left);
    else if (sscanf(line, "busy %ld", &left) == 1)
        to->kind = REPLY_BUSY, to->retry_at = now + NANOS_OF_MS(left);
    else if (strcmp(line, "done") == 0)
        to->kind = REPLY_RELEASED;
    else if (strcmp(line, "none") == 0)
        to->kind = request->verb == OP_LEAVE ? REPLY_RELEASED : REPLY_NOT_HELD;
    else
        return false;
    return true;
}

static void on_line(struct toy *t, const char *line, nanos now)
{
    struct request request;
    struct engine_reply to;
    const struct request *first = t->queue.count ? pipeline_at(&t->queue, 0) : NULL;
    if (first && strncmp(line, "holder ", 7) == 0) {
        if (first->op)
            show_holder(t, first->op, line);
    } else if (!first || !decode(first, line, now, &to)) {
        drop(t, "toy: a line that is no reply", HF_UNAVAILABLE, now); /* the next would lie, too */
    } else {
        pipeline_take(&t->queue, &request, sizeof request);
        t->queue.answered_at = now;
        reply(t, request.op, &to);
    }
}

static void connection_bytes(void *self, unsigned connection, const char *bytes, size_t len,
                             nanos now)
{
    struct toy *t = self;
    assert(connection == CONNECTION);
    t->queue.received_at = now;
    for (size_t i = 0; i < len && t->state == UP; i++) {
        t->line[t->len] = bytes[i] == '\n' ? '\0' : bytes[i];
        if (bytes[i] == '\n')
            t->len = 0, on_line(t, t->line, now);
        else if (++t->len == sizeof t->line)
            drop(t, "toy: a line that is too long", HF_UNAVAILABLE, now);
    }
}

/* ---- Time, opening and closing ---- */

static nanos tick(void *self, nanos now)
{
    struct toy *t = self;
    nanos due = TIME_NEVER;
    if (t->state == DIALLING)
        due = t->since + t->connect_timeout;
    else if (t->queue.count)
        due = pipeline_deadline(&t->queue, 0, t->connect_timeout);
    if (now < due)
        return due;
    drop(t, "toy: no reply in time", HF_UNAVAILABLE, now);
    return TIME_NEVER;
}

static void close_toy(void *self)
{
    struct toy *t = self;
    t->host->hang_up(t->host->ctx, CONNECTION);
    endpoints_free(&t->servers);
    pipeline_free(&t->queue);
    free(t);
}

static hf_status open_toy(void **self, const struct url *url, const struct settings *settings,
                          const struct wire_engine_host *host)
{
    static const struct endpoint_form form = {
        .example = "host:7700", .default_host = "127.0.0.1", .default_port = "7700", .most = 1};
    struct toy *t = *self = calloc(1, sizeof *t);
    if (!t)
        return error_set(HF_NO_MEMORY, "toy: no memory for a client");
    t->host = host;
    t->queue.size = sizeof(struct request);
    t->overrides = timing_overrides_of(settings);
    t->connect_timeout = NANOS_OF_MS(settings->value[SETTING_CONNECT_TIMEOUT]);
    hf_status status = endpoints_read(&t->servers, url, settings, &form);
    if (status != HF_OK)
        free(t), *self = NULL;
    return status;
}

static const struct wire_engine_type toy_wire_engine = {.open = open_toy,
                                                        .submit = submit,
                                                        .forget = forget,
                                                        .connection_up = connection_up,
                                                        .connection_bytes = connection_bytes,
                                                        .connection_down = connection_down,
                                                        .connections = connections,
                                                        .tick = tick,
                                                        .close = close_toy};

static hf_status open_engine(void **self, const struct url *url, const struct settings *settings,
                             const struct engine_host *host)
{
    return io_open(self, url, settings, host, &toy_wire_engine);
}

static const struct setting_rows *const toy_settings[] = {&wire_settings, NULL};

const struct engine_type toy_engine = {
    .name = "toy",
    .schemes = (const char *const[]){"toy", NULL},
    .limits = {.ttl_min_ms = 100,
               .ttl_max_ms = 24 * 3600 * 1000,
               .drift_ppm = 10000,
               .drift_ms = 2,
               .kinds = 1u << HF_EXCLUSIVE,
               .kinds_why = "toy: has exclusive locks only",
               .offers = ENGINE_REPLIES_LATER},
    .settings = toy_settings,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
};
