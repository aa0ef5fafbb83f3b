/* etcd_connection.c - the two connections, and the calls in flight on them. */
#include "etcd.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call may last this many time-outs as long as the server answers other calls. */
enum { BUSY_FACTOR = 3 };
/* largest number of received bytes whose acknowledgement may wait */
enum { ACK_LATER_MAX = 4096 };

/* ---- Calls ---- */

static const char *path_of(enum call_kind kind)
{
    switch (kind) {
    case CALL_AUTHENTICATE:
        return "/etcdserverpb.Auth/Authenticate";
    case CALL_GRANT_LEASE:
    case CALL_ORPHAN_LEASE:
        return "/etcdserverpb.Lease/LeaseGrant";
    case CALL_KEEP_ALIVE:
        return "/etcdserverpb.Lease/LeaseKeepAlive";
    case CALL_PROVE_DOOR:
        return "/etcdserverpb.KV/Range";
    case CALL_WATCH:
        return "/etcdserverpb.Watch/Watch";
    default:
        return "/etcdserverpb.KV/Txn";
    }
}

static enum message_kind message_of(enum call_kind kind)
{
    switch (kind) {
    case CALL_AUTHENTICATE:
        return MESSAGE_AUTH;
    case CALL_GRANT_LEASE:
    case CALL_ORPHAN_LEASE:
    case CALL_KEEP_ALIVE:
        return MESSAGE_LEASE;
    case CALL_PROVE_DOOR:
        return MESSAGE_RANGE;
    default:
        return MESSAGE_TXN;
    }
}

static void free_call(struct etcd_call *call)
{
    assert(call->connection->in_flight > 0);
    assert(call->connection->unclaimed >= call->unclaimed);
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    call->connection->unclaimed -= call->unclaimed;
    call->connection->in_flight--;

    if (call->deletes_in) {
        call->deletes_in->deleting--;
        call->connection->etcd->deleting--;
    }

    etcd_proof_free(call->proof);
    block_free(&call->connection->etcd->pool, call);
}

void etcd_call_claim_none(struct etcd_call *call)
{
    call->connection->unclaimed += !call->unclaimed;
    call->unclaimed = true;
}

void etcd_call_abandon(struct etcd_call *call)
{
    assert(!call->entry || call->entry->call == call);
    call->entry = NULL;
    call->admin = NULL;
    etcd_call_claim_none(call);
}

static struct etcd_call *start_call(struct etcd_connection *c, enum call_kind kind,
                                    const char *path, nanos now)
{
    assert(c->number < CONNECTIONS);
    struct etcd *e = c->etcd;
    struct etcd_call *call = e->message.failed ? NULL : block_calloc(&e->pool, sizeof *call);
    if (!call)
        return NULL;

    *call = (struct etcd_call){.connection = c,
                               .kind = kind,
                               .number = ++e->calls,
                               .revision = e->revision,
                               .sent_at = now};
    call->stream =
        http2_call(c->http2, path, e->message.bytes, e->message.len, kind == CALL_WATCH, call);
    if (call->stream < 0) {
        block_free(&e->pool, call);
        return NULL;
    }

    c->in_flight++;
    call->next = c->calls;
    call->link = &c->calls;
    if (c->calls)
        c->calls->link = &call->next;
    c->calls = call;
    return call;
}

struct etcd_call *etcd_call(struct etcd_connection *c, enum call_kind kind, nanos now)
{
    assert(c->state == CONNECTION_UP || c->state == CONNECTION_GREETING);
    struct etcd_call *call = start_call(c, kind, path_of(kind), now);
    if (!call)
        c->is_broken = true; /* No memory: the message cannot be kept. */
    return call;
}

struct etcd_call *etcd_call_path(struct etcd_connection *c, const char *path, nanos now)
{
    assert(c->state == CONNECTION_UP);
    return start_call(c, CALL_ADMIN, path, now);
}

/* ---- Up and down ---- */

