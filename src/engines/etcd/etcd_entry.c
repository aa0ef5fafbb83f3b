/* etcd_entry.c - requests for locks: what each verb sends next.
 *
 * An entry has at most one call in flight, so two requests of one attempt never overtake each other
 * inside the server. etcd_entry_advance() is called whenever something that the entry may wait for
 * has happened: a connection, a session, a keepalive, a reply. */
#include "engines/kit/unheard.h"
#include "etcd.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_connection *commands(struct etcd *e)
{
    return &e->connection[CONNECTION_COMMANDS];
}

/* ---- Making and dropping ---- */

static struct etcd_entry *make_entry(struct etcd *e, struct engine_op *op)
{
    struct etcd_name *name = etcd_name_of(e, op->name, op->name_len);
    struct etcd_entry *entry = name ? block_calloc(&e->pool, sizeof *entry) : NULL;
    if (!entry)
        return NULL;

    entry->op = op;
    entry->name = name;
    /* An attempt that another process began may already have an entry and a lease. */
    entry->stage = op->verb == OP_ACQUIRE && !op->named ? ENTRY_NONE : ENTRY_UNKNOWN;
    entry->kind = op->kind;
    etcd_value_id(&op->attempt, entry->id);
    entry->hash = etcd_view_hash(entry->id, ETCD_ID_TEXT);
    entry->beside = name->entries;
    name->entries = entry;
    entry->next = e->entries;
    entry->link = &e->entries;
    if (e->entries)
        e->entries->link = &entry->next;
    e->entries = entry;
    op->engine_state = entry;
    return entry;
}

void etcd_entry_drop(struct etcd *e, struct etcd_entry *entry)
{
    assert(entry->name && *entry->link == entry);
    struct etcd_entry **at = &entry->name->entries;
    if (entry->call)
        etcd_call_abandon(entry->call);
    if (entry->watch)
        etcd_view_unwatch(e, entry->watch);
    etcd_entry_set_stage(entry, ENTRY_NONE);
    etcd_session_attach(entry, NULL);

    while (*at != entry)
        at = &(*at)->beside;
    *at = entry->beside;
    entry->name->unused_at = e->last_now;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    block_free(&e->pool, entry);
}

void etcd_entry_set_stage(struct etcd_entry *entry, enum entry_stage stage)
{
    assert(stage != ENTRY_HELD || entry->session);
    entry->stage = stage;
    session_set_waits(&entry->member, stage == ENTRY_QUEUED);
    if (stage != ENTRY_HELD)
        etcd_renewal_leave(entry);
    if (stage == ENTRY_NONE)
        entry->is_watched = false;
    if (stage == ENTRY_NONE)
        entry->created = entry->changed = entry->confirmed = 0;
    /* If the entry was deleted, the next grant begins another hold. */
    if (stage == ENTRY_NONE || stage == ENTRY_UNKNOWN)
        entry->token = 0;
    if (stage != ENTRY_QUEUED) {
        entry->is_granted = entry->is_guarded = false;
        entry->guard_at = 0;
    }
}

void etcd_entries_close(struct etcd *e)
{
    while (e->entries)
        etcd_entry_drop(e, e->entries);
}

/* ---- Replying ---- */

/* Returns the connections on which a reply to the entry may arrive. A waiter may also be granted by
 * its watch. */
static connection_set connections_of(const struct etcd_entry *entry)
{
    connection_set commands_bit = connection_set_of(CONNECTION_COMMANDS);
    connection_set watches_bit = connection_set_of(CONNECTION_WATCHES);
    connection_set waiting = entry->stage == ENTRY_QUEUED ? commands_bit | watches_bit : 0;
    return entry->verb == OP_NONE ? waiting : commands_bit | waiting;
}

void etcd_entry_reply(struct etcd *e, struct etcd_entry *entry, struct engine_reply reply)
{
    bool is_answer = reply.kind != REPLY_NOTIFY;
    if (is_answer) {
        reply.asked_at = entry->asked_at;
        entry->verb = OP_NONE;
    }
    if (!entry->op) {
        entry->is_done = is_answer;
        return;
    }
    entry->op->connections = connections_of(entry);
    e->host->on_reply(e->host->ctx, entry->op, &reply);
}

void etcd_entry_fail(struct etcd *e, struct etcd_entry *entry, hf_status status, const char *text,
                     nanos retry_at)
{
    assert(status != HF_OK);
    etcd_entry_reply(
        e, entry,
        (struct engine_reply){
            .kind = REPLY_FAILED, .status = status, .text = text, .retry_at = retry_at});
}

