/* redis_connection.c - one connection to the server: dialling, the greeting, the requests that
 * await their replies, and its end.
 *
 * Replies come in the order of the requests, and nothing else ties them together. So if a reply
 * makes no sense, or is one too many, no later reply on this connection can be trusted. The
 * connection is dropped, and every op in flight on it gets an unknown outcome. */
#include "redis.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bytes in the reply to a request; in the reply to a list */
enum { ANSWER_MOST = 1 << 20, LIST_MOST = 64 << 20 };
#define TAKES_STEP NANOS_OF_MS(25)
/* shortest time after which a server counts as hung: one nearby may get no CPU for a moment */
#define HUNG_LEAST NANOS_OF_MS(130)
/* oldest major version: it has functions, scripts with flags, BLMPOP */
#define VERSION_LEAST 7

/* ---- The end ---- */

static void reply_unknown(struct redis *r, const struct redis_connection *connection,
                          const struct request *request)
{
    struct redis_op *a = request->op;
    if (a)
        a->in_flight[connection->number]--;
    if (!a || request->kind == REQ_WAIT)
        return;
    if (request->kind == REQ_STEP) { /* the steps of an op fail together, with one reply */
        bool is_last = a->in_flight[connection->number] == 0;
        if (request->verb == ADMIN_DIAGNOSE ? is_last : a->admin || a->care)
            redis_op_fail(r, a, request->sent_at, HF_UNAVAILABLE, connection->why);
        return;
    }
    bool asked = request->kind == REQ_VERB && request->verb == OP_ACQUIRE;
    a->acquiring -= asked;
    a->cut |= asked;
    redis_op_reply(r, a,
                   &(struct engine_reply){.kind = REPLY_UNKNOWN,
                                          .asked_at = request->sent_at,
                                          .retry_at = TIME_NEVER,
                                          .text = connection->why});
}

/* Replies to every op that relied on the connection, and forgets the round trips measured on it. */
static void reply_to_all(struct redis *r, struct redis_connection *connection, nanos now)
{
    struct request request;
    while (connection->queue.count) {
        pipeline_take(&connection->queue, &request, sizeof request);
        reply_unknown(r, connection, &request);
    }
    connection->unclaimed = connection->loads = connection->checks = 0;
    if (connection->number == CONNECTION_COMMANDS)
        redis_presence_cut(r);
    if (connection->number == CONNECTION_DURABLE) /* also replies to ops whose WAIT was not sent */
        redis_durable_cut(r, connection->why);
    bool for_good = connection->last_status == HF_DENIED || connection->last_status == HF_CONFIG;
    for (struct redis_op *a = r->ops; a; a = a->next) {
        a->queued_reply.set = a->notification.set = false;
        if (a->unsent && redis_op_connection(r, a, a->sent_op.verb) == connection) {
            if (redis_follow_is_patient(r, connection->last_status, now))
                continue;
            a->unsent = false;
            redis_op_fail_with(r, a, connection, now);
        } else if (connection->number == CONNECTION_NOTIFY && for_good && a->queued &&
                   a->sent_op.verb == OP_ACQUIRE && !r->is_quorum_member) {
            redis_op_fail_with(r, a, connection, now);
        }
    }
}

static void fall(struct redis *r, struct redis_connection *connection, hf_status status, nanos now)
{
    bool was_up = connection->state == CONNECTION_UP;
    enum redial_after after = redial_after(was_up, connection->since, now);
    connection->state = CONNECTION_DOWN;
    connection->last_status = status;
    redis_follow_lost(r, now);
    if (connection->number == CONNECTION_NOTIFY) {
        r->subscribed = false;
        redis_channels_cut(r);
    }
    redial_lost(&connection->redial, after, now, &r->limits, &r->overrides,
                after == REDIAL_AFTER_LONG ? 0 : r->host->random(r->host->ctx));
    resp_reader_close(connection->replies);
    connection->replies = NULL;
    reply_to_all(r, connection, now);
}