static void set_why(struct etcd_connection *c, hf_status status, const char *why)
{
    assert(status != HF_OK && why);
    const struct etcd *e = c->etcd;
    c->status = status;

    if (strstr(why, e->where))
        snprintf(c->why, sizeof c->why, "%.300s", why);
    else
        snprintf(c->why, sizeof c->why, "%.120s: %.180s", e->where, why);
}

/* The call ended without a reply. Lets its session, name or epoch send another call. */
static void reset_owner(struct etcd_call *call)
{
    assert(call->connection);
    struct etcd *e = call->connection->etcd;
    if (call->session && call->kind == CALL_KEEP_ALIVE)
        call->session->keepalive = NULL;
    if (call->session && call->kind == CALL_GRANT_LEASE)
        call->session->base.state = SESSION_NONE;
    if (call->name)
        call->name->reading = NULL;
    if (call->kind == CALL_RAISE_EPOCH)
        e->raising = false;
}

/* Takes all calls from the connection and replies to their owners. */
static void cut_calls(struct etcd_connection *c, nanos now)
{
    assert(c->number < CONNECTIONS);
    struct etcd *e = c->etcd;
    while (c->calls) {
        struct etcd_call call = *c->calls;
        free_call(c->calls);
        if (call.answered)
            continue;
        reset_owner(&call);
        e->must_raise_epoch |= call.kind == CALL_ACQUIRE;
        if (call.entry)
            etcd_entry_on_cut(e, &call, false, c->status, c->why, now);
        if (call.admin)
            etcd_admin_on_end(e, &call, &(struct http2_end){.code = -1, .text = c->why}, now);
    }
}

void etcd_connection_close(struct etcd_connection *c)
{
    while (c->calls)
        free_call(c->calls);
    if (c->state != CONNECTION_DOWN)
        c->etcd->host->hang_up(c->etcd->host->ctx, c->number);
    http2_close(c->http2);
    c->http2 = NULL;
    c->state = CONNECTION_DOWN;
}

static void go_down(struct etcd_connection *c, hf_status status, const char *why, nanos now)
{
    assert(c->state != CONNECTION_DOWN && status != HF_OK);
    struct etcd *e = c->etcd;
    set_why(c, status, why);
    http2_close(c->http2);
    c->http2 = NULL;
    c->state = CONNECTION_DOWN;
    c->is_broken = false;
    c->ack_since = 0;
    redial_next_server(&c->redial, e->endpoints.count, now, &e->limits, &e->overrides,
                       e->host->random(e->host->ctx));
    cut_calls(c, now);
    if (c->number == CONNECTION_WATCHES) {
        e->watch_stream = -1;
        e->watch_call = NULL;
        etcd_views_lost(e);
        return;
    }

    /* Both connections go to the same member. If it is silent on one, the other is closed as
     * well. */
    e->connection[CONNECTION_WATCHES].is_broken |=
        e->connection[CONNECTION_WATCHES].state != CONNECTION_DOWN;
    bool dials_again = status == HF_UNAVAILABLE && c->redial.dial_at <= now;

    if (!dials_again) {
        etcd_entries_fail_unsent(e, c);
        etcd_admins_fail(e, c);
    }
}

void etcd_connection_drop(struct etcd_connection *c, hf_status status, const char *why, nanos now)
{
    assert(why);
    if (c->state == CONNECTION_DOWN)
        return;
    c->etcd->host->hang_up(c->etcd->host->ctx, c->number);
    go_down(c, status, why, now);
}

void etcd_connection_down(struct etcd_connection *c, hf_status status, const char *why, nanos now)
{
    if (c->state != CONNECTION_DOWN)
        go_down(c, status, why, now);
}

bool etcd_connection_need(struct etcd_connection *c, nanos now)
{
    assert(c->state == CONNECTION_DOWN || c->etcd->endpoint);
    struct etcd *e = c->etcd;
    if (c->state == CONNECTION_DOWN && now >= c->redial.dial_at) {
        c->state = CONNECTION_DIALLED;
        c->since = now;
        if (c->number == CONNECTION_COMMANDS) {
            e->endpoint = endpoints_turn(&e->endpoints, c->redial.failures);
            endpoint_print(e->endpoint, e->where);
        }
        e->host->dial(e->host->ctx, c->number, e->endpoint);
    }

    return c->state == CONNECTION_UP;
}

