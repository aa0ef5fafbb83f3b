/* zk_entry.c - requests for locks: what each verb sends next.
 *
 * zk_entry_advance() is called whenever something that the entry may wait for has happened: a
 * connection, a quorum write, a reply. All its requests in flight belong to one step; the next step
 * begins when all of them are answered. */
#include "engines/kit/unheard.h"
#include "zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An EXTEND may share a quorum write that was sent up to 1/12 of the ttl earlier. In a session with
 * many members it shares each write that leaves it half of the ttl: otherwise their EXTENDs, which
 * come at all times, would need a write every twelfth. With half of the ttl the next EXTEND comes
 * when a third is left, and a session needs one write in a third of the ttl at most. */
enum { SHARE_PART = 12, MANY_MEMBERS = 16 };

/* ---- Making and dropping ---- */

static void link_to_lock(struct zk_entry *entry, struct zk_lock *lock)
{
    entry->lock = lock;
    entry->beside = lock->entries;
    lock->entries = entry;
    lock->has_permits |= entry->sent.kind == HF_SEMAPHORE;
    zk_session_attach(entry, lock->session);
}

static void unlink_from_lock(struct zk_entry *entry)
{
    struct zk_entry **at = &entry->lock->entries;
    zk_session_attach(entry, NULL);
    while (*at != entry)
        at = &(*at)->beside;
    *at = entry->beside;
    zk_lock_loosen(entry->lock);
}

static bool is_private(const struct engine_op *op)
{
    return op->detached || op->named;
}

static struct zk_session *session_to_begin(struct zk *zk, const struct engine_op *op)
{
    return zk_session_of(zk, op->ttl_ms, is_private(op) ? &op->attempt : NULL);
}

static struct zk_entry *make_entry(struct zk *zk, struct engine_op *op)
{
    /* An attempt that another process began may already have a place. */
    bool is_elsewhere = op->verb != OP_ACQUIRE || op->named;
    struct zk_session *session = is_elsewhere ? zk_session_any(zk) : session_to_begin(zk, op);
    struct zk_lock *lock = session ? zk_lock_of(session, op->name, op->name_len) : NULL;
    struct zk_entry *entry = lock ? calloc(1, sizeof *entry) : NULL;
    if (!entry)
        return NULL;

    entry->op = op;
    entry->sent = *op;
    entry->is_elsewhere = is_elsewhere;
    entry->stage = is_elsewhere ? ENTRY_UNKNOWN : ENTRY_NONE;
    zk_id_text(&op->attempt, entry->id);
    link_to_lock(entry, lock);
    entry->next = zk->entries;
    entry->link = &zk->entries;
    if (zk->entries)
        zk->entries->link = &entry->next;
    zk->entries = entry;
    op->engine_state = entry;
    return entry;
}

void zk_entry_forget_place(struct zk_entry *entry)
{
    free(entry->place);
    free(entry->ahead);
    entry->place = entry->ahead = NULL;
    entry->created = 0;
    if (entry->is_seen)
        entry->lock->session->watched--;
    entry->is_seen = false;
}

void zk_entry_set_stage(struct zk_entry *entry, enum entry_stage stage)
{
    entry->stage = stage;
    session_set_waits(&entry->member, stage == ENTRY_QUEUED);
    entry->was_held |= stage == ENTRY_HELD;
    if (stage != ENTRY_QUEUED)
        entry->is_granted = false;
    if (stage == ENTRY_HELD) {
        free(entry->ahead);
        entry->ahead = NULL;
    }
}

bool zk_entry_move(struct zk_entry *entry, struct zk_session *to)
{
    const char *name = strrchr(entry->lock->path, '/') + 1;
    char plain[HF_NAME_MAX + 1];
    size_t len = zk_name_decode(plain, sizeof plain, name, strlen(name));
    struct zk_lock *lock = zk_lock_of(to, plain, len);
    if (!lock)
        return false;
    zk_calls_unclaim(entry);
    zk_calls_abandon_entry(entry->lock->session, entry);
    unlink_from_lock(entry);
    entry->is_seen = false;
    entry->in_flight = 0;
    link_to_lock(entry, lock);
    return true;
}