void redis_connection_drop(struct redis *r, struct redis_connection *connection, hf_status status,
                           nanos now, const char *format, ...)
{
    assert(status != HF_OK);
    if (connection->state == CONNECTION_DOWN)
        return;
    va_list args;
    va_start(args, format);
    int len = snprintf(connection->why, sizeof connection->why, "%.100s: ", r->where);
    vsnprintf(connection->why + len, sizeof connection->why - (size_t)len, format, args);
    va_end(args);
    r->host->hang_up(r->host->ctx, connection->number);
    fall(r, connection, status, now);
}

/* The server or the network ended the connection. `why` names the server already. */
void redis_connection_down(struct redis *r, struct redis_connection *connection, hf_status status,
                           const char *why, nanos now)
{
    assert(status != HF_OK && why);
    if (connection->state == CONNECTION_DOWN)
        return;
    bool unheard = connection->state == CONNECTION_GREETING &&
                   connection->queue.answered_at < connection->since && !r->address.tls;
    snprintf(connection->why, sizeof connection->why, "%s%s", why,
             unheard ? ": is this a port for TLS?" : "");
    fall(r, connection, status, now);
}

/* ---- The beginning ---- */

void redis_connection_dial(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->state == CONNECTION_DIALLING);
    connection->since = now;
    r->address.skip = connection->redial.failures;
    r->host->dial(r->host->ctx, connection->number, &r->address);
}

bool redis_connection_need(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (connection->state != CONNECTION_DOWN)
        return true;
    if (now < connection->redial.dial_at)
        return false;

    connection->state = CONNECTION_DIALLING;
    connection->since = now;
    /* otherwise redis_follow() dials */
    bool has_server = !r->follow.is_on || r->follow.is_known;
    if (has_server)
        redis_connection_dial(r, connection, now);
    return true;
}

static bool add_request(struct redis_connection *connection, const struct request *request)
{
    if (!pipeline_add(&connection->queue, request, sizeof *request))
        return false;
    if (request->op)
        request->op->in_flight[connection->number]++;
    connection->unclaimed += request->kind == REQ_UNDO || request->kind == REQ_PRESENCE;
    connection->loads += request->kind == REQ_LOAD || request->kind == REQ_LIBRARY;
    connection->checks += request->kind == REQ_RIGHTS;
    return true;
}

bool redis_connection_send(struct redis *r, struct redis_connection *connection,
                           struct request request, nanos now)
{
    struct resp_command *c = &r->command;
    bool written = !c->failed;
    bool whole = connection->state != CONNECTION_DOWN && written &&
                 r->host->send(r->host->ctx, connection->number, c->bytes, c->len);
    c->len = 0;
    c->failed = false;
    request.sent_at = now;
    request.measures = !connection->queue.count;
    if (whole && add_request(connection, &request))
        return true;
    if (written && !whole)
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now, "cannot send on this connection");
    else
        redis_connection_drop(r, connection, HF_NO_MEMORY, now, "no memory to send");
    return false;
}

static void greet(struct redis *r, struct redis_connection *connection, enum request_kind kind,
                  nanos now)
{
    if (connection->state == CONNECTION_GREETING)
        redis_connection_send(r, connection,
                              (struct request){.kind = kind, .patience = r->connect_timeout}, now);
    /* an earlier part may have failed, so the greeting begins from scratch */
    r->command.len = 0;
    r->command.failed = false;
}

/* ---- The library ----
 *
 * What runs inside the server is one Lua text (scripts/). Most servers take it as a library of
 * functions: it is persisted and replicated, so it is nearly always there, and the greeting only
 * calls one of its functions. If the server has no functions, or the user may not use or load
 * them, the same text is loaded as scripts. That is decided anew in every greeting. */

enum { LOADS_IN_VAIN_MOST = 3 };

/* Returns true if the error says that FCALL cannot be used at all. */
static bool offers_no_functions(const char *error)
{
    bool is_unknown = strncmp(error, "ERR unknown command", 19) == 0;
    bool is_denied = strncmp(error, "NOPERM", 6) == 0;
    return (is_unknown || is_denied) && strcasestr(error, "'fcall'");
}