void etcd_entries_fail_unsent(struct etcd *e, const struct etcd_connection *connection)
{
    assert(connection->status != HF_OK);
    struct etcd_entry *next;
    for (struct etcd_entry *entry = e->entries; entry; entry = next) {
        next = entry->next;
        if (entry->verb != OP_NONE && !entry->call)
            etcd_entry_fail(e, entry, connection->status, connection->why,
                            connection->redial.dial_at);
    }
}

/* After a reconnect the lists may be out of date and sessions may have ended: waiters ask again. */
void etcd_entries_notify_waiters(struct etcd *e)
{
    for (struct etcd_entry *entry = e->entries; entry; entry = entry->next)
        if (entry->stage == ENTRY_QUEUED && entry->verb == OP_NONE)
            etcd_entry_reply(e, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
}

/* ---- Sending ---- */

static struct slice range_first(const struct etcd_name *name)
{
    return (struct slice){name->first, name->base_len + 1};
}

static struct slice range_last(const struct etcd_name *name)
{
    return (struct slice){name->last, name->base_len + 1};
}

void etcd_entry_send(struct etcd *e, struct etcd_entry *entry, enum call_kind kind, nanos now)
{
    assert(!entry->call);
    struct etcd_call *call = etcd_call(commands(e), kind, now);
    if (!call)
        return;
    if (!entry->op)
        etcd_call_claim_none(call);
    call->entry = entry;
    entry->call = call;
}

static void compare_epoch(struct etcd *e)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%016llx", (unsigned long long)e->epoch);
    struct slice key = {e->epoch_key, strlen(e->epoch_key)};
    message_compare_value(&e->message, key, (struct slice){text, (size_t)len});
}

/* A waiter that writes its entry claims its hold: the token is the revision of that write. */
static void put_entry(struct etcd *e, const struct etcd_entry *entry, int64_t lease, nanos now)
{
    char value[ETCD_VALUE_MAX];
    bool claims = entry->stage == ENTRY_QUEUED;
    bool confirms = claims && entry->kind == HF_SEMAPHORE;
    struct etcd_state state = {
        .kind = entry->kind, .confirmed = entry->confirmed || confirms, .new_token = claims};
    size_t len = etcd_value_write(e, entry, state, value, now);
    message_txn_put(&e->message, TXN_THEN, etcd_value_key(entry), (struct slice){value, len},
                    lease);
}

/* Takes a place in the queue with one write. If the attempt already has a place, the reply shows
 * that place. */
static void send_acquire(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->session && entry->verb == OP_ACQUIRE);
    const struct etcd_name *name = entry->name;
    struct slice key = etcd_value_key(entry), first = range_first(name), last = range_last(name);
    struct range_request own = {.key = key}, epoch = {.key = {e->epoch_key, strlen(e->epoch_key)}};
    struct range_request all = etcd_view_range(name, false);
    bool queues = entry->sent.queue;

    pb_clear(&e->message);
    compare_epoch(e);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL, 0);
    if (!queues && entry->sent.kind == HF_EXCLUSIVE && !entry->try_revision)
        message_compare(&e->message, first, last, COMPARE_CREATED, COMPARE_EQUAL, 0);
    else if (!queues)
        message_compare(&e->message, first, last, COMPARE_CHANGED, COMPARE_LESS,
                        entry->try_revision + 1);
    put_entry(e, entry, entry->session->lease, now);
    message_txn_range(&e->message, TXN_THEN, &all);
    message_txn_range(&e->message, TXN_ELSE, &epoch);
    message_txn_range(&e->message, TXN_ELSE, &own);
    message_txn_range(&e->message, TXN_ELSE, &all);
    if (entry->sent.kind == HF_SEMAPHORE) {
        etcd_resize_drop(e, name, SLICE_NONE);
        etcd_resize_read(e, name, TXN_THEN);
        etcd_resize_read(e, name, TXN_ELSE);
    }
    etcd_entry_send(e, entry, CALL_ACQUIRE, now);
}

void etcd_entry_send_list(struct etcd *e, struct etcd_entry *entry, enum call_kind kind, nanos now)
{
    struct range_request all = etcd_view_range(entry->name, entry->sent.kind != HF_EXCLUSIVE);
    pb_clear(&e->message);
    message_txn_range(&e->message, TXN_THEN, &all);
    if (entry->name->permits)
        etcd_resize_read(e, entry->name, TXN_THEN);
    etcd_entry_send(e, entry, kind, now);
}

