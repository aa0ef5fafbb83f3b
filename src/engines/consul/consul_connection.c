/* consul_connection.c - the connections, and the calls in flight on them. Replies come in the order
 * of the calls. */
#include "consul.h"
#include "json_library.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Calls ---- */

/* Removes the first call from its connection and returns it. */
static struct consul_call *take_call(struct consul_connection *connection)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct consul_call *call = connection->calls;
    connection->calls = call->next;
    connection->in_flight--;
    connection->unclaimed -= call->unclaimed;
    return call;
}

void consul_call_claim_none(struct consul_call *call)
{
    call->connection->unclaimed += !call->unclaimed;
    call->unclaimed = true;
}

void consul_call_abandon(struct consul_call *call)
{
    call->entry = NULL;
    call->admin = NULL;
    consul_call_claim_none(call);
}

static bool send_request(struct consul_connection *connection)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct consul *c = connection->consul;
    const struct wire_engine_host *host = c->host;
    text_print(&c->head, " HTTP/1.1\r\nHost: %.300s\r\n", c->where);

    if (c->endpoints.password[0]) {
        text_print(&c->head, "X-Consul-Token: ");
        text_bytes(&c->head, c->endpoints.password, strlen(c->endpoints.password));
        text_print(&c->head, "\r\n");
    }

    text_print(&c->head, "Content-Length: %zu\r\n\r\n", c->body.len);
    text_bytes(&c->head, c->body.at, c->body.len);
    bool written = !c->head.failed && !c->body.failed;
    return written && host->send(host->ctx, connection->number, c->head.at, c->head.len);
}

struct consul_call *consul_call(struct consul_connection *connection, enum call_kind kind,
                                nanos now)
{
    assert(connection->state == CONNECTION_UP);
    struct consul_call *call = calloc(1, sizeof *call), **at = &connection->calls;
    if (!call || !send_request(connection)) {
        free(call);
        connection->is_broken = true; /* No memory: the reply cannot be kept. */
        return NULL;
    }

    call->connection = connection;
    call->kind = kind;
    call->sent_at = now;
    call->patience = connection->consul->call_timeout;
    while (*at)
        at = &(*at)->next;
    *at = call;
    connection->in_flight++;
    return call;
}

/* Sends a transaction. A transaction that only reads needs "?consistent", or a deposed leader could
 * answer it. */
struct consul_call *consul_call_txn(struct consul *c, enum call_kind kind, bool reads, nanos now)
{
    text_clear(&c->head);
    text_print(&c->head, "PUT /v1/txn%s", reads ? "?consistent" : "");
    return consul_call(consul_commands(c), kind, now);
}

struct consul_call *consul_call_tree(struct consul *c, enum call_kind kind,
                                     const struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "GET /v1/kv/");
    text_path(&c->head, (struct slice){name->base, name->base_len});
    text_print(&c->head, kind == CALL_READ_GONE ? "?recurse&consistent" : "?recurse");
    if (kind == CALL_READ_LATE)
        text_print(&c->head, "&wait=%dms&index=%" PRIu64, CONSUL_COMES_BACK_MS, name->index);
    struct consul_call *call = consul_call(consul_commands(c), kind, now);
    if (call) /* A long queue takes time to read, so the call gets more time. */
        call->patience += (nanos)name->count * CONSUL_PER_ROW;
    return call;
}

/* ---- Up and down ---- */

static void set_why(struct consul_connection *connection, hf_status status, const char *why)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    const struct consul *c = connection->consul;
    connection->status = status;

    if (strstr(why, c->where))
        snprintf(connection->why, sizeof connection->why, "%.300s", why);
    else
        snprintf(connection->why, sizeof connection->why, "%.100s: %.200s", c->where, why);
}