/* ---- The greeting ---- */

static void become_up(struct etcd_connection *c, nanos now)
{
    assert(c->number < CONNECTIONS);
    struct etcd *e = c->etcd;
    c->state = CONNECTION_UP;
    if (c->number == CONNECTION_WATCHES) {
        etcd_views_resume(e, now);
        return;
    }

    etcd_entries_notify_waiters(e);
    etcd_entries_advance(e, now);
    etcd_admins_advance(e, now);
}

static void authenticate(struct etcd_connection *c, nanos now)
{
    assert(c->number < CONNECTIONS);
    struct etcd *e = c->etcd;
    c->state = CONNECTION_GREETING;
    c->since = now;
    e->token[0] = '\0';
    pb_clear(&e->message);
    message_authenticate(&e->message, e->endpoints.user, e->endpoints.password);
    struct etcd_call *call = etcd_call(c, CALL_AUTHENTICATE, now);
    if (call)
        etcd_call_abandon(call);
}

static void on_message(void *ctx, void *call, const char *bytes, size_t len);
static void on_end(void *ctx, void *call, const struct http2_end *end);

static void send_bytes(void *ctx, const void *bytes, size_t len)
{
    struct etcd_connection *c = ctx;
    if (!c->etcd->host->send(c->etcd->host->ctx, c->number, bytes, len))
        c->is_broken = true;
}

void etcd_connection_up(struct etcd_connection *c, nanos now)
{
    static const struct http2_events events = {
        .send = send_bytes, .on_message = on_message, .on_end = on_end};
    struct etcd *e = c->etcd;
    assert(c->state == CONNECTION_DIALLED && !c->http2);
    c->http2 = http2_open(&events, c, e->where, e->token);
    if (!c->http2) {
        etcd_connection_drop(c, HF_UNAVAILABLE, "no memory for a connection", now);
        return;
    }

    bool needs_token = e->endpoints.user[0] && !e->token[0] && c->number == CONNECTION_COMMANDS;
    if (needs_token)
        authenticate(c, now);
    else
        become_up(c, now);

    etcd_connection_flush(e, now);
}

static void on_authenticated(struct etcd_connection *c, const struct message *m, nanos now)
{
    assert(c->number < CONNECTIONS);
    struct etcd *e = c->etcd;
    if (m->token.len == 0 || m->token.len >= sizeof e->token) {
        c->is_broken = true;
        return;
    }

    memcpy(e->token, m->token.at, m->token.len);
    e->token[m->token.len] = '\0';
    become_up(c, now);
}

/* ---- Replies ---- */

/* Returns true if a quorum has answered with an older revision than was seen before the call was
 * sent: the cluster has lost data. That happens if a member with the same id was set up anew
 * without its data. */
static bool went_back(const struct etcd_call *call, const struct reply_header *header)
{
    bool is_quorum =
        message_of(call->kind) == MESSAGE_TXN || message_of(call->kind) == MESSAGE_RANGE;
    return is_quorum && header->revision < call->revision;
}

/* Another cluster answers at this address, or the cluster has lost its data. Forget everything
 * about keys and leases. */
static void check_cluster(struct etcd *e, const struct etcd_call *call,
                          const struct reply_header *header, nanos now)
{
    assert(call->connection);
    bool is_other = header->cluster && header->cluster != e->cluster;
    bool is_void = e->cluster && (is_other || went_back(call, header));
    if (is_other)
        e->cluster = header->cluster;
    if (header->revision > e->revision || is_void)
        e->revision = header->revision;
    if (!is_void)
        return;

    for (struct etcd_call *other = call->connection->calls; other; other = other->next)
        /* Forget the revision that this call was sent with: the client had not noticed yet that the
         * data was lost. */
        other->revision = 0;
    for (struct etcd_name *name = e->names; name; name = name->next)
        name->read_at = name->revision = name->gap = name->resize_at = name->count = 0;
    for (struct session *s = e->sessions; s; s = s->next)
        etcd_session_lost(e, (struct etcd_session *)s, now);
}

