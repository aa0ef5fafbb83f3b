/* redis_connection.c - one connection to the server: dialling, the requests that await their
 * replies, and its end. The greeting is in redis_greeting.c.
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

enum {
    ANSWER_MOST = 1 << 20, /* bytes in the reply to a request */
    LIST_MOST = 64 << 20,  /* bytes in the reply to a list */
};
#define TAKES_STEP NANOS_OF_MS(25)
/* shortest time after which a server counts as hung: even one nearby may get no CPU for a moment */
#define HUNG_LEAST NANOS_OF_MS(130)

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
            if (redis_follow_is_patient(r, a, connection->last_status, now))
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
    assert(connection->state != CONNECTION_DOWN);

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
    /* if none is known, redis_follow() dials later */
    bool has_server = !r->follow.is_on || r->follow.is_known;
    if (has_server)
        redis_connection_dial(r, connection, now);
    return true;
}

__attribute__((always_inline)) static inline bool add_request(struct redis_connection *connection,
                                                              const struct request *request)
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

bool redis_connection_join(struct redis *r, struct redis_connection *connection,
                           struct request request, nanos now)
{
    request.sent_at = now;
    if (add_request(connection, &request))
        return true;
    redis_connection_drop(r, connection, HF_NO_MEMORY, now, "no memory to send");
    return false;
}

/* ---- Replies ---- */

/* Notifications may have been lost: all waiters ask again. */
void redis_connection_notify_all(struct redis *r)
{
    for (struct redis_op *a = r->ops; a; a = a->next)
        if (a->listens || (a->queued && !redis_op_is_in_flight(a) && !a->unsent))
            redis_op_reply(r, a,
                           &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
}

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

/* Takes the request that the reply is for out of the queue, and updates the counters. */
__attribute__((always_inline)) static inline struct request
take_request(struct redis *r, struct redis_connection *connection, const struct resp_reply *resp,
             nanos now)
{
    struct request request;
    pipeline_take(&connection->queue, &request, sizeof request);
    /* requests to a slow member of a quorum overlap, so all of them are measured */
    if (r->is_quorum_member && request.kind == REQ_VERB)
        rtt_learn(&connection->rtt, request.sent_at, now);

    connection->queue.answered_at = now;
    connection->timed_out = false;
    connection->loads -= request.kind == REQ_LOAD || request.kind == REQ_LIBRARY;
    connection->checks -= request.kind == REQ_RIGHTS;
    if (request.op)
        request.op->in_flight[connection->number]--;

    bool calls = request.kind == REQ_VERB || request.kind == REQ_STEP;
    if (calls && !redis_load_is_needed(resp))
        connection->in_vain = 0;
    return request;
}

__attribute__((always_inline)) static inline void
on_answer(struct redis *r, struct redis_connection *connection, const struct request *request,
          const struct resp_reply *resp, nanos now)
{
    switch (request->kind) {
    case REQ_VERB:
        if (request->op)
            redis_op_on_resp(r, request, resp, now);
        break;
    case REQ_STEP:
        if (request->op && request->verb == ADMIN_DIAGNOSE)
            redis_diagnose_answer(r, request, resp);
        else if (request->op && admin_is_for_servers((enum admin_verb)request->verb))
            redis_library_answer(r, request, resp, now);
        else if (request->op)
            redis_admin_answer(r, request, resp, now);
        break;
    case REQ_WAIT:
        connection->unclaimed -= !request->op;
        redis_durable_answer(r, resp, now);
        break;
    case REQ_POP:
        on_pop(r, connection, resp, now);
        break;
    case REQ_TAKE_BACK:
        if (request->op)
            redis_durable_taken_back(r, request, resp, now);
        break;
    case REQ_UNDO:
        connection->unclaimed--;
        break;
    case REQ_ASKING:
        break;
    case REQ_PRESENCE:
        connection->unclaimed--;
        redis_presence_answer(r, request, resp, now);
        break;
    case REQ_LISTEN:
        on_listening(r, connection, request, resp, now);
        break;
    case REQ_RIGHTS:
        redis_greeting_answer(r, connection, request->kind, resp, now);
        if (connection->state != CONNECTION_DOWN)
            redis_greeting_rights(r, connection, request, resp, now);
        break;
    default:
        redis_greeting_answer(r, connection, request->kind, resp, now);
    }
}

/* Handles the reply to a call for several ops. It is one error, or a list with a reply to each op,
 * which is shorter if the call ended before the last op. The first op gets any other reply, and
 * reports that it makes no sense. */
__attribute__((noinline)) static void on_joint_resp(struct redis *r,
                                                    struct redis_connection *connection,
                                                    const struct request *first,
                                                    const struct resp_reply *resp, nanos now)
{
    const struct resp_reader *reader = connection->replies;
    bool is_list = resp->type == RESP_LIST && resp->len > 0 && resp->len <= 1u + first->joined;
    bool is_unknown = resp->type == RESP_ERROR && !redis_load_is_needed(resp) &&
                      redis_error_reply(r, resp).outcome_unknown;

    on_answer(r, connection, first, is_list ? resp_item(resp, 0) : resp, now);
    /* If the connection was dropped meanwhile, each op has its reply. */
    for (uint32_t i = 1; i <= first->joined && connection->replies == reader; i++) {
        const struct resp_reply *item = is_list ? resp_item(resp, i) : NULL;
        struct request request = take_request(r, connection, resp, now);
        if (item || !request.op)
            on_answer(r, connection, &request, item, now);
        else
            redis_joint_unasked(r, request.op, is_unknown);
    }
}

static void on_resp(struct redis *r, struct redis_connection *connection,
                    const struct resp_reply *resp, nanos now)
{
    struct request request = take_request(r, connection, resp, now);
    if (request.joined)
        on_joint_resp(r, connection, &request, resp, now);
    else
        on_answer(r, connection, &request, resp, now);

    if (connection->state == CONNECTION_GREETING && connection->queue.count == 0)
        redis_greeting_end(r, connection, now);
}

/* Returns the largest size of a reply to accept. Only the reply to a list may be large: it has all
 * holders of a name, now or in the past. */
static size_t most_of_an_answer(const struct redis_connection *connection)
{
    const struct request *first = redis_connection_first(connection);
    bool list = first && first->kind == REQ_STEP;
    return list ? (size_t)LIST_MOST : (size_t)ANSWER_MOST;
}

/* Notes how long requests take, rounded up to TAKES_STEP, because each change makes the next op
 * encode its terms anew. A time of one step counts as 0: it fits into every ttl. The value is
 * lowered only if it falls by a quarter or more. */
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

/* The first bytes of a reply have arrived. Measures the round trip by requests that a server
 * answers at once. If a member of a quorum is slow, its time-outs stay as they are. */
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

/* Returns the queue position of the request whose time-out comes first, so that no lease is lost
 * behind a slow list. On the durable connection that is the first request, because each waits for
 * the replicas of those before it. */
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

const char *redis_connection_advice(const struct redis *r,
                                    const struct redis_connection *connection)
{
    if (!r->address.tls || connection->state != CONNECTION_DIALLING)
        return "";
    return r->cluster.is_on ? ": is this a port for TLS? Nodes of Redis 7.0 name it only with "
                              "tls-cluster yes"
                            : ": is this a port for TLS?";
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
                              redis_connection_advice(r, connection));
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