void etcd_entry_send_claim(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->is_granted && entry->session);
    struct slice key = etcd_value_key(entry);
    struct range_request own = {.key = key};
    pb_clear(&e->message);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL, entry->changed);
    if (entry->kind == HF_SEMAPHORE && !entry->confirmed)
        etcd_resize_compare(e, entry->name);
    put_entry(e, entry, entry->session->lease, now);
    message_txn_range(&e->message, TXN_ELSE, &own);
    etcd_entry_send(e, entry, CALL_CLAIM, now);
}

/* Sends a transaction without a write: etcd serves it as a quorum read. */
void etcd_entry_send_verify(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    struct range_request own = {.key = etcd_value_key(entry)};
    pb_clear(&e->message);
    message_txn_range(&e->message, TXN_THEN, &own);
    etcd_entry_send(e, entry, CALL_VERIFY, now);
}

/* The condition is the time of the key's last change, not of its creation: otherwise a late move
 * could attach the entry to an older lease again. */
static void send_rewrite(struct etcd *e, struct etcd_entry *entry, enum call_kind kind,
                         struct etcd_session *to, nanos now)
{
    assert(kind == CALL_MOVE || kind == CALL_SETTLE);
    struct slice key = etcd_value_key(entry);
    struct range_request own = {.key = key};
    pb_clear(&e->message);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL, entry->changed);
    put_entry(e, entry, to->lease, now);
    message_txn_range(&e->message, TXN_ELSE, &own);
    etcd_entry_send(e, entry, kind, now);
    if (entry->call && kind == CALL_MOVE)
        entry->call->session = to, entry->call->lease = to->lease;
    entry->settle_at = 0;
}

nanos etcd_entries_settle(struct etcd *e, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct etcd_entry *entry = e->entries; entry; entry = entry->next) {
        bool settles = entry->settle_at && entry->stage == ENTRY_HELD && entry->session;
        bool is_idle = entry->verb == OP_NONE && !entry->call && entry->op;
        if (!settles || !is_idle || commands(e)->state != CONNECTION_UP)
            continue;
        if (now < entry->settle_at) {
            next = entry->settle_at < next ? entry->settle_at : next;
            continue;
        }
        entry->settle_at = 0;
        send_rewrite(e, entry, CALL_SETTLE, entry->session, now);
        if (entry->call)
            etcd_call_claim_none(entry->call);
    }
    return next;
}

/* The transaction has no put in any branch, so a server without space accepts it. */
void etcd_entry_send_delete(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->id[0]);
    struct slice key = etcd_value_key(entry);
    struct range_request own = {.key = key};
    pb_clear(&e->message);
    /* The caller may retry a refused request with the same attempt id. A late deletion must not
     * remove the new place. */
    if (entry->refusal)
        compare_epoch(e);
    if (entry->created && !entry->deletes_blindly)
        message_compare(&e->message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL,
                        entry->created);
    else
        message_compare(&e->message, key, SLICE_NONE, COMPARE_CREATED, COMPARE_GREATER, 0);
    message_txn_delete(&e->message, TXN_THEN, key);
    etcd_guard_delete(e, entry);
    if (entry->sent.kind == HF_SEMAPHORE)
        etcd_resize_drop(e, entry->name, key);
    message_txn_range(&e->message, TXN_ELSE, &own);
    etcd_entry_send(e, entry, CALL_DELETE, now);
    if (!entry->call)
        return;
    entry->call->deletes_in = entry->name;
    entry->name->deleting++;
    e->deleting++;
}

/* ---- What a verb needs ---- */

static int64_t seconds_of(int64_t ttl_ms)
{
    return (ttl_ms + 999) / 1000;
}

/* Returns the session to begin on: the door session for a request that may wait. */
static struct etcd_session *session_to_begin(struct etcd *e, const struct etcd_entry *entry)
{
    const struct engine_op *op = &entry->sent;
    int64_t seconds = seconds_of(op->ttl_ms);
    if (op->detached)
        return etcd_session_of(e, seconds, &op->attempt);
    bool door = op->queue && seconds > ETCD_DOOR_S;
    return etcd_session_of(e, door ? ETCD_DOOR_S : seconds, NULL);
}