static void dispatch(struct etcd_call *call, struct message *m, nanos now)
{
    assert(call->connection);
    struct etcd *e = call->connection->etcd;
    switch (call->kind) {
    case CALL_AUTHENTICATE:
        on_authenticated(call->connection, m, now);
        break;
    case CALL_GRANT_LEASE:
    case CALL_KEEP_ALIVE:
    case CALL_RAISE_EPOCH:
    case CALL_PROVE_DOOR:
        etcd_session_on_reply(e, call, m, now);
        break;
    case CALL_PROVE:
        etcd_renewal_on_reply(e, call, m, now);
        break;
    case CALL_READ_VIEW:
        etcd_view_on_read(e, call, m, now);
        break;
    default:
        if (call->entry)
            etcd_entry_on_reply(e, call, m, now);
        break;
    }
}

/* Returns false for a lease that no etcd grants: without an id, or with a ttl that the engine
 * cannot count with. A keepalive may say 0: the lease has ended. */
static bool is_lease_sound(const struct etcd_call *call, const struct message *m)
{
    bool grants = call->kind == CALL_GRANT_LEASE || call->kind == CALL_ORPHAN_LEASE;
    bool is_usable = m->lease && m->ttl > 0;
    return m->ttl <= ETCD_LEASE_TTL_MAX && (!grants || is_usable);
}

/* Only a server that answers counts as reached: one that merely accepts connections, or sends
 * nonsense, is dialled again after growing pauses. */
static void note_answer(struct etcd_connection *c)
{
    struct etcd *e = c->etcd;
    assert(e->endpoint);
    c->redial.failures = 0;
    if (c->number == CONNECTION_COMMANDS)
        endpoints_keep(&e->endpoints, e->endpoint);
}

static void on_message(void *ctx, void *which, const char *bytes, size_t len)
{
    struct etcd_connection *c = ctx;
    struct etcd *e = c->etcd;
    struct etcd_call *call = which;
    struct message m;
    c->replied_at = e->last_now;
    if (call->kind == CALL_WATCH) {
        note_answer(c);
        etcd_view_on_watch(e, bytes, len, e->last_now);
        return;
    }
    if (call->answered)
        return;
    if (call->kind == CALL_ADMIN) {
        call->answered = true;
        note_answer(c);
        if (call->admin)
            etcd_admin_on_reply(e, call, bytes, len, e->last_now);
        return;
    }

    bool is_read = message_read(&m, message_of(call->kind), bytes, len);
    if (!is_read || !is_lease_sound(call, &m)) {
        set_why(c, HF_UNAVAILABLE, "the server sent a reply that makes no sense");
        c->is_broken = true;
        return;
    }

    call->answered = true;
    note_answer(c);
    m.call = call->number;
    check_cluster(e, call, &m.header, e->last_now);
    dispatch(call, &m, e->last_now);
}

/* ---- Refusals ---- */

enum {
    GRPC_CANCELLED = 1,
    GRPC_INVALID = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_DENIED = 7,
    GRPC_EXHAUSTED = 8,
    GRPC_PRECONDITION = 9,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
};

static bool needs_new_token(const struct etcd *e, const struct http2_end *end)
{
    bool old = end->code == GRPC_INVALID && strstr(end->text, "auth store is old");
    return e->endpoints.user[0] && (end->code == GRPC_UNAUTHENTICATED || old);
}

/* A server without authentication refuses the login. That is harmless: requests work without
 * one. */
