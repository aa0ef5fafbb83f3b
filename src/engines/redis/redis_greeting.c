/* redis_greeting.c - the greeting of a connection: login, who the server is, the rights of the
 * user. The library follows only if the server says that it lacks it (library_load.c). */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the oldest major version that has functions, scripts with flags, BLMPOP */
enum { VERSION_LEAST = 7 };

/* ---- Requests ---- */

static void greet(struct redis *r, struct redis_connection *connection, enum request_kind kind,
                  nanos now)
{
    if (connection->state == CONNECTION_GREETING)
        redis_connection_send(r, connection,
                              (struct request){.kind = kind, .patience = r->connect_timeout}, now);

    /* an earlier part may have failed, so write the command from the start */
    r->command.len = 0;
    r->command.failed = false;
}

static void request_rights(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->number < CONNECTIONS);
    struct request request = {
        .kind = REQ_RIGHTS, .patience = r->connect_timeout, .by_scripts = r->by_scripts};

    if (connection->state != CONNECTION_DOWN && redis_acl_write(r))
        redis_connection_send(r, connection, request, now);
}

bool redis_greeting_check_rights(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (!connection->checks)
        request_rights(r, connection, now);
    return connection->checks;
}

/* The connection may lead to another server or another process than before: forgets what was known
 * of the previous one. If the user lacks the right to INFO, the run id stays unknown, and the
 * server is asked to confirm every notification. */
static void forget_server(struct redis *r, struct redis_connection *connection)
{
    connection->run_id[0] = 0;
    connection->rtt = (struct rtt){0};
    connection->in_vain = 0;
    if (connection->number == CONNECTION_COMMANDS) {
        r->up_since = TIME_NEVER;
        r->by_scripts = r->has_loaded = false;
    }
}

/* Without AUTH the user would be "default", so a user without a password is named as well. */
static void log_in(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (!r->password[0] && !r->user[0])
        return;

    resp_command_begin(&r->command, r->user[0] ? 3 : 2);
    resp_command_text(&r->command, "AUTH");
    if (r->user[0])
        resp_command_text(&r->command, r->user);
    resp_command_text(&r->command, r->password);
    greet(r, connection, REQ_AUTH, now);
}

static void select_database(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (r->db == 0)
        return;

    resp_command_begin(&r->command, 2);
    resp_command_text(&r->command, "SELECT");
    resp_command_number(&r->command, r->db);
    greet(r, connection, REQ_SELECT, now);
}

static void exchange_names(struct redis *r, struct redis_connection *connection, nanos now)
{
    resp_command_begin(&r->command, 3);
    resp_command_text(&r->command, "CLIENT");
    resp_command_text(&r->command, "SETNAME");
    resp_command_text(&r->command, r->client_name);
    greet(r, connection, REQ_SETNAME, now);

    resp_command_begin(&r->command, 3);
    resp_command_text(&r->command, "INFO");
    resp_command_text(&r->command, "server");
    resp_command_text(&r->command, "replication");
    greet(r, connection, REQ_INFO, now);
}

void redis_greeting_begin(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->state == CONNECTION_DIALLING && !connection->queue.count);
    connection->state = CONNECTION_GREETING;
    connection->queue.received_at = now;
    forget_server(r, connection);
    connection->replies = resp_reader_open();
    if (!connection->replies) {
        redis_connection_drop(r, connection, HF_NO_MEMORY, now, "no memory for a connection");
        return;
    }

    log_in(r, connection, now);
    select_database(r, connection, now);
    exchange_names(r, connection, now);
    if (connection->number == CONNECTION_NOTIFY)
        return;

    request_rights(r, connection, now);
    redis_op_send_unsent(r, connection, now);
}

/* ---- Replies ---- */

const char *redis_greeting_info_field(const char *info, const char *field)
{
    assert(info && field);
    size_t len = strlen(field);

    for (const char *at = info; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, field, len) == 0)
            return at + len;
    return NULL;
}

/* Checks that redis+cluster:// talks to a server of a cluster, and redis:// to a single one.
 * Returns false if the connection was dropped because it does not. */
static bool check_mode(struct redis *r, struct redis_connection *connection, const char *info,
                       nanos now)
{
    const char *mode = redis_greeting_info_field(info, "redis_mode:");
    if (!mode)
        mode = redis_greeting_info_field(info, "server_mode:"); /* Valkey */
    bool is_in_cluster = mode && strncmp(mode, "cluster", 7) == 0;
    if (!mode || is_in_cluster == r->cluster.is_on)
        return true;

    const char *scheme = r->address.tls ? "rediss" : "redis";
    redis_connection_drop(r, connection, HF_CONFIG, now,
                          is_in_cluster
                              ? "the server is part of a cluster: the URL is %s+cluster://%s"
                              : "the server is not part of a cluster: the URL is %s://%s",
                          scheme, r->where);
    return false;
}