static void advance_acquire(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    if (entry->stage == ENTRY_QUEUED) {
        etcd_entry_send_list(e, entry, CALL_REFRESH, now);
        return;
    }
    if (entry->stage == ENTRY_HELD) {
        etcd_entry_granted(e, entry, entry->token, now);
        return;
    }

    struct etcd_session *session = session_to_begin(e, entry);
    if (!session) {
        etcd_entry_fail(e, entry, HF_NO_MEMORY, "no memory for a session", TIME_NEVER);
        return;
    }
    etcd_session_attach(entry, session);
    if (!etcd_session_need(e, session, now))
        return;
    bool must_read = !entry->sent.queue && entry->sent.kind != HF_EXCLUSIVE && !entry->try_revision;
    if (must_read)
        etcd_entry_send_list(e, entry, CALL_TRY_READ, now);
    else
        send_acquire(e, entry, now);
}

/* Returns the session that gives the hold its ttl: the present session, if it is long enough. */
static struct etcd_session *session_to_extend(struct etcd *e, const struct etcd_entry *entry)
{
    int64_t seconds = seconds_of(entry->sent.ttl_ms);
    if (entry->session->base.ttl >= seconds)
        return entry->session;
    return etcd_session_of(e, seconds,
                           entry->session->base.is_private ? &entry->sent.attempt : NULL);
}

/* Goes on with an EXTEND: first a keepalive, then a quorum read that shows the entry. Renewals by
 * the client itself share both (etcd_renewal.c). */
static void advance_extend(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    bool checks = entry->verb == OP_CHECK && entry->session && entry->session->base.proven_at;
    if (!entry->created || !entry->session || checks) {
        /* The read also shows the lease that the entry is attached to. */
        etcd_entry_send_verify(e, entry, now);
        return;
    }

    struct etcd_session *session = session_to_extend(e, entry);
    if (!session) {
        etcd_entry_fail(e, entry, HF_NO_MEMORY, "no memory for a session", TIME_NEVER);
        return;
    }
    bool moves = session != entry->session;
    if (entry->sent.is_renewal && !moves) {
        if (etcd_renewal_need(e, entry, now))
            etcd_entry_reply_extended(e, entry, now);
        return;
    }
    if (moves && (!etcd_session_need(e, session, now)))
        return;
    nanos since =
        entry->sent.is_renewal ? etcd_renewal_since(session, now) : entry->asked_at - ETCD_SHARE;
    if (!etcd_session_keep(e, session, since, now))
        return;
    if (moves)
        send_rewrite(e, entry, CALL_MOVE, session, now);
    else
        etcd_entry_send_verify(e, entry, now);
}

/* If the client does not know the entry well enough, it reads the entry first, as an EXTEND
 * does. */
static void advance_convert(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    bool is_known =
        entry->created && entry->token && entry->session && entry->session->base.proven_at;
    if (is_known)
        etcd_convert_advance(e, entry, now);
    else
        advance_extend(e, entry, now);
}

/* Replies to a LEAVE of a waiter without a place, or to a RELEASE of a hold without a key. */
static void reply_no_place(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    char text[UNHEARD_TEXT_MAX];
    struct engine_reply reply = {.kind = REPLY_RELEASED};
    if (entry->unheard_since)
        reply = unheard_reply(text, e->where, entry->unheard_since, now);
    etcd_entry_reply(e, entry, reply);
}

/* Deletes an attempt of unknown outcome only after the epoch was raised: from then on the late
 * request cannot take effect. */
static void advance_delete(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    bool may_happen =
        e->must_raise_epoch && (entry->stage == ENTRY_UNKNOWN || entry->sent.may_be_in_flight);
    if (entry->stage == ENTRY_NONE && !entry->sent.may_be_in_flight) {
        reply_no_place(e, entry, now);
        return;
    }
    if (may_happen && !etcd_epoch_need(e, now))
        return;
    entry->deletes_blindly |= entry->stage == ENTRY_UNKNOWN || entry->sent.may_be_in_flight;
    etcd_entry_send_delete(e, entry, now);
}

