/* zk_replies.c - interprets the server's replies to requests for locks. */
#include "zookeeper.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES_MAX = 3 };

static hf_status status_of(int32_t error)
{
    switch (error) {
    case ZK_NO_AUTH:
    case ZK_AUTH_FAILED:
    case ZK_INVALID_ACL:
        return HF_DENIED;
    case ZK_QUOTA_EXCEEDED:
        return HF_FULL;
    case ZK_UNIMPLEMENTED:
        return HF_CONFIG;
    default:
        return HF_UNAVAILABLE;
    }
}

static void fail_by_error(struct zk *zk, struct zk_entry *entry, int32_t error, nanos now)
{
    assert(entry->lock);
    char text[300];
    hf_status status = status_of(error);
    snprintf(text, sizeof text, "%.100s: %.100s (%d)", entry->lock->session->where,
             zk_error_text(error), error);
    zk_entry_fail(zk, entry, status, text, status == HF_UNAVAILABLE ? now : TIME_NEVER);
}

static bool is_leaving(const struct zk_entry *entry)
{
    return entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
}

/* ---- Granting ---- */

static void reply_granted(struct zk *zk, struct zk_entry *entry, nanos now)
{
    assert(entry->lock);
    nanos wanted = now + NANOS_OF_MS(entry->sent.ttl_ms);
    nanos end = session_end(&entry->lock->session->base);
    entry->good_until = end < wanted ? end : wanted;
    zk_entry_set_stage(entry, ENTRY_HELD);
    zk_entry_reply(zk, entry,
                   (struct engine_reply){.kind = REPLY_GRANTED,
                                         .good = entry->good_until - entry->asked_at,
                                         .brief = end < wanted,
                                         .token = entry->created});
}

/* Prove the session before the grant: if the session has ended, the hold has ended with it. */
void zk_entry_continue_grant(struct zk *zk, struct zk_entry *entry, nanos now)
{
    assert(entry->is_granted);
    struct zk_session *s = entry->lock->session;
    if (entry->in_flight || s->state != SESSION_UP || s->is_broken)
        return;

    if (session_end(&s->base) - now > NANOS_OF_MS(entry->sent.ttl_ms) / 4)
        reply_granted(zk, entry, now);
    else
        zk_session_beat(s, now);
}

void zk_entry_granted(struct zk *zk, struct zk_entry *entry, nanos now)
{
    assert(entry->created);
    entry->is_granted = true;
    zk_entry_continue_grant(zk, entry, now);
}

/* ---- Refusing ---- */

static void reply_refusal(struct zk *zk, struct zk_entry *entry)
{
    assert(entry->lock);
    hf_status status = entry->refusal;
    entry->refusal = HF_OK;

    if (status == HF_BUSY)
        zk_entry_reply(zk, entry,
                       (struct engine_reply){.kind = REPLY_BUSY, .retry_at = TIME_NEVER});
    else
        zk_entry_fail(zk, entry, status, entry->refusal_text, TIME_NEVER);
}

void zk_entry_refuse(struct zk *zk, struct zk_entry *entry, hf_status status, const char *text,
                     nanos now)
{
    assert(status != HF_OK);
    if (entry->verb != OP_ACQUIRE)
        return; /* the refusal is sent when the waiter asks next */

    entry->refusal = status;
    snprintf(entry->refusal_text, sizeof entry->refusal_text, "%s", text);
    zk_entry_send_delete(zk, entry, now);
}

/* ---- Taking a place ---- */

static int32_t number_of(const char *path)
{
    struct zk_place place;
    const char *name = strrchr(path, '/') + 1;
    bool is_read = zk_place_read(&place, (struct jute_bytes){name, strlen(name)});
    return is_read ? place.sequence : 0;
}