/* The call was cut: lets its session or name send another one. */
static void reset_owner(const struct consul_call *call)
{
    assert(call->connection);
    if (call->session && call->kind == CALL_RENEW_SESSION)
        call->session->renewal = NULL;
    if (call->session && call->kind == CALL_CREATE_SESSION)
        call->session->base.state = SESSION_NONE;
    if (call->session && call->kind == CALL_RAISE_EPOCH)
        call->session->raising = false;
    if (call->name && call->kind == CALL_READ_VIEW)
        call->name->reading = NULL;
}

static void cut_calls(struct consul_connection *connection, nanos now)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct consul *c = connection->consul;
    while (connection->calls) {
        struct consul_call *call = take_call(connection);
        reset_owner(call);
        if (call->entry)
            consul_entry_on_cut(c, call, false, connection->status, connection->why, now);
        if (call->admin)
            consul_admin_on_cut(c, call, connection->why);
        free(call);
    }
}

void consul_connection_close(struct consul_connection *connection)
{
    struct consul *c = connection->consul;
    while (connection->calls)
        free(take_call(connection));
    if (connection->state != CONNECTION_DOWN)
        c->host->hang_up(c->host->ctx, connection->number);
    http_response_free(&connection->response);
    connection->state = CONNECTION_DOWN;
}

static void go_down(struct consul_connection *connection, hf_status status, const char *why,
                    nanos now)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct consul *c = connection->consul;
    set_why(connection, status, why);
    http_response_next(&connection->response);
    connection->state = CONNECTION_DOWN;
    connection->is_broken = false;
    redial_next_server(&connection->redial, c->endpoints.count, now, &c->limits, &c->overrides,
                       c->host->random(c->host->ctx));
    cut_calls(connection, now);
    if (connection->number != CONNECTION_COMMANDS) {
        consul_view_query_lost(c, connection);
        return;
    }

    /* The agent may come back without its data, and then its indexes begin anew: new keys under an
     * old id would seem older than born_after, and be ignored. */
    for (struct consul_name *name = c->names; name; name = name->next)
        name->free_ids = 0;

    bool dials_again = status == HF_UNAVAILABLE && connection->redial.dial_at <= now;
    if (!dials_again) {
        consul_entries_fail_unsent(c, connection);
        consul_admins_fail(c, connection);
    }
}

void consul_connection_drop(struct consul_connection *connection, hf_status status, const char *why,
                            nanos now)
{
    if (connection->state == CONNECTION_DOWN)
        return;
    connection->consul->host->hang_up(connection->consul->host->ctx, connection->number);
    go_down(connection, status, why, now);
}

void consul_connection_down(struct consul_connection *connection, hf_status status, const char *why,
                            nanos now)
{
    if (connection->state == CONNECTION_DOWN)
        return;

    /* An agent accepts a connection beyond its limit, and closes it at once. */
    bool is_mute = connection->state == CONNECTION_UP && connection->read_at < connection->since;
    char text[sizeof connection->why];
    snprintf(text, sizeof text, "%.150s%s", why,
             is_mute ? ", and sent nothing: has it http_max_conns_per_client connections of this "
                       "address already?"
                     : "");
    go_down(connection, status, text, now);
}

bool consul_connection_need(struct consul_connection *connection, nanos now)
{
    struct consul *c = connection->consul;
    if (connection->state == CONNECTION_DOWN && now >= connection->redial.dial_at) {
        connection->state = CONNECTION_DIALLED;
        connection->since = now;
        if (connection->number == CONNECTION_COMMANDS) {
            c->endpoint = endpoints_turn(&c->endpoints, connection->redial.failures);
            endpoint_print(c->endpoint, c->where);
        }
        /* Queries go to the same agent as commands, so the endpoint is known. */
        assert(c->endpoint);
        c->host->dial(c->host->ctx, connection->number, c->endpoint);
    }

    return connection->state == CONNECTION_UP;
}