void etcd_entry_advance(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    bool grants = entry->is_granted && (entry->verb == OP_NONE || entry->verb == OP_ACQUIRE);
    if ((entry->verb == OP_NONE && !grants) || entry->call)
        return;
    if (!etcd_connection_need(commands(e), now)) {
        const struct etcd_connection *c = commands(e);
        if (c->state == CONNECTION_DOWN && entry->verb != OP_NONE)
            etcd_entry_fail(e, entry, c->status, c->why, c->redial.dial_at);
        return;
    }

    /* Only requests that take a lock wait for others; releases never do. */
    bool takes = entry->verb == OP_ACQUIRE || entry->verb == OP_NONE;
    bool must_wait = takes && (commands(e)->in_flight >= ETCD_IN_FLIGHT_MAX ||
                               (entry->verb == OP_ACQUIRE && entry->name->deleting));
    if (must_wait) { /* an ACQUIRE must see the earlier releases of this client */
        e->has_backlog = true;
        return;
    }
    if (grants) {
        etcd_entry_continue_grant(e, entry, now);
        return;
    }
    switch (entry->verb) {
    case OP_ACQUIRE:
        advance_acquire(e, entry, now);
        break;
    case OP_EXTEND:
    case OP_CHECK:
        advance_extend(e, entry, now);
        break;
    case OP_UPGRADE:
    case OP_DOWNGRADE:
        advance_convert(e, entry, now);
        break;
    case OP_RELEASE:
    case OP_LEAVE:
        advance_delete(e, entry, now);
        break;
    default:
        etcd_entry_fail(e, entry, HF_UNSUPPORTED, "not offered by this engine", TIME_NEVER);
    }
}

void etcd_entries_advance(struct etcd *e, nanos now)
{
    struct etcd_entry *next;
    for (struct etcd_entry *entry = e->entries; entry; entry = next) {
        next = entry->next;
        etcd_entry_advance(e, entry, now);
    }
}

/* ---- The door ---- */

/* LEAVE or RELEASE replaces the verb in flight. That verb is answered first: each submit gets
 * one reply. */
static void answer_overtaken(struct etcd *e, struct etcd_entry *entry)
{
    if (entry->verb == OP_NONE)
        return;
    bool acquires = entry->verb == OP_ACQUIRE;
    etcd_entry_reply(e, entry,
                     (struct engine_reply){.kind = acquires ? REPLY_QUEUED : REPLY_FAILED,
                                           .status = acquires ? HF_OK : HF_UNAVAILABLE,
                                           .retry_at = TIME_NEVER,
                                           .text = acquires ? NULL : "overtaken by a release"});
}

void etcd_entry_submit(struct etcd *e, struct engine_op *op, nanos now)
{
    assert(op->verb != OP_NONE && op->verb != OP_ADMIN);
    struct etcd_entry *entry = op->engine_state ? op->engine_state : make_entry(e, op);
    if (!entry) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .retry_at = TIME_NEVER,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        e->host->on_reply(e->host->ctx, op, &reply);
        return;
    }

    entry->unheard_since = entry->verb == OP_ACQUIRE ? entry->asked_at : 0;
    answer_overtaken(e, entry);
    entry->sent = *op;
    entry->verb = op->verb;
    entry->asked_at = now;
    entry->tries = 0;
    entry->try_revision = 0;
    if (op->verb == OP_ACQUIRE && entry->stage <= ENTRY_UNKNOWN)
        entry->kind = op->kind;
    entry->name->permits |= op->kind == HF_SEMAPHORE;
    if (op->kind != HF_EXCLUSIVE)
        etcd_view_share(e, entry->name);
    op->connections = connections_of(entry);
    etcd_entry_advance(e, entry, now);
}

/* The client forgets the op. A hold stays: it is detached, or its lease ends it. A place in the
 * queue is deleted. */
void etcd_entry_forget(struct etcd *e, struct engine_op *op)
{
    struct etcd_entry *entry = op->engine_state;
    if (!entry)
        return;
    entry->op = NULL;
    op->engine_state = NULL;
    op->connections = 0;
    bool has_place = entry->stage == ENTRY_QUEUED;
    bool takes_place = entry->call && entry->call->kind == CALL_ACQUIRE;
    bool deletes = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    bool must_delete = deletes && !(entry->call && entry->call->kind == CALL_DELETE);
    if (!has_place && !takes_place && !must_delete) {
        etcd_entry_drop(e, entry);
        return;
    }

    struct etcd_call *call = entry->call;
    /* If the outcome is unknown, the deletion is sent once the outcome is known. */
    entry->verb = OP_RELEASE;
    entry->sent.may_be_in_flight = true;
    entry->sent.name = entry->sent.label = NULL;
    entry->sent.name_len = 0;
    entry->sent.label_len = 0;
    entry->is_granted = false;
    if (call) {
        etcd_call_claim_none(call);
    } else {
        etcd_entry_advance(e, entry, e->last_now);
    }
}

void etcd_entries_reap(struct etcd *e)
{
    struct etcd_entry *next;
    for (struct etcd_entry *entry = e->entries; entry; entry = next) {
        next = entry->next;
        if (entry->is_done && !entry->call)
            etcd_entry_drop(e, entry);
    }
}