static void drop_entry(struct zk_entry *entry)
{
    zk_calls_unclaim(entry);
    zk_calls_abandon_entry(entry->lock->session, entry);
    unlink_from_lock(entry);
    if (entry->op)
        entry->op->engine_state = NULL;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    free(entry->place);
    free(entry->ahead);
    free(entry);
}

void zk_entries_reap(struct zk *zk)
{
    struct zk_entry *next;
    if (!zk->has_done)
        return;
    zk->has_done = false;
    for (struct zk_entry *entry = zk->entries; entry; entry = next) {
        next = entry->next;
        if (entry->is_done && !entry->in_flight)
            drop_entry(entry);
        else
            zk->has_done |= entry->is_done;
    }
}

void zk_entries_close(struct zk *zk)
{
    while (zk->entries)
        drop_entry(zk->entries);
}

/* ---- Replying ---- */

static connection_set connections_of(const struct zk_entry *entry)
{
    bool listens = entry->verb != OP_NONE || entry->stage == ENTRY_QUEUED;
    return listens ? zk_session_bit(entry->lock->session) : 0;
}

void zk_entry_reply(struct zk *zk, struct zk_entry *entry, struct engine_reply reply)
{
    bool is_answer = reply.kind != REPLY_NOTIFY;
    if (is_answer) {
        reply.asked_at = entry->asked_at;
        entry->verb = OP_NONE;
    }
    if (!entry->op) {
        entry->is_done = is_answer;
        zk->has_done |= is_answer;
        return;
    }
    entry->op->connections = connections_of(entry);
    zk->host->on_reply(zk->host->ctx, entry->op, &reply);
}

void zk_entry_fail(struct zk *zk, struct zk_entry *entry, hf_status status, const char *text,
                   nanos retry_at)
{
    assert(status != HF_OK);
    zk_entry_reply(zk, entry,
                   (struct engine_reply){
                       .kind = REPLY_FAILED, .status = status, .text = text, .retry_at = retry_at});
}