void consul_connection_up(struct consul_connection *connection, nanos now)
{
    struct consul *c = connection->consul;
    assert(connection->state == CONNECTION_DIALLED);
    connection->state = CONNECTION_UP;
    http_response_next(&connection->response);
    if (connection->number != CONNECTION_COMMANDS) {
        if (connection->name)
            consul_view_need(c, connection->name, now);
        return;
    }

    /* The agent may have restarted without its data: read the queues again. */
    if (connection->was_up) {
        consul_entries_notify_waiters(c);
        c->host->recheck(c->host->ctx);
    }

    connection->was_up = true;
    consul_entries_advance(c, now);
    consul_admins_advance(c, now);
}

/* ---- Replies ---- */

void consul_connection_field(void *ctx, const char *name, const char *value)
{
    struct consul_connection *connection = ctx;
    if (strcasecmp(name, "X-Consul-Index") == 0)
        connection->index = strtoull(value, NULL, 10);
}

/* Returns the status for a refusal; HF_OK: the reply can be used. *not_processed: true if
 * nothing was carried out. */
static hf_status status_of(const struct consul_reply *reply, bool *not_processed)
{
    bool no_leader =
        strstr(reply->text, "No cluster leader") || strstr(reply->text, "is not the leader");
    *not_processed = true;

    switch (reply->status) {
    case 200:
    case 404:
        return HF_OK;
    /* status of a transaction whose check failed, or for which a right is missing */
    case 409:
        return strstr(reply->text, "Permission denied") ? HF_DENIED : HF_OK;
    case 401:
    case 403:
        return HF_DENIED;
    case 413:
        return HF_INVALID;
    case 429:
        return HF_UNAVAILABLE;
    default:
        break;
    }

    if (reply->status == 500 && strstr(reply->text, "Invalid Session TTL"))
        return HF_OK;
    if (reply->status >= 500) {
        *not_processed = no_leader;
        return HF_UNAVAILABLE;
    }
    return HF_CONFIG;
}

/* A call that belongs to no single op was refused: fails all entries that need its effect. */
static void refuse_internal(struct consul_connection *connection, const struct consul_call *call,
                            hf_status status)
{
    assert(call->connection);
    reset_owner(call);
    if (call->kind == CALL_DESTROY_SESSION)
        return;

    if (status == HF_UNAVAILABLE || call->kind == CALL_QUERY)
        /* This agent has no leader. Another agent may have one: redial. */
        connection->is_broken = true;
    else
        consul_entries_fail_unsent(connection->consul, connection);
}

static void refuse(struct consul_connection *connection, struct consul_call *call, hf_status status,
                   bool not_processed, const struct consul_reply *reply, nanos now)
{
    assert(call->connection);
    struct consul *c = connection->consul;
    char text[200];
    snprintf(text, sizeof text, "HTTP status %u: %.160s", reply->status, reply->text);
    text[strcspn(text, "\r\n")] = '\0';
    set_why(connection, status, text);

    if (call->admin)
        consul_admin_on_reply(c, call, reply, now);
    else if (call->entry)
        consul_entry_on_cut(c, call, not_processed, status, connection->why, now);
    else
        refuse_internal(connection, call, status);

    if (status == HF_UNAVAILABLE && c->endpoints.count > 1)
        connection->is_broken = true;
}

static void dispatch(struct consul *c, struct consul_call *call, const struct consul_reply *reply,
                     nanos now)
{
    assert(call->connection);
    switch (call->kind) {
    case CALL_CREATE_SESSION:
    case CALL_RENEW_SESSION:
    case CALL_RAISE_EPOCH:
        consul_session_on_reply(c, call, reply, now);
        break;
    case CALL_DESTROY_SESSION:
        break;
    case CALL_READ_VIEW:
        call->name->reading = NULL;
        consul_view_on_read(c, call->name, reply, now);
        break;
    case CALL_QUERY:
        if (call->connection->name)
            consul_view_on_query(c, call->connection->name, reply, now);
        break;
    default:
        if (call->admin)
            consul_admin_on_reply(c, call, reply, now);
        else if (call->entry)
            consul_entry_on_reply(c, call, reply, now);
    }
}