static void on_place(struct zk *zk, struct zk_entry *entry, struct jute_reader *body, nanos now)
{
    assert(entry->lock);
    struct jute_bytes path;
    struct zk_stat stat;
    bool is_read = zk_read_created(body, &path, &stat) && path.len &&
                   memchr(path.at, '/', path.len) && stat.created > 0;
    char *place = is_read ? strndup(path.at, path.len) : NULL;
    if (!place) {
        zk_entry_set_stage(entry, ENTRY_UNKNOWN);
        zk_session_break(entry->lock->session, HF_UNAVAILABLE, "a reply makes no sense");
        return;
    }

    entry->place = place;
    entry->sequence = number_of(place);
    entry->created = (uint64_t)stat.created;
    entry->was_deleted = entry->was_held = false;
    zk_entry_set_stage(entry, ENTRY_QUEUED);
    if (is_leaving(entry))
        zk_entry_advance(zk, entry, now);
}

static void on_no_place(struct zk *zk, struct zk_entry *entry, int32_t error, nanos now)
{
    assert(entry->lock);
    bool may_make = error == ZK_NO_NODE && !entry->make_error && ++entry->tries <= TRIES_MAX;
    int32_t reason = entry->make_error ? entry->make_error : error;
    zk_entry_set_stage(entry, ENTRY_NONE);
    entry->make_error = ZK_OK;

    if (is_leaving(entry)) {
        zk_entry_advance(zk, entry, now);
    } else if (may_make) {
        entry->makes_parents = true;
        zk_entry_advance(zk, entry, now);
    } else if (entry->verb == OP_ACQUIRE) {
        fail_by_error(zk, entry, reason, now);
    }
}

static void on_made(struct zk_entry *entry, int32_t error)
{
    bool is_fine = error == ZK_OK || error == ZK_NODE_EXISTS || error == ZK_NO_NODE;
    if (!is_fine && !entry->make_error)
        entry->make_error = error;
}

/* ---- Places of unknown outcome, and of other processes ---- */

static void on_found_none(struct zk *zk, struct zk_entry *entry, nanos now)
{
    assert(entry->lock);
    bool was_elsewhere = entry->is_elsewhere;
    zk_entry_set_stage(entry, ENTRY_NONE);
    if (entry->verb == OP_RELEASE && was_elsewhere) {
        zk_entry_reply(zk, entry, (struct engine_reply){.kind = REPLY_NOT_HELD});
        return;
    }
    if (entry->verb == OP_ACQUIRE && was_elsewhere) {
        struct zk_session *own = zk_session_of(zk, entry->sent.ttl_ms, &entry->sent.attempt);
        if (!own || !zk_entry_move(entry, own)) {
            zk_entry_fail(zk, entry, HF_NO_MEMORY, "no memory for a session", TIME_NEVER);
            return;
        }
        entry->is_elsewhere = false;
    }
    zk_entry_advance(zk, entry, now);
}

static void on_find(struct zk *zk, struct zk_entry *entry, const struct zk_header *header,
                    struct jute_reader *body, nanos now)
{
    assert(entry->lock);
    if (header->error && header->error != ZK_NO_NODE)
        fail_by_error(zk, entry, header->error, now);
    else if (!header->error && zk_list_find(entry, body))
        zk_entry_advance(zk, entry, now);
    else
        on_found_none(zk, entry, now);
}

/* Takes over the session of another process. Returns false if that is not possible. */
static bool adopt(struct zk *zk, struct zk_entry *entry, const struct zk_data *data)
{
    assert(entry->lock);
    /* Any program may write the data. */
    bool is_sound = data->ttl_ms > 0 && data->ttl_ms <= zk->limits.ttl_max_ms;
    int64_t ttl_ms = is_sound ? data->ttl_ms : entry->sent.ttl_ms;
    struct zk_session *s = zk_session_of(zk, ttl_ms, &entry->sent.attempt);
    bool is_free = s && s->state == SESSION_DOWN && !s->base.count;
    if (!s || (s->id != data->session && !is_free) || !zk_entry_move(entry, s))
        return false;

    if (s->id != data->session) {
        s->id = data->session;
        s->zxid = 0;
        s->password_len = data->password_len;
        memcpy(s->password, data->password, data->password_len);
        s->timeout_ms = s->wanted_ms;
        s->written_at = 0;
        session_begin(&s->base, 0, NANOS_OF_MS(s->timeout_ms));
    }

    entry->is_elsewhere = false;
    return true;
}