static void on_authenticate_refused(struct etcd_connection *c, const struct http2_end *end,
                                    nanos now)
{
    assert(c->number < CONNECTIONS);
    bool is_off = end->code == GRPC_PRECONDITION && strstr(end->text, "not enabled");
    bool refused = end->code == GRPC_INVALID || end->code == GRPC_DENIED;
    if (is_off) {
        become_up(c, now);
        return;
    }

    set_why(c, refused ? HF_DENIED : HF_UNAVAILABLE, end->text);
    c->is_broken = true;
}

static void on_internal_refused(struct etcd_connection *c, struct etcd_call *call,
                                const struct http2_end *end, nanos now)
{
    assert(call->connection);
    struct etcd *e = c->etcd;
    reset_owner(call);
    if (end->code == GRPC_NOT_FOUND && call->session) {
        etcd_session_lost(e, call->session, now);
        etcd_entries_advance(e, now);
        return;
    }

    hf_status status = end->code == GRPC_EXHAUSTED ? HF_FULL : HF_UNAVAILABLE;
    if (end->code == GRPC_DENIED || end->code == GRPC_INVALID)
        status = HF_DENIED;
    set_why(c, status, end->text);

    if (status == HF_UNAVAILABLE)
        c->is_broken = true;
    else
        etcd_entries_fail_unsent(e, c);
}

static void renew_token(struct etcd_connection *c, struct etcd_call *call, nanos now)
{
    assert(call->connection);
    if (call->entry)
        call->entry->call = NULL; /* The request is sent again once there is a new token. */
    reset_owner(call);
    if (c->number == CONNECTION_COMMANDS && c->state == CONNECTION_UP)
        authenticate(c, now);
    if (c->number == CONNECTION_WATCHES)
        c->is_broken = true;
}

static void refuse(struct etcd_connection *c, struct etcd_call *call, const struct http2_end *end,
                   nanos now)
{
    assert(call->connection);
    struct etcd *e = c->etcd;
    if (call->kind == CALL_AUTHENTICATE) {
        on_authenticate_refused(c, end, now);
    } else if (needs_new_token(e, end)) {
        renew_token(c, call, now);
    } else if (call->admin) {
        etcd_admin_on_end(e, call, end, now);
    } else if (call->entry) {
        etcd_entry_on_refusal(e, call, end, now);
    } else if (call->kind == CALL_WATCH) {
        set_why(c, HF_UNAVAILABLE, end->text);
        c->is_broken = true;
    } else if (!call->unclaimed || call->session || call->name) {
        on_internal_refused(c, call, end, now);
    }

    if (end->code == GRPC_UNAVAILABLE && e->endpoints.count > 1)
        c->is_broken = true; /* This member has no leader. Another member may have one: redial. */
}

static void on_end(void *ctx, void *which, const struct http2_end *end)
{
    struct etcd_connection *c = ctx;
    struct etcd_call *call = which;
    nanos now = c->etcd->last_now;
    c->replied_at = now;

    if (call->kind == CALL_WATCH) {
        c->etcd->watch_stream = -1;
        c->etcd->watch_call = NULL;
    }

    if (end->not_grpc) {
        set_why(c, HF_CONFIG, "the server is not an etcd that speaks API v3");
        c->is_broken = true;
    } else if (!call->answered || call->kind == CALL_WATCH) {
        call->answered = true;
        bool is_cut = end->code < 0;
        if (is_cut && call->entry)
            etcd_entry_on_cut(c->etcd, call, end->not_processed, HF_UNAVAILABLE,
                              "the server ended the call", now);
        else if (is_cut)
            c->is_broken = true;
        else
            refuse(c, call, end, now);
    }

    if (!(end->not_grpc && !call->answered))
        free_call(call);
}

/* ---- Bytes and time ---- */

static bool drop_if_broken(struct etcd_connection *c, nanos now)
{
    assert(c->number < CONNECTIONS);
    if (!c->is_broken || c->state == CONNECTION_DOWN)
        return false;

    bool has_reason = c->why[0] && c->status != HF_OK;
    char why[sizeof c->why];
    hf_status status = has_reason ? c->status : HF_UNAVAILABLE;
    snprintf(why, sizeof why, "%s", has_reason ? c->why : "the connection is of no use");
    etcd_connection_drop(c, status, why, now);
    return true;
}