static void read_info(struct redis *r, struct redis_connection *connection,
                      const struct resp_reply *resp, nanos now)
{
    if (resp->type != RESP_TEXT)
        return;

    const char *run_id = redis_greeting_info_field(resp->text, "run_id:"),
               *role = redis_greeting_info_field(resp->text, "role:");
    const char *version = redis_greeting_info_field(resp->text, "redis_version:"),
               *uptime = redis_greeting_info_field(resp->text, "uptime_in_seconds:");
    if (connection->number == CONNECTION_COMMANDS && uptime)
        r->up_since = now - timing_nanos(atoi(uptime) * INT64_C(1000));

    if (run_id)
        snprintf(connection->run_id, sizeof connection->run_id, "%.*s",
                 (int)strcspn(run_id, "\r\n"), run_id);
    if (!check_mode(r, connection, resp->text, now))
        return;

    if (version && atoi(version) < VERSION_LEAST)
        redis_connection_drop(r, connection, HF_CONFIG, now,
                              "Redis %.*s is too old: Holdfast needs %d.0",
                              (int)strcspn(version, "\r\n"), version, VERSION_LEAST);
    else if (role && strncmp(role, "master", 6) != 0)
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                              "the server is a replica, which takes no locks");
}

/* Notes which process the server is. A server that does not say may be another process each
 * time. */
static void note_server(struct redis *r, const struct redis_connection *connection)
{
    bool is_same = connection->run_id[0] && strcmp(connection->run_id, r->run_id) == 0;
    if (is_same && r->server_number)
        return;

    snprintf(r->run_id, sizeof r->run_id, "%s", connection->run_id);
    redis_key_cache_unlist(r);
    r->server_number = (uint8_t)(r->server_number % UINT8_MAX + 1);
}

void redis_greeting_end(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->state == CONNECTION_GREETING);
    connection->state = CONNECTION_UP;
    connection->since = now;
    r->follow.patience_until = 0;
    note_server(r, connection);
    if (connection->number == CONNECTION_COMMANDS)
        redis_recent_repeat(r, now);
    if (connection->state != CONNECTION_UP)
        return; /* the connection broke */

    if (connection->ups++) { /* holds may have been lost, too */
        r->host->recheck(r->host->ctx);
        redis_connection_notify_all(r);
    }

    if (connection->number == CONNECTION_NOTIFY)
        redis_notify_listen(r, now);
    else
        redis_op_send_unsent(r, connection, now);
}

/* Returns true if the connection was dropped because of an error. Without the right to set the
 * client's name, to read INFO, or to ask for scripts and rights, the greeting continues. */
static bool has_failed(struct redis *r, struct redis_connection *connection, enum request_kind kind,
                       const struct resp_reply *resp, nanos now)
{
    if (resp->type != RESP_ERROR)
        return false;

    struct error_reply error_reply =
        redis_error_reply(r, kind == REQ_LOAD ? redis_load_why_not(r, resp) : resp);
    bool may_fail = kind == REQ_SETNAME || kind == REQ_INFO || kind == REQ_KNOWN ||
                    kind == REQ_LIBRARY || kind == REQ_RIGHTS;
    bool cannot_serve =
        kind == REQ_RIGHTS && connection->state == CONNECTION_GREETING &&
        error_reply.status == HF_UNAVAILABLE; /* for example the server is still loading its data */
    if (may_fail && !error_reply.leave && !cannot_serve)
        return false;

    /* The scripts may be loaded later, when the connection is up: a failure then counts as one of
     * the greeting. */
    connection->state = CONNECTION_GREETING;
    redis_connection_drop(r, connection, error_reply.status, now, "%s", error_reply.text);
    return true;
}

void redis_greeting_answer(struct redis *r, struct redis_connection *connection,
                           enum request_kind kind, const struct resp_reply *resp, nanos now)
{
    assert(connection->state != CONNECTION_DOWN);
    if (has_failed(r, connection, kind, resp, now))
        return;

    if (kind == REQ_INFO)
        read_info(r, connection, resp, now);
    else if (kind == REQ_KNOWN)
        redis_load_missing(r, connection, resp, now);
    else if (kind == REQ_LIBRARY && resp->type != RESP_ERROR)
        r->has_loaded = true;
    else if (kind == REQ_LIBRARY && !redis_load_is_done(resp))
        redis_load_refused(r, connection, resp, now);
}

/* If the server lacks the library, loads it and repeats the call. If the server has no functions,
 * uses scripts. */
void redis_greeting_rights(struct redis *r, struct redis_connection *connection,
                           const struct request *request, const struct resp_reply *resp, nanos now)
{
    if (redis_load_is_needed(resp)) {
        bool has_changed = request->by_scripts != r->by_scripts; /* the library was refused */
        bool has_none = !request->by_scripts && redis_load_has_no_functions(resp->text);
        if (has_none && connection->state == CONNECTION_GREETING && !has_changed)
            redis_load_refused(r, connection, resp, now);
        else if (!has_changed)
            redis_load(r, connection, resp, now);
        request_rights(r, connection, now);
        return;
    }

    redis_acl_read(r, resp);
    if (connection->state == CONNECTION_UP)
        redis_op_send_unsent(r, connection, now);
}