static void on_read(struct zk *zk, struct zk_entry *entry, const struct zk_header *header,
                    struct jute_reader *body, nanos now)
{
    assert(entry->lock);
    struct jute_bytes bytes;
    struct zk_stat stat;
    struct zk_data data;
    if (header->error || !zk_read_data(body, &bytes, &stat)) {
        free(entry->place);
        entry->place = NULL;
        on_found_none(zk, entry, now);
        return;
    }

    bool is_known = zk_data_read(&data, bytes);
    bool is_own = stat.owner == entry->lock->session->id;
    if (!is_own && (!is_known || !data.session || !adopt(zk, entry, &data))) {
        zk_entry_fail(zk, entry, HF_UNAVAILABLE, "the attempt belongs to another session", now);
        return;
    }

    if (is_known)
        entry->noted_ttl_ms = data.ttl_ms;
    entry->created = (uint64_t)stat.created;
    zk_entry_set_stage(entry, entry->verb == OP_ACQUIRE ? ENTRY_QUEUED : ENTRY_HELD);
    zk_entry_advance(zk, entry, now);
}

/* ---- Holding and leaving ---- */

/* Reads the ttl in the data of a private hold, which another process may have changed. Returns true
 * if this EXTEND must first write its own ttl there. */
static bool notes_ttl(struct zk *zk, struct zk_entry *entry, struct jute_reader *body, nanos now)
{
    struct zk_session *s = entry->lock->session;
    struct jute_bytes bytes;
    struct zk_stat stat;
    struct zk_data data;
    char text[ZK_DATA_MAX];
    if (!s->base.is_private)
        return false;
    if (!zk_read_data(body, &bytes, &stat) || !zk_data_read(&data, bytes)) {
        entry->noted_ttl_ms = entry->sent.ttl_ms; /* not our data: nothing to write there */
        return false;
    }

    entry->noted_ttl_ms = data.ttl_ms;
    zk_session_raise(s, data.ttl_ms);
    if (!zk_entry_must_note(entry))
        return false;

    size_t len = zk_data_with_ttl(bytes, entry->sent.ttl_ms, text);
    if (len == 0) {
        zk_entry_fail(zk, entry, HF_DAMAGED, "the data of the place are too long", TIME_NEVER);
        return true;
    }
    zk_entry_send_note(zk, entry, (struct jute_bytes){text, len}, now);
    return true;
}

static void on_noted(struct zk *zk, struct zk_entry *entry, int32_t error, nanos now)
{
    if (error == ZK_NO_NODE) {
        zk_entry_lose(zk, entry);
    } else if (error) {
        fail_by_error(zk, entry, error, now);
    } else {
        entry->noted_ttl_ms = entry->sent.ttl_ms;
        zk_entry_advance(zk, entry, now);
    }
}

static void on_seen(struct zk *zk, struct zk_entry *entry, const struct zk_header *header,
                    struct jute_reader *body, nanos now)
{
    assert(entry->lock);
    if (header->error == ZK_NO_NODE) {
        zk_entry_lose(zk, entry);
        return;
    }
    if (header->error) {
        fail_by_error(zk, entry, header->error, now);
        return;
    }

    entry->lock->session->watched += !entry->is_seen;
    entry->is_seen = true;
    if (!notes_ttl(zk, entry, body, now))
        zk_entry_advance(zk, entry, now);
}