/* etcd sends a PING ahead of each reply, to measure. Its acknowledgement goes out with the next
 * request: a send of its own would wake the server once more for each request. */
static bool may_acknowledge_later(const struct etcd_connection *c, nanos now)
{
    bool waits = c->ack_since && now - c->ack_since < ETCD_SHARE;
    return waits && !http2_must_flush(c->http2) && !http2_closing(c->http2);
}

static void flush(struct etcd_connection *c)
{
    c->ack_since = 0;
    if (http2_flush(c->http2))
        return;
    if (!http2_greeted(c->http2))
        set_why(c, HF_CONFIG, "the server does not speak HTTP/2: it is not an etcd");
    c->is_broken = true;
}

void etcd_connection_flush(struct etcd *e, nanos now)
{
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct etcd_connection *c = &e->connection[i];
        if (c->http2 && !may_acknowledge_later(c, now))
            flush(c);
        drop_if_broken(c, now);
    }
}

/* Decides whether the acknowledgement of these bytes may wait for the next request. It may if they
 * belong to a call or come shortly after one. A PING on an idle connection asks whether the client
 * lives, and after many bytes the server needs its window back. */
static void note_received(struct etcd_connection *c, size_t len, nanos now)
{
    bool has_call = c->in_flight > 0 || now - c->replied_at < ETCD_SHARE;
    bool belongs_to_call = c->number == CONNECTION_COMMANDS && has_call;
    if (!belongs_to_call || len > ACK_LATER_MAX)
        c->ack_since = 0;
    else if (!c->ack_since)
        c->ack_since = now;
}

void etcd_connection_bytes(struct etcd_connection *c, const char *bytes, size_t len, nanos now)
{
    assert(c->state != CONNECTION_DOWN);
    const char *text;
    c->status = HF_OK;
    note_received(c, len, now);

    if (c->http2 && !http2_receive(c->http2, bytes, len, &text)) {
        bool is_new = c->number == CONNECTION_COMMANDS && !c->etcd->cluster;
        set_why(c, is_new ? HF_CONFIG : HF_UNAVAILABLE, text);
        c->is_broken = true;
    }

    if (c->http2 && http2_closing(c->http2) && !c->calls)
        c->is_broken = true;
    drop_if_broken(c, now);
}

static const struct etcd_call *oldest_call(const struct etcd_connection *c)
{
    assert(c->number < CONNECTIONS);
    const struct etcd_call *oldest = NULL;
    for (const struct etcd_call *call = c->calls; call; call = call->next) {
        bool counts = call->kind != CALL_WATCH && !call->answered;
        if (counts && (!oldest || call->sent_at < oldest->sent_at))
            oldest = call;
    }

    return oldest;
}

nanos etcd_connection_tick(struct etcd_connection *c, nanos now)
{
    assert(c->number < CONNECTIONS);
    if (c->state == CONNECTION_DOWN)
        return c->redial.dial_at;

    nanos due = TIME_NEVER;
    if (c->state != CONNECTION_UP)
        due = c->since + c->etcd->connect_timeout;
    const struct etcd_call *oldest = oldest_call(c);
    nanos limit = c->etcd->call_timeout;

    /* A server that replies to other calls is not silent. Other bytes do not count: HTTP/2
     * acknowledges requests that a member cannot answer because its leader is hung. */
    if (oldest) {
        nanos quiet_since = c->replied_at > oldest->sent_at ? c->replied_at : oldest->sent_at;
        nanos end = quiet_since + limit, latest = oldest->sent_at + BUSY_FACTOR * limit;
        end = end < latest ? end : latest;
        due = end < due ? end : due;
    }

    if (now < due)
        return due;

    bool was_up = c->state == CONNECTION_UP;
    etcd_connection_drop(c, HF_UNAVAILABLE,
                         was_up ? "no answer came in time" : "connecting took too long", now);
    return now;
}
