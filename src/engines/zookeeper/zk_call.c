/* zk_call.c - the requests in flight on a session's connection, in the order in which they were
 * sent. */
#include "zookeeper.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- Sending ---- */

int32_t zk_call_begin(struct zk_session *s)
{
    assert(s->state == SESSION_UP);
    s->xid = s->xid == INT32_MAX ? 1 : s->xid + 1;
    jute_clear(&s->zk->message);
    return s->xid;
}

static bool is_write(enum zk_call_kind kind)
{
    return kind == CALL_BEAT || kind == CALL_CREATE || kind == CALL_DELETE || kind == CALL_MAKE;
}

struct zk_call *zk_call_send(struct zk_session *s, enum zk_call_kind kind, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    const struct jute_writer *message = &s->zk->message;
    struct zk_call call = {.flight = {.sent_at = now, .id = (uint64_t)s->xid},
                           .kind = kind,
                           .touched_at = is_write(kind) ? zk_session_touched(s, now) : 0};
    bool sent =
        !message->failed && pipeline_add(&s->calls, &call, sizeof call) &&
        s->zk->host->send(s->zk->host->ctx, (unsigned)s->number, message->bytes, message->len);
    if (!sent) {
        zk_session_break(s, HF_UNAVAILABLE, "no memory for a request");
        return NULL;
    }

    s->sent_at = now;
    return pipeline_at(&s->calls, s->calls.count - 1);
}

void zk_call_claim_none(struct zk_session *s, struct zk_call *call)
{
    s->unclaimed += !call->unclaimed;
    call->unclaimed = true;
}

void zk_calls_unclaim(const struct zk_entry *entry)
{
    assert(entry->lock);
    struct zk_session *s = entry->lock->session;
    for (uint32_t i = 0; i < s->calls.count; i++) {
        struct zk_call *call = pipeline_at(&s->calls, i);
        if (call->entry == entry || call->lock == entry->lock)
            zk_call_claim_none(s, call);
    }
}

void zk_calls_abandon_entry(struct zk_session *s, const struct zk_entry *entry)
{
    assert(entry->lock);
    for (uint32_t i = 0; i < s->calls.count; i++) {
        struct zk_call *call = pipeline_at(&s->calls, i);
        if (call->entry == entry)
            call->entry = NULL;
    }
}

void zk_calls_abandon_admin(struct zk *zk, const struct zk_admin *admin)
{
    for (struct zk_session *s = zk_first_session(zk); s; s = zk_next_session(s))
        for (uint32_t i = 0; i < s->calls.count; i++) {
            struct zk_call *call = pipeline_at(&s->calls, i);
            if (call->admin != admin)
                continue;
            call->admin = NULL;
            zk_call_claim_none(s, call);
        }
}

/* ---- Replies ---- */

static struct zk_call take(struct zk_session *s)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_call call;
    pipeline_take(&s->calls, &call, sizeof call);
    s->unclaimed -= call.unclaimed;

    if (call.deletes) {
        s->zk->deleting--;
        s->zk->has_backlog = true;
    }

    return call;
}

static void on_beat(struct zk_session *s, const struct zk_header *header, nanos now)
{
    s->is_beating = false;
    if (header->error != ZK_OK && header->error != ZK_NO_NODE)
        zk_session_break(s, HF_UNAVAILABLE, zk_error_text(header->error));
    zk_session_advance(s, now);
}

/* Returns true for errors that end the connection: another server may answer, or the session has
 * expired. */
static bool ends_connection(struct zk_session *s, int32_t error)
{
    assert(s->number < (int)s->zk->numbers.room);
    if (error == ZK_SESSION_EXPIRED)
        zk_session_expired(s);
    bool ends = error == ZK_SESSION_EXPIRED || error == ZK_SESSION_MOVED ||
                error == ZK_NOT_READ_ONLY || error == ZK_THROTTLED;
    if (ends)
        zk_session_break(s, HF_UNAVAILABLE, zk_error_text(error));
    return ends;
}

static void dispatch(struct zk_session *s, struct zk_call *call, struct zk_header *header,
                     struct jute_reader *body, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk *zk = s->zk;
    switch (call->kind) {
    case CALL_BEAT:
        on_beat(s, header, now);
        break;
    case CALL_LIST:
        if (call->lock)
            zk_lock_on_list(call->lock, header, body, now);
        break;
    case CALL_ADMIN:
        if (call->admin)
            zk_admin_on_reply(zk, call, header, body, now);
        break;
    case CALL_CLOSE:
        s->must_redial = true; /* redials; a new session begins when one is needed */
        break;
    case CALL_SYNC:
        break;
    default:
        if (call->entry)
            zk_entry_on_reply(zk, call, header, body, now);
    }
}

static bool on_reply(struct zk_session *s, struct zk_header *header, struct jute_reader *body,
                     nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    if (s->calls.count == 0)
        return false;

    const struct zk_call *first = pipeline_at(&s->calls, 0);
    if ((int32_t)first->flight.id != header->xid)
        return false;

    s->answered_at = now;
    if (header->zxid > s->zxid)
        s->zxid = header->zxid;
    if (ends_connection(s, header->error))
        return true; /* the call is cut with the connection */

    struct zk_call call = take(s);
    zk_session_touch(s, call.flight.sent_at, now);
    if (call.touched_at && header->error == ZK_OK)
        zk_session_prove(s, &call);
    dispatch(s, &call, header, body, now);
    return true;
}

static bool on_event(struct zk_session *s, struct jute_reader *body, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_event event;
    if (!zk_read_event(body, &event))
        return false;

    if (event.type != ZK_EVENT_SESSION)
        zk_list_on_event(s, &event, now);
    return true;
}

bool zk_call_on_frame(struct zk_session *s, struct jute_reader *frame, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_header header;
    if (!zk_read_header(frame, &header))
        return false;

    switch (header.xid) {
    case ZK_XID_PING:
        if (s->pinged_at)
            zk_session_touch(s, s->pinged_at, now);
        s->pinged_at = 0;
        return true;
    case ZK_XID_EVENT:
        return on_event(s, frame, now);
    case ZK_XID_AUTH:
        if (header.error != ZK_OK)
            zk_session_break(s, HF_DENIED, zk_error_text(header.error));
        return true;
    default:
        return on_reply(s, &header, frame, now);
    }
}

void zk_calls_cut(struct zk_session *s, nanos now)
{
    struct zk *zk = s->zk;
    s->is_beating = false;
    while (s->calls.count) {
        struct zk_call call = take(s);
        if (call.lock)
            zk_lock_on_cut(call.lock);
        if (call.entry)
            zk_entry_on_cut(zk, &call, now);
        if (call.admin)
            zk_admin_on_cut(zk, &call);
    }

    assert(s->unclaimed == 0);
}