void zk_entry_notify(struct zk *zk, struct zk_entry *entry)
{
    if (entry->verb == OP_NONE)
        zk_entry_reply(zk, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
}

/* Fails the requests that were not sent. A forgotten entry is kept: its deletion is sent once there
 * is a connection again. */
void zk_entries_fail_unsent(struct zk_session *s)
{
    for (struct zk_lock *lock = s->locks; lock; lock = lock->next)
        for (struct zk_entry *entry = lock->entries; entry; entry = entry->beside)
            if (entry->verb != OP_NONE && !entry->in_flight && entry->op)
                zk_entry_fail(s->zk, entry, s->status, s->why, s->redial.dial_at);
}

void zk_entry_lose(struct zk *zk, struct zk_entry *entry)
{
    bool waits = entry->stage == ENTRY_QUEUED && entry->verb == OP_NONE;
    zk_entry_forget_place(entry);
    zk_entry_set_stage(entry, ENTRY_NONE);
    if (waits)
        zk_entry_notify(zk, entry);
    else if (entry->verb != OP_NONE && entry->verb != OP_ACQUIRE)
        zk_entry_reply(zk, entry,
                       (struct engine_reply){.kind = REPLY_NOT_HELD,
                                             .retry_at = TIME_NEVER,
                                             .text = "its node in ZooKeeper is gone"});
}

/* ---- Sending ---- */

/* Sends a call that belongs to a step of the entry. */
static struct zk_call *send_call(struct zk_entry *entry, enum zk_call_kind kind, nanos now)
{
    struct zk_session *s = entry->lock->session;
    struct zk_call *call = zk_call_send(s, kind, now);
    if (!call)
        return NULL;
    call->entry = entry;
    entry->in_flight++;
    if (!entry->op)
        zk_call_claim_none(s, call);
    return call;
}

static void send_make(struct zk *zk, struct zk_entry *entry, const char *path, enum zk_node node,
                      nanos now)
{
    struct zk_create create = {
        .path = path, .node = node, .is_private = zk->endpoints.user[0] != '\0'};
    zk_put_create(&zk->message, zk_call_begin(entry->lock->session), &create);
    send_call(entry, CALL_MAKE, now);
}

/* Sends the creation of all nodes above the place. Those that exist are left unchanged. */
static void send_parents(struct zk *zk, struct zk_entry *entry, nanos now)
{
    char path[ZK_ROOT_MAX + 1];
    for (size_t i = 1; i <= strlen(zk->root); i++) {
        if (zk->root[i] != '/' && zk->root[i] != '\0')
            continue;
        memcpy(path, zk->root, i);
        path[i] = '\0';
        send_make(zk, entry, path, ZK_PERSISTENT, now);
    }
    send_make(zk, entry, entry->lock->path, ZK_CONTAINER, now);
}

void zk_entry_send_create(struct zk *zk, struct zk_entry *entry, nanos now)
{
    struct zk_session *s = entry->lock->session;
    char data[ZK_DATA_MAX], *path = zk_place_path(zk, entry);
    if (!path) {
        zk_entry_fail(zk, entry, HF_NO_MEMORY, "no memory for a request", TIME_NEVER);
        return;
    }
    if (entry->makes_parents)
        send_parents(zk, entry, now);
    entry->makes_parents = false;

    struct zk_create create = {.path = path,
                               .data = {data, zk_data_write(zk, entry, data, now)},
                               .node = ZK_EPHEMERAL_SEQUENTIAL,
                               .is_private = zk->endpoints.user[0] != '\0'};
    entry->noted_ttl_ms = entry->sent.ttl_ms;
    zk_put_create(&zk->message, zk_call_begin(s), &create);
    if (send_call(entry, CALL_CREATE, now))
        zk_lock_list(entry->lock, now);
    free(path);
}

void zk_entry_send_delete(struct zk *zk, struct zk_entry *entry, nanos now)
{
    assert(entry->place);
    zk_put_delete(&zk->message, zk_call_begin(entry->lock->session), entry->place);
    struct zk_call *call = send_call(entry, CALL_DELETE, now);
    if (!call)
        return;
    call->deletes = true;
    zk->deleting++;
}

void zk_entry_send_watch(struct zk_entry *entry, nanos now)
{
    assert(entry->ahead);
    struct zk_session *s = entry->lock->session;
    zk_put_get_data(&s->zk->message, zk_call_begin(s), entry->ahead, true);
    struct zk_call *call = zk_call_send(s, CALL_WATCH, now);
    if (!call)
        return;
    call->entry = entry;
    zk_call_claim_none(s, call);
}

/* Looks for a place of this attempt. The sync makes the list at least as new as every request of
 * this session, and of another process that has ended. */
static void send_find(struct zk *zk, struct zk_entry *entry, nanos now)
{
    struct zk_session *s = entry->lock->session;
    zk_put_sync(&zk->message, zk_call_begin(s), entry->lock->path);
    struct zk_call *call = zk_call_send(s, CALL_SYNC, now);
    if (!call)
        return;
    zk_call_claim_none(s, call);
    zk_put_children(&zk->message, zk_call_begin(s), entry->lock->path, false);
    send_call(entry, CALL_FIND, now);
}

static void send_read(struct zk *zk, struct zk_entry *entry, nanos now)
{
    zk_put_get_data(&zk->message, zk_call_begin(entry->lock->session), entry->place, false);
    send_call(entry, CALL_READ, now);
}

static void send_see(struct zk *zk, struct zk_entry *entry, nanos now)
{
    zk_put_get_data(&zk->message, zk_call_begin(entry->lock->session), entry->place, true);
    send_call(entry, CALL_SEE, now);
}

void zk_entry_send_note(struct zk *zk, struct zk_entry *entry, struct jute_bytes data, nanos now)
{
    zk_put_set_data(&zk->message, zk_call_begin(entry->lock->session), entry->place, data);
    send_call(entry, CALL_NOTE, now);
}

/* ---- What a verb needs ---- */

/* Returns true if the session's timeout allows the ttl. If not, asks for a longer timeout, and the
 * entry waits for it. */
static bool has_ttl(struct zk *zk, struct zk_entry *entry)
{
    struct zk_session *s = entry->lock->session;
    char text[200];
    if (!zk_session_raise(s, entry->sent.ttl_ms))
        return false;
    if (entry->sent.ttl_ms <= zk_session_ttl_max(s))
        return true;
    snprintf(text, sizeof text,
             "ttl: %lld ms is too long here: sessions of this ensemble last %d ms at most "
             "(maxSessionTimeout), so a ttl is at most %lld ms",
             (long long)entry->sent.ttl_ms, s->timeout_ms, (long long)zk_session_ttl_max(s));
    zk_entry_fail(zk, entry, HF_INVALID, text, TIME_NEVER);
    return false;
}

/* Reads the data of a place that another process made: it says how to continue with its session. */
static void advance_unknown(struct zk *zk, struct zk_entry *entry, nanos now)
{
    bool deletes = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    if (!entry->place)
        send_find(zk, entry, now);
    else if (deletes)
        zk_entry_send_delete(zk, entry, now);
    else
        send_read(zk, entry, now);
}

static void advance_acquire(struct zk *zk, struct zk_entry *entry, nanos now)
{
    if (entry->stage == ENTRY_QUEUED) {
        if (!entry->lock->lists)
            zk_lock_list(entry->lock, now);
    } else if (entry->stage == ENTRY_HELD) {
        zk_entry_granted(zk, entry, now);
    } else if (has_ttl(zk, entry)) {
        zk_entry_send_create(zk, entry, now);
    }
}

static void reply_extended(struct zk *zk, struct zk_entry *entry)
{
    nanos ttl = NANOS_OF_MS(entry->sent.ttl_ms);
    nanos good = session_end(&entry->lock->session->base) - entry->asked_at;
    bool checks = entry->verb == OP_CHECK && entry->good_until;
    if (checks && good > entry->good_until - entry->asked_at)
        /* Other holds may have renewed the session. */
        good = entry->good_until - entry->asked_at;
    good = good < ttl || checks ? good : ttl;
    if (entry->asked_at + good > entry->good_until)
        entry->good_until = entry->asked_at + good; /* an EXTEND never shortens the hold */
    zk_entry_set_stage(entry, ENTRY_HELD);
    zk_entry_reply(
        zk, entry,
        (struct engine_reply){.kind = REPLY_EXTENDED, .good = good, .token = entry->created});
}

/* Returns true if an answered quorum write gives the hold its ttl: one that was sent after the
 * EXTEND. For a renewal, of which less is asked, also one that was sent before it. */
static bool is_extended(const struct zk_entry *entry)
{
    const struct zk_session *s = entry->lock->session;
    nanos ttl = NANOS_OF_MS(entry->sent.ttl_ms);
    bool is_shared = s->base.count > MANY_MEMBERS;
    bool is_recent = is_shared || s->written_at >= entry->asked_at - ttl / SHARE_PART;
    nanos enough = is_shared ? ttl / 2 : ttl / 4 * 3;
    bool is_long = session_end(&s->base) - entry->asked_at >= enough;
    bool may_share = entry->sent.is_renewal && is_recent && is_long;
    return s->written_at >= entry->asked_at || may_share;
}

/* A process that continues a private session asks for the timeout in the data of the place. So an
 * EXTEND beyond that timeout writes its ttl there before the reply. Otherwise the next process
 * would shorten the hold. */
bool zk_entry_must_note(const struct zk_entry *entry)
{
    return entry->lock->session->base.is_private && entry->verb == OP_EXTEND &&
           entry->sent.ttl_ms > entry->noted_ttl_ms;
}

/* Goes on with an EXTEND, which needs two things: the place exists and is watched, and a quorum
 * write was answered. */
static void advance_extend(struct zk *zk, struct zk_entry *entry, nanos now)
{
    struct zk_session *s = entry->lock->session;
    bool extends = entry->verb == OP_EXTEND;
    if (extends && !has_ttl(zk, entry))
        return;
    if (!entry->is_seen || zk_entry_must_note(entry)) {
        send_see(zk, entry, now);
        return;
    }
    bool is_good = extends ? is_extended(entry) : session_end(&s->base) > now;
    if (is_good)
        reply_extended(zk, entry);
    else
        zk_session_beat(s, now);
}

/* Returns true while releases of this client for the lock are in flight: a request must come
 * after them. */
static bool is_being_deleted(const struct zk *zk, const struct zk_entry *entry)
{
    if (!zk->deleting || !zk->sessions->next)
        return false;
    for (const struct zk_entry *other = zk->entries; other; other = other->next) {
        bool deletes = other->verb == OP_RELEASE && other->in_flight &&
                       other->lock->session != entry->lock->session;
        if (deletes && strcmp(other->lock->path, entry->lock->path) == 0)
            return true;
    }
    return false;
}

/* Replies to a LEAVE or RELEASE of a request that has no place. */
static void reply_released(struct zk *zk, struct zk_entry *entry, enum reply_kind kind)
{
    char text[UNHEARD_TEXT_MAX];
    struct engine_reply reply = {.kind = kind};
    if (entry->unheard_since && kind == REPLY_RELEASED)
        reply =
            unheard_reply(text, entry->lock->session->where, entry->unheard_since, zk->last_now);
    zk_entry_reply(zk, entry, reply);
}

/* Sends the replies that need no server. Returns false if there is none for this op. */
static bool reply_without_place(struct zk *zk, struct zk_entry *entry)
{
    bool has_none = entry->stage == ENTRY_NONE;
    bool was_lost = entry->verb == OP_RELEASE && entry->was_held && !entry->was_deleted;
    if (has_none && (entry->verb == OP_RELEASE || entry->verb == OP_LEAVE))
        reply_released(zk, entry, was_lost ? REPLY_NOT_HELD : REPLY_RELEASED);
    else if (has_none && (entry->verb == OP_EXTEND || entry->verb == OP_CHECK))
        zk_entry_lose(zk, entry);
    else
        return false;
    return true;
}

static void advance_verb(struct zk *zk, struct zk_entry *entry, nanos now)
{
    switch (entry->verb) {
    case OP_ACQUIRE:
        advance_acquire(zk, entry, now);
        break;
    case OP_EXTEND:
    case OP_CHECK:
        advance_extend(zk, entry, now);
        break;
    case OP_RELEASE:
    case OP_LEAVE:
        zk_entry_send_delete(zk, entry, now);
        break;
    default:
        zk_entry_fail(zk, entry, HF_UNSUPPORTED, "not offered by this engine", TIME_NEVER);
    }
}

void zk_entry_advance(struct zk *zk, struct zk_entry *entry, nanos now)
{
    struct zk_session *s = entry->lock->session;
    bool grants = entry->is_granted && (entry->verb == OP_NONE || entry->verb == OP_ACQUIRE);
    if ((entry->verb == OP_NONE && !grants) || entry->in_flight || reply_without_place(zk, entry))
        return;
    if (!zk_session_need(s, now)) {
        if (s->state == SESSION_DOWN && entry->verb != OP_NONE && entry->op)
            zk_entry_fail(zk, entry, s->status, s->why, s->redial.dial_at);
        return;
    }
    if (entry->verb == OP_ACQUIRE && is_being_deleted(zk, entry)) {
        zk->has_backlog = true;
        return;
    }
    if (grants)
        zk_entry_continue_grant(zk, entry, now);
    else if (entry->stage == ENTRY_UNKNOWN)
        advance_unknown(zk, entry, now);
    else
        advance_verb(zk, entry, now);
}

void zk_session_advance(struct zk_session *s, nanos now)
{
    for (struct zk_lock *lock = s->locks; lock; lock = lock->next) {
        struct zk_entry *next;
        for (struct zk_entry *entry = lock->entries; entry; entry = next) {
            next = entry->beside;
            zk_entry_advance(s->zk, entry, now);
        }
    }
}

void zk_entries_advance(struct zk *zk, nanos now)
{
    struct zk_entry *next;
    for (struct zk_entry *entry = zk->entries; entry; entry = next) {
        next = entry->next;
        zk_entry_advance(zk, entry, now);
    }
}

/* ---- Requests of the client ---- */

/* LEAVE or RELEASE replaces a request in flight. That request gets its reply first. */
static void answer_overtaken(struct zk *zk, struct zk_entry *entry)
{
    if (entry->verb == OP_NONE)
        return;
    bool acquires = entry->verb == OP_ACQUIRE;
    entry->refusal = HF_OK;
    zk_entry_reply(zk, entry,
                   (struct engine_reply){.kind = acquires ? REPLY_QUEUED : REPLY_FAILED,
                                         .status = acquires ? HF_OK : HF_UNAVAILABLE,
                                         .retry_at = TIME_NEVER,
                                         .text = acquires ? NULL : "overtaken by a release"});
}

void zk_entry_submit(struct zk *zk, struct engine_op *op, nanos now)
{
    struct zk_entry *entry = op->engine_state ? op->engine_state : make_entry(zk, op);
    if (!entry) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .retry_at = TIME_NEVER,
                                     .status = HF_FULL,
                                     .text = "no memory, or too many sessions: holds of this "
                                             "client have too many different ttls"};
        zk->host->on_reply(zk->host->ctx, op, &reply);
        return;
    }

    entry->unheard_since = entry->verb == OP_ACQUIRE ? entry->asked_at : 0;
    answer_overtaken(zk, entry);
    entry->sent = *op;
    entry->verb = op->verb;
    entry->asked_at = now;
    entry->tries = 0;
    zk_entry_advance(zk, entry, now);
    if (op->engine_state == entry)
        op->connections = connections_of(entry);
}

/* The client forgets the op. A private hold stays: it lives as long as its session. Everything
 * else is deleted, because its session may live for long. */
void zk_entry_forget(struct zk *zk, struct engine_op *op)
{
    struct zk_entry *entry = op->engine_state;
    if (!entry)
        return;
    bool is_kept = entry->stage == ENTRY_HELD && is_private(op);
    bool may_exist = entry->stage != ENTRY_NONE || entry->in_flight;
    bool deletes = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    bool is_unknown = entry->stage == ENTRY_UNKNOWN && entry->is_elsewhere;
    entry->op = NULL;
    op->engine_state = NULL;
    op->connections = 0;
    if (!may_exist || (!deletes && (is_kept || is_unknown))) {
        drop_entry(entry);
        return;
    }

    entry->sent.name = entry->sent.label = NULL;
    entry->sent.name_len = 0;
    entry->sent.label_len = 0;
    entry->is_granted = false;
    entry->refusal = HF_OK;
    /* While it is unknown whether the place exists, the release is delayed. */
    entry->verb = OP_RELEASE;
    zk_calls_unclaim(entry);
    zk_entry_advance(zk, entry, zk->last_now);
}