bool redis_connection_is_missing(const struct resp_reply *resp)
{
    static const char no_function[] = "ERR Function not found", no_script[] = "NOSCRIPT";
    return resp->type == RESP_ERROR &&
           (strncmp(resp->text, no_function, sizeof no_function - 1) == 0 ||
            strncmp(resp->text, no_script, sizeof no_script - 1) == 0 ||
            offers_no_functions(resp->text));
}

static void add_text(struct redis *r, enum script_text_id id)
{
    const char *head = redis_script_texts[id].head;
    resp_command_joined(&r->command, head, strlen(head), redis_script_body, redis_script_body_len);
}

void redis_connection_write_library(struct redis *r, bool replaces)
{
    resp_command_begin(&r->command, replaces ? 4 : 3);
    resp_command_text(&r->command, "FUNCTION");
    resp_command_text(&r->command, "LOAD");
    if (replaces)
        resp_command_text(&r->command, "REPLACE");
    add_text(r, SCRIPT_LIBRARY);
}

/* Loads the library, first without REPLACE: if many clients meet a new server, it compiles the
 * text once. If functions are missing although the library is there, somebody changed it: equal
 * names mean equal texts. */
static void load_library(struct redis *r, struct redis_connection *connection, nanos now)
{
    redis_connection_write_library(r, connection->in_vain > 1);
    redis_connection_send(
        r, connection, (struct request){.kind = REQ_LIBRARY, .patience = r->connect_timeout}, now);
}

static void load_script(struct redis *r, struct redis_connection *connection,
                        enum script_text_id id, nanos now)
{
    resp_command_begin(&r->command, 3);
    resp_command_text(&r->command, "SCRIPT");
    resp_command_text(&r->command, "LOAD");
    add_text(r, id);
    redis_connection_send(r, connection,
                          (struct request){.kind = REQ_LOAD, .patience = r->connect_timeout}, now);
}

/* Scripts are long and usually loaded already: asks which are missing. */
static void request_scripts(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (connection->state == CONNECTION_DOWN)
        return;
    resp_command_begin(&r->command, 2 + SCRIPT_TEXTS - SCRIPT_CLAIMING);
    resp_command_text(&r->command, "SCRIPT");
    resp_command_text(&r->command, "EXISTS");
    for (int i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS; i++)
        resp_command_text(&r->command, redis_script_texts[i].sha);
    redis_connection_send(r, connection,
                          (struct request){.kind = REQ_KNOWN, .patience = r->connect_timeout}, now);
}

static bool is_known(const struct resp_reply *known, size_t script)
{
    const struct resp_reply *answer =
        known && known->type == RESP_LIST ? resp_item(known, script) : NULL;
    return answer && answer->type == RESP_NUMBER && answer->number == 1;
}

/* Loads the scripts that are missing. `known`: the reply to SCRIPT EXISTS, valid until the
 * connection is down. If it is an error (the user lacks a right, a proxy does not know the
 * command), all scripts are loaded. */
static void load_missing(struct redis *r, struct redis_connection *connection,
                         const struct resp_reply *known, nanos now)
{
    for (int i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS && connection->state != CONNECTION_DOWN; i++)
        if (!is_known(known, (size_t)(i - SCRIPT_CLAIMING)))
            load_script(r, connection, (enum script_text_id)i, now);
}

/* Calls verbs by EVALSHA from now on. */
static void use_scripts(struct redis *r, const char *why)
{
    r->by_scripts = true;
    snprintf(r->no_functions, sizeof r->no_functions, "%s", why);
}