static bool needs_json(const struct consul_call *call, const struct consul_reply *reply)
{
    return reply->status == 409 || (reply->status == 200 && call->kind != CALL_DESTROY_SESSION);
}

static void on_response(struct consul_connection *connection, nanos now)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct http_response *response = &connection->response;
    struct consul_reply reply = {.status = response->status,
                                 .index = connection->index,
                                 .text = response->body ? response->body : ""};
    struct consul_call *call = take_call(connection);
    bool not_processed;
    hf_status status = status_of(&reply, &not_processed);
    if (status == HF_OK && needs_json(call, &reply))
        reply.json = json_loadb(reply.text, response->body_len, JSON_DECODE_ANY, NULL);
    if (status == HF_OK && needs_json(call, &reply) && !reply.json) {
        status = HF_CONFIG;
        not_processed = reply.status != 200;
    }

    if (status == HF_OK) {
        connection->redial.failures = 0;
        connection->consul->is_known = true;
        if (connection->number == CONNECTION_COMMANDS)
            endpoints_keep(&connection->consul->endpoints, connection->consul->endpoint);
        dispatch(connection->consul, call, &reply, now);
    } else {
        refuse(connection, call, status, not_processed, &reply, now);
    }

    consul_json_free(reply.json);
    free(call);
}

/* ---- Bytes and time ---- */

void consul_connections_mend(struct consul *c, nanos now)
{
    for (unsigned i = 0; i < CONSUL_CONNECTIONS; i++) {
        struct consul_connection *connection = &c->connection[i];
        if (!connection->is_broken || connection->state == CONNECTION_DOWN)
            continue;
        char why[sizeof connection->why];
        bool has_reason = connection->why[0] && connection->status != HF_OK;
        snprintf(why, sizeof why, "%s",
                 has_reason ? connection->why : "the connection is of no use");
        consul_connection_drop(connection, has_reason ? connection->status : HF_UNAVAILABLE, why,
                               now);
    }
}

/* A response that cannot be parsed closes the connection: the requests it answered have unknown
 * outcomes. */
void consul_connection_bytes(struct consul_connection *connection, const char *bytes, size_t len,
                             nanos now)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct http_response *response = &connection->response;
    connection->status = HF_OK;
    connection->read_at = now;

    while (len > 0 && connection->state == CONNECTION_UP && !connection->is_broken) {
        size_t taken = http_response_take(response, bytes, len);
        bytes += taken;
        len -= taken;
        bool is_whole = response->stage == HTTP_WHOLE;
        if (response->stage == HTTP_BAD || (is_whole && !connection->calls)) {
            set_why(connection, connection->consul->is_known ? HF_UNAVAILABLE : HF_CONFIG,
                    is_whole ? "the server said something unasked" : response->flaw);
            connection->is_broken = true;
            return;
        }
        if (!is_whole)
            return;

        bool closes = response->closes;
        on_response(connection, now);
        connection->index = 0;
        http_response_next(response);
        connection->is_broken |= closes;
    }
}

nanos consul_connection_tick(struct consul_connection *connection, nanos now)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    if (connection->state == CONNECTION_DOWN)
        return connection->redial.dial_at;

    const struct consul_call *first = connection->calls;
    nanos due = TIME_NEVER;
    if (connection->state == CONNECTION_DIALLED) {
        due = connection->since + connection->consul->connect_timeout;
    } else if (first) { /* An agent that still sends bytes is not silent. */
        nanos quiet_since =
            connection->read_at > first->sent_at ? connection->read_at : first->sent_at;
        due = quiet_since + first->patience;
    }

    if (now < due)
        return due;

    bool was_up = connection->state == CONNECTION_UP;
    consul_connection_drop(connection, HF_UNAVAILABLE,
                           was_up ? "no answer came in time" : "connecting took too long", now);
    return now;
}