static void on_deleted(struct zk *zk, struct zk_entry *entry, int32_t error, nanos now)
{
    assert(entry->lock);
    struct zk_session *s = entry->lock->session;
    if (error != ZK_OK && error != ZK_NO_NODE) {
        entry->refusal = HF_OK;
        fail_by_error(zk, entry, error, now);
        return;
    }

    bool was_there = error == ZK_OK || entry->was_deleted || entry->verb == OP_LEAVE;
    s->is_over |= s->base.is_private && !entry->is_elsewhere;
    entry->was_deleted = entry->was_held = false;
    zk_entry_forget_place(entry);
    zk_entry_set_stage(entry, ENTRY_NONE);

    if (entry->refusal && entry->verb == OP_ACQUIRE)
        reply_refusal(zk, entry);
    else if (is_leaving(entry))
        zk_entry_reply(zk, entry,
                       (struct engine_reply){.kind = was_there ? REPLY_RELEASED : REPLY_NOT_HELD,
                                             .retry_at = TIME_NEVER});
    else
        zk_entry_advance(zk, entry, now);
}

/* Handles the reply to the watch on the place ahead. After an error the list is read again: the
 * place was deleted before the watch was set. */
static void on_watched(struct zk_entry *entry, const struct zk_header *header, nanos now)
{
    assert(entry->lock);
    if (header->error == ZK_OK || !entry->ahead)
        return;

    free(entry->ahead);
    entry->ahead = NULL;
    zk_lock_list(entry->lock, now);
}

void zk_entry_on_reply(struct zk *zk, struct zk_call *call, struct zk_header *header,
                       struct jute_reader *body, nanos now)
{
    struct zk_entry *entry = call->entry;
    if (call->kind == CALL_WATCH) {
        on_watched(entry, header, now);
        return;
    }

    assert(entry->in_flight);
    entry->in_flight--;
    switch (call->kind) {
    case CALL_MAKE:
        on_made(entry, header->error);
        break;
    case CALL_CREATE:
        if (header->error)
            on_no_place(zk, entry, header->error, now);
        else
            on_place(zk, entry, body, now);
        break;
    case CALL_FIND:
        on_find(zk, entry, header, body, now);
        break;
    case CALL_READ:
        on_read(zk, entry, header, body, now);
        break;
    case CALL_SEE:
        on_seen(zk, entry, header, body, now);
        break;
    case CALL_NOTE:
        on_noted(zk, entry, header->error, now);
        break;
    default:
        on_deleted(zk, entry, header->error, now);
    }
}

/* ---- Cut connections ---- */

static void reply_unknown(struct zk *zk, struct zk_entry *entry)
{
    zk_entry_reply(zk, entry,
                   (struct engine_reply){.kind = REPLY_UNKNOWN,
                                         .retry_at = TIME_NEVER,
                                         .text = entry->lock->session->why});
}

/* The session has expired, and all of its nodes are gone: the request was not executed, or was
 * undone. */
static void on_cut_by_expiry(struct zk *zk, struct zk_entry *entry, nanos now)
{
    if (entry->verb == OP_ACQUIRE && entry->op)
        zk_entry_fail(zk, entry, HF_UNAVAILABLE, entry->lock->session->why, now);
    else
        zk_entry_advance(zk, entry, now);
}

void zk_entry_on_cut(struct zk *zk, const struct zk_call *call, nanos now)
{
    assert(call->entry);
    struct zk_entry *entry = call->entry;
    struct zk_session *s = entry->lock->session;
    if (call->kind == CALL_WATCH)
        return;

    entry->in_flight--;
    if (s->id == 0) {
        on_cut_by_expiry(zk, entry, now);
        return;
    }

    bool places = call->kind == CALL_CREATE, deletes = call->kind == CALL_DELETE;
    if (places)
        zk_entry_set_stage(entry, ENTRY_UNKNOWN);
    entry->was_deleted |= deletes;
    if (deletes)
        entry->refusal = HF_OK;
    bool is_overtaken = places && is_leaving(entry);
    bool answers = entry->verb != OP_NONE && entry->op && !is_overtaken && call->kind != CALL_MAKE;

    if (answers && (places || deletes))
        reply_unknown(zk, entry);
    else if (answers)
        zk_entry_fail(zk, entry, HF_UNAVAILABLE, s->why, now);
}