void redis_connection_load(struct redis *r, struct redis_connection *connection,
                           const struct resp_reply *error, nanos now)
{
    assert(redis_connection_is_missing(error));
    if (!r->by_scripts && offers_no_functions(error->text))
        use_scripts(r, error->text);
    if (connection->loads || connection->state == CONNECTION_DOWN)
        return; /* a load is in flight: another request met the same error first */
    bool is_in_vain = ++connection->in_vain > LOADS_IN_VAIN_MOST;
    if (is_in_vain && r->by_scripts) {
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                              "the server forgets our scripts as soon as they are loaded");
        return;
    }
    if (is_in_vain) {
        connection->in_vain = 0;
        use_scripts(r, "it forgets functions as soon as they are loaded");
    }
    if (r->by_scripts)
        load_missing(r, connection, NULL, now);
    else
        load_library(r, connection, now);
}

/* Returns true if another client has loaded the library meanwhile. */
static bool is_loaded_already(const struct resp_reply *error)
{
    return strncmp(error->text, "ERR Library ", 12) == 0 && strstr(error->text, "already exists");
}

/* The server refused to load the library: use scripts. */
static void on_library_refused(struct redis *r, struct redis_connection *connection,
                               const struct resp_reply *error, nanos now)
{
    assert(error->type == RESP_ERROR);
    use_scripts(r, error->text);
    if (connection->state == CONNECTION_GREETING)
        request_scripts(r, connection, now);
    else
        load_missing(r, connection, NULL, now);
}

static void request_rights(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->number < CONNECTIONS);
    struct request request = {
        .kind = REQ_RIGHTS, .patience = r->connect_timeout, .by_scripts = r->by_scripts};
    if (connection->state != CONNECTION_DOWN && redis_acl_write(r))
        redis_connection_send(r, connection, request, now);
}

bool redis_connection_check_rights(struct redis *r, struct redis_connection *connection, nanos now)
{
    if (!connection->checks)
        request_rights(r, connection, now);
    return connection->checks;
}

/* Sends the greeting. The library follows only if the server says that it lacks it. */
void redis_connection_up(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->state == CONNECTION_DIALLING && !connection->queue.count);
    struct resp_command *c = &r->command;
    connection->state = CONNECTION_GREETING;
    connection->queue.received_at = now;
    connection->run_id[0] =
        0; /* without the right +info: unknown, so every notification is confirmed first */
    if (connection->number == CONNECTION_COMMANDS)
        r->up_since = TIME_NEVER;      /* the server may be another process now */
    connection->rtt = (struct rtt){0}; /* the new connection may lead elsewhere */
    connection->replies = resp_reader_open();
    if (!connection->replies) {
        redis_connection_drop(r, connection, HF_NO_MEMORY, now, "no memory for a connection");
        return;
    }
    if (r->password[0] || r->user[0]) { /* without AUTH the user would be "default", even if this
                                           one needs no password */
        resp_command_begin(c, r->user[0] ? 3 : 2);
        resp_command_text(c, "AUTH");
        if (r->user[0])
            resp_command_text(c, r->user);
        resp_command_text(c, r->password);
        greet(r, connection, REQ_AUTH, now);
    }
    if (r->db) {
        resp_command_begin(c, 2);
        resp_command_text(c, "SELECT");
        resp_command_number(c, r->db);
        greet(r, connection, REQ_SELECT, now);
    }
    resp_command_begin(c, 3);
    resp_command_text(c, "CLIENT");
    resp_command_text(c, "SETNAME");
    resp_command_text(c, r->client_name);
    greet(r, connection, REQ_SETNAME, now);
    resp_command_begin(c, 3);
    resp_command_text(c, "INFO");
    resp_command_text(c, "server");
    resp_command_text(c, "replication");
    greet(r, connection, REQ_INFO, now);
    if (connection->number == CONNECTION_NOTIFY)
        return;
    if (connection->number == CONNECTION_COMMANDS)
        r->by_scripts = r->has_loaded = false; /* the server may be another one */
    connection->in_vain = 0;
    request_rights(r, connection, now);
    redis_op_send_unsent(r, connection, now);
}

const char *redis_connection_info_field(const char *info, const char *field)
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
    const char *mode = redis_connection_info_field(info, "redis_mode:");
    if (!mode)
        /* Valkey's name for the field */
        mode = redis_connection_info_field(info, "server_mode:");
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
    const char *run_id = redis_connection_info_field(resp->text, "run_id:"),
               *role = redis_connection_info_field(resp->text, "role:");
    const char *version = redis_connection_info_field(resp->text, "redis_version:"),
               *uptime = redis_connection_info_field(resp->text, "uptime_in_seconds:");
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

/* Notifications may have been lost: all waiters ask again. */
void redis_connection_notify_all(struct redis *r)
{
    for (struct redis_op *a = r->ops; a; a = a->next)
        if (a->listens || (a->queued && !redis_op_is_in_flight(a) && !a->unsent))
            redis_op_reply(r, a,
                           &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
}

/* Notes which process the server is. One that does not say may be another process each time. */
static void note_server(struct redis *r, const struct redis_connection *connection)
{
    bool is_same = connection->run_id[0] && strcmp(connection->run_id, r->run_id) == 0;
    if (is_same && r->server_number)
        return;

    snprintf(r->run_id, sizeof r->run_id, "%s", connection->run_id);
    redis_key_cache_unlist(r);
    r->server_number = (uint8_t)(r->server_number % UINT8_MAX + 1);
}

static void finish_greeting(struct redis *r, struct redis_connection *connection, nanos now)
{
    assert(connection->state == CONNECTION_GREETING);
    connection->state = CONNECTION_UP;
    connection->since = now;
    note_server(r, connection);
    r->follow.patience_until = 0;
    if (connection->ups++) { /* holds may have been lost, too */
        r->host->recheck(r->host->ctx);
        redis_connection_notify_all(r);
    }
    if (connection->number == CONNECTION_NOTIFY)
        redis_notify_listen(r, now);
    else
        redis_op_send_unsent(r, connection, now);
}

/* ---- Answers ---- */

/* Returns true if the error was raised inside a script. Then servers add its place: "... script:
 * SHA, on @user_script:LINE." or FUNCTION and @user_function. Errors from before the script ran,
 * and those that the script itself returned, have no place. */
static bool is_from_script(const char *error)
{
    return strstr(error, "user_script:") || strstr(error, "user_function:");
}

struct error_reply redis_error_reply(const struct redis *r, const struct resp_reply *error)
{
    assert(error->type == RESP_ERROR);
    static const struct {
        const char *words;
        hf_status status;
        bool leave;
        const char *text;
    } rows[] = {
#define ERROR_REPLY(words, status, leave, text) {words, status, leave, text},
#include "error_replies.def"
#undef ERROR_REPLY
    };
    size_t i = 0;
    while (strncmp(error->text, rows[i].words, strlen(rows[i].words)) != 0)
        i++;
    /* no row matches, for example the error of a proxy */
    bool is_unheard_of = !rows[i].words[0];
    struct error_reply error_reply = {.status = rows[i].status,
                                      .leave = rows[i].leave,
                                      .outcome_unknown =
                                          is_from_script(error->text) || is_unheard_of};
    char right[REDIS_ACL_MAX] = "";
    if (error_reply.status == HF_DENIED)
        redis_acl_missing(r, error->text, right);
    snprintf(error_reply.text, sizeof error_reply.text, "%s%s%s (%.80s: %.120s)", rows[i].text,
             right[0] ? ": " : "", right, r->where, error->text);
    return error_reply;
}

/* Returns the error to report if neither library nor scripts could be loaded: that of the
 * library, because it names the right that the documentation asks for. Valid until the next call.
 */
static const struct resp_reply *why_not_loaded(const struct redis *r, const struct resp_reply *resp)
{
    static _Thread_local struct resp_reply first;
    bool was_denied = strncmp(r->no_functions, "NOPERM", 6) == 0;

    first = (struct resp_reply){
        .type = RESP_ERROR, .text = r->no_functions, .len = strlen(r->no_functions)};
    return was_denied ? &first : resp;
}

/* Handles a reply to the greeting. Without the right to set the client's name, to read INFO, or
 * to ask for scripts and rights, the greeting continues. */
static void on_greeting(struct redis *r, struct redis_connection *connection,
                        enum request_kind kind, const struct resp_reply *resp, nanos now)
{
    if (resp->type == RESP_ERROR) {
        struct error_reply error_reply =
            redis_error_reply(r, kind == REQ_LOAD ? why_not_loaded(r, resp) : resp);
        bool may_fail = kind == REQ_SETNAME || kind == REQ_INFO || kind == REQ_KNOWN ||
                        kind == REQ_LIBRARY || kind == REQ_RIGHTS;
        bool cannot_serve =
            kind == REQ_RIGHTS && connection->state == CONNECTION_GREETING &&
            error_reply.status == HF_UNAVAILABLE; /* for example while it loads its data */
        if (!may_fail || error_reply.leave || cannot_serve) {
            connection->state = CONNECTION_GREETING; /* the scripts may be loaded later */
            redis_connection_drop(r, connection, error_reply.status, now, "%s", error_reply.text);
            return;
        }
    }
    if (kind == REQ_INFO)
        read_info(r, connection, resp, now);
    else if (kind == REQ_KNOWN)
        load_missing(r, connection, resp, now);
    else if (kind == REQ_LIBRARY && resp->type != RESP_ERROR)
        r->has_loaded = true;
    else if (kind == REQ_LIBRARY && !is_loaded_already(resp))
        on_library_refused(r, connection, resp, now);
}

/* Handles the reply to the first call of the library. If the server does not have the library,
 * it is loaded and the call repeated; if it has no functions, scripts are used. */
static void on_rights(struct redis *r, struct redis_connection *connection,
                      const struct request *request, const struct resp_reply *resp, nanos now)
{
    if (redis_connection_is_missing(resp)) {
        bool has_changed = request->by_scripts != r->by_scripts; /* the library was refused */
        bool has_none = !request->by_scripts && offers_no_functions(resp->text);
        if (has_none && connection->state == CONNECTION_GREETING && !has_changed)
            on_library_refused(r, connection, resp, now);
        else if (!has_changed)
            redis_connection_load(r, connection, resp, now);
        request_rights(r, connection, now);
        return;
    }
    redis_acl_read(r, resp);
    if (connection->state == CONNECTION_UP)
        redis_op_send_unsent(r, connection, now);
}

static bool is_refused(struct redis *r, struct redis_connection *connection,
                       const struct resp_reply *resp, nanos now)
{
    if (resp->type != RESP_ERROR)
        return false;
    struct error_reply error_reply = redis_error_reply(r, resp);
    redis_connection_drop(r, connection, error_reply.status, now, "%s", error_reply.text);
    return true;
}

static void on_pop(struct redis *r, struct redis_connection *connection,
                   const struct resp_reply *resp, nanos now)
{
    if (!is_refused(r, connection, resp, now))
        redis_notify_on_pop(r, resp, now);
}

static void on_listening(struct redis *r, struct redis_connection *connection,
                         const struct request *request, const struct resp_reply *resp, nanos now)
{
    if (redis_has_channels(r) && request->from && redis_cluster_is_elsewhere(r, resp))
        redis_channels_on_reply(r, request, resp, now);
    else if (is_refused(r, connection, resp, now))
        return;
    else if (redis_has_channels(r))
        redis_channels_on_reply(r, request, resp, now);
    else
        redis_notify_on_listen(r, resp, now);
}

static void on_resp(struct redis *r, struct redis_connection *connection,
                    const struct resp_reply *resp, nanos now)
{
    struct request request;
    pipeline_take(&connection->queue, &request, sizeof request);
    /* Requests to a slow member overlap, so all of them are measured. */
    if (r->is_quorum_member && request.kind == REQ_VERB)
        rtt_learn(&connection->rtt, request.sent_at, now);
    connection->queue.answered_at = now;
    connection->timed_out = false;
    connection->loads -= request.kind == REQ_LOAD || request.kind == REQ_LIBRARY;
    connection->checks -= request.kind == REQ_RIGHTS;
    if (request.op)
        request.op->in_flight[connection->number]--;
    bool calls = request.kind == REQ_VERB || request.kind == REQ_STEP;
    if (calls && !redis_connection_is_missing(resp))
        connection->in_vain = 0;
    switch (request.kind) {
    case REQ_VERB:
        if (request.op)
            redis_op_on_resp(r, &request, resp, now);
        break;
    case REQ_STEP:
        if (request.op && request.verb == ADMIN_DIAGNOSE)
            redis_diagnose_answer(r, &request, resp);
        else if (request.op && admin_is_for_servers((enum admin_verb)request.verb))
            redis_library_answer(r, &request, resp, now);
        else if (request.op)
            redis_admin_answer(r, &request, resp, now);
        break;
    case REQ_WAIT:
        connection->unclaimed -= !request.op;
        redis_durable_answer(r, resp, now);
        break;
    case REQ_POP:
        on_pop(r, connection, resp, now);
        break;
    case REQ_TAKE_BACK:
        if (request.op)
            redis_durable_taken_back(r, &request, resp, now);
        break;
    case REQ_UNDO:
        connection->unclaimed--;
        break;
    case REQ_ASKING:
        break;
    case REQ_PRESENCE:
        connection->unclaimed--;
        redis_presence_answer(r, &request, resp, now);
        break;
    case REQ_LISTEN:
        on_listening(r, connection, &request, resp, now);
        break;
    case REQ_RIGHTS:
        on_greeting(r, connection, request.kind, resp, now);
        if (connection->state != CONNECTION_DOWN)
            on_rights(r, connection, &request, resp, now);
        break;
    default:
        on_greeting(r, connection, request.kind, resp, now);
    }
    if (connection->state == CONNECTION_GREETING && connection->queue.count == 0)
        finish_greeting(r, connection, now);
}

/* Returns the longest reply to accept. Only the reply to a list may be long: all holders of a
 * name, now or in the past. */
static size_t most_of_an_answer(const struct redis_connection *connection)
{
    const struct request *first = redis_connection_first(connection);
    bool list = first && first->kind == REQ_STEP;
    return list ? (size_t)LIST_MOST : (size_t)ANSWER_MOST;
}

/* Notes how long requests take, in steps, because each change makes the next op write its terms
 * anew. One step or less fits into every ttl and counts as 0. The value falls only if the time
 * became much less. */
static void note_takes(struct redis *r, nanos takes)
{
    nanos steps = (takes + TAKES_STEP - 1) / TAKES_STEP * TAKES_STEP;
    nanos length = steps > TAKES_STEP ? steps : 0, had = r->overrides.takes;
    if (length == had || (length < had && length > had / 4 * 3))
        return;
    r->overrides.takes = length;
    r->timing_ttl_ms = -1;
    r->form.len = 0;
    if (r->host->takes)
        r->host->takes(r->host->ctx, length);
}

/* The first bytes of a reply have arrived. Measures the round trip, by requests that a server
 * answers at once. A slow member of a quorum gets no more time for it. */
static void measure(struct redis *r, struct redis_connection *connection, struct request *request,
                    nanos now)
{
    bool greets = request->kind >= REQ_AUTH && request->kind <= REQ_KNOWN;
    bool is_quick =
        greets || (request->kind == REQ_VERB && connection->number == CONNECTION_COMMANDS);
    request->measures = false;
    if (!is_quick || connection->number == CONNECTION_NOTIFY)
        return;
    rtt_learn(&connection->rtt, request->sent_at, now);
    if (!r->is_quorum_member)
        note_takes(r, rtt_timeout(&connection->rtt));
}

void redis_connection_bytes(struct redis *r, struct redis_connection *connection, const char *bytes,
                            size_t len, nanos now)
{
    const char *error = NULL;
    if (connection->state != CONNECTION_GREETING && connection->state != CONNECTION_UP)
        return;
    connection->queue.received_at = now;
    struct request *first = redis_connection_first(connection);
    if (first && first->measures)
        measure(r, connection, first, now);
    if (!resp_reader_feed(connection->replies, bytes, len, most_of_an_answer(connection))) {
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now, "an answer of more than %zu MB",
                              most_of_an_answer(connection) >> 20);
        return;
    }
    for (const struct resp_reply *resp;
         connection->replies && (resp = resp_reader_next(connection->replies, &error));) {
        if (connection->number == CONNECTION_NOTIFY && redis_notify_on_publish(r, resp, now))
            continue;
        if (!connection->queue.count && is_refused(r, connection, resp, now))
            return;
        if (!connection->queue.count) {
            redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                                  "an answer that nobody asked for");
            return;
        }
        on_resp(r, connection, resp, now);
    }
    if (error && connection->state != CONNECTION_DOWN)
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                              "not the protocol of Redis: %.100s", error);
}

/* ---- Time ---- */

/* Returns the queue position of the request that runs out of patience first, so that no lease is
 * lost behind a slow list. On the durable connection that is the first request, because each waits
 * for the replicas of those before it. */
static uint32_t most_impatient(const struct redis *r, const struct redis_connection *connection)
{
    const struct pipeline *queue = &connection->queue;
    const struct request *request = pipeline_at(queue, 0);
    uint32_t first = 0;
    if (connection->number == CONNECTION_DURABLE)
        return first;

    for (uint32_t i = 1; i < queue->count && request->kind != REQ_VERB; i++) {
        request = pipeline_at(queue, i);
        if (pipeline_deadline(queue, i, r->connect_timeout) <
            pipeline_deadline(queue, first, r->connect_timeout))
            first = i;
    }
    return first;
}

nanos redis_connection_tick(struct redis *r, struct redis_connection *connection, nanos now)
{
    nanos due = TIME_NEVER;
    if (connection->state == CONNECTION_DIALLING || connection->state == CONNECTION_GREETING) {
        due = connection->since + r->connect_timeout;
        if (now < due)
            return due;
        connection->timed_out = true;
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now, "no connection within %lld ms%s",
                              (long long)(r->connect_timeout / NANOS_OF_MS(1)),
                              r->address.tls && connection->state == CONNECTION_DIALLING
                                  ? ": is this a port for TLS?"
                                  : "");
    } else if (connection->state == CONNECTION_UP && connection->queue.count) {
        uint32_t place = most_impatient(r, connection);
        const struct request *first = pipeline_at(&connection->queue, place);
        bool by_setting = first->kind == REQ_VERB || first->kind == REQ_TAKE_BACK;
        due = pipeline_deadline(&connection->queue, place, r->connect_timeout);
        if (now < due)
            return due;
        connection->timed_out = true;
        redis_connection_drop(r, connection, HF_UNAVAILABLE, now, "no answer for %lld ms%s",
                              (long long)(first->patience / NANOS_OF_MS(1)),
                              by_setting ? " (op_timeout, at most a fifth of the ttl)" : "");
    }
    return connection->number == CONNECTION_NOTIFY ? redis_notify_tick(r, now) : TIME_NEVER;
}

bool redis_connection_is_hung(const struct redis_connection *connection, nanos now)
{
    nanos usual = 2 * rtt_timeout(&connection->rtt);
    if (connection->timed_out)
        return true;
    if (connection->state != CONNECTION_UP || !connection->queue.count)
        return false;

    nanos received_at = connection->queue.received_at;
    nanos sent_at = redis_connection_first(connection)->sent_at;
    nanos since = received_at > sent_at ? received_at : sent_at;
    return now - since > (usual > HUNG_LEAST ? usual : HUNG_LEAST);
}

void redis_connection_forget(struct redis_connection *connection, const struct redis_op *op)
{
    assert(op);
    for (uint32_t i = 0; i < connection->queue.count; i++) {
        struct request *request = pipeline_at(&connection->queue, i);
        if (request->op == op) {
            request->op = NULL;
            if (request->kind != REQ_WAIT) /* a WAIT may serve several ops */
                request->kind = REQ_UNDO;
            connection->unclaimed++;
        }
    }
}
