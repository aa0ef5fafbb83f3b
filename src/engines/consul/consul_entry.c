/* consul_entry.c - requests for locks: what each verb sends next.
 *
 * An entry has at most one call in flight, so two requests of one attempt never overtake each other
 * inside the server. consul_entry_advance() is called whenever something that the entry may wait
 * for has happened: a connection, a session, a renewal, a reply. */
#include "consul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making and dropping ---- */

/* Gives the entry an id: one that a released entry has left to this name, or the id of the
 * attempt. */
static void choose_id(struct consul_entry *entry, const struct engine_op *op)
{
    struct consul_name *name = entry->name;
    bool is_private = entry->stage == ENTRY_NONE && !op->detached;
    if (is_private && name->free_ids) {
        const struct free_id *free_id = &name->free_id[--name->free_ids];
        memcpy(entry->id, free_id->id, sizeof entry->id);
        entry->born_after = free_id->ended;
    } else {
        consul_value_id(&op->attempt, entry->id);
    }
    entry->hash = consul_view_hash(entry->id, CONSUL_ID_TEXT);
}

void consul_entry_ended(struct consul_entry *entry)
{
    bool may_be_used = !entry->may_come_late && !entry->ends_blindly && !entry->sent.detached &&
                       !entry->sent.named && !entry->sent.may_be_in_flight;
    entry->ended_at = may_be_used ? entry->ends_at : 0;
}

/* Leaves the id to the next request for the name. */
static void leave_id(const struct consul_entry *entry)
{
    struct consul_name *name = entry->name;
    bool is_free = entry->ended_at && entry->stage == ENTRY_NONE && !entry->call;
    if (!is_free || name->free_ids == CONSUL_FREE_IDS)
        return;

    struct free_id *free_id = &name->free_id[name->free_ids++];
    memcpy(free_id->id, entry->id, sizeof free_id->id);
    free_id->ended = entry->ended_at;
}

static struct consul_entry *make_entry(struct consul *c, struct engine_op *op)
{
    struct consul_name *name = consul_name_of(c, op->name, op->name_len);
    struct consul_entry *entry = name ? calloc(1, sizeof *entry) : NULL;
    if (!entry)
        return NULL;

    entry->op = op;
    entry->name = name;
    /* An attempt that another process began may already have an entry and a session. */
    entry->stage = op->verb == OP_ACQUIRE && !op->named ? ENTRY_NONE : ENTRY_UNKNOWN;
    choose_id(entry, op);
    entry->beside = name->entries;
    name->entries = entry;
    entry->next = c->entries;
    entry->link = &c->entries;
    if (c->entries)
        c->entries->link = &entry->next;
    c->entries = entry;
    op->engine_state = entry;
    return entry;
}

static void drop_entry(struct consul *c, struct consul_entry *entry)
{
    struct consul_entry **at = &entry->name->entries;
    leave_id(entry);
    if (entry->call)
        consul_call_abandon(entry->call);
    if (!entry->op && entry->verb != OP_NONE)
        c->leaving--;
    consul_release_over(c, entry);
    consul_entry_set_stage(entry, ENTRY_NONE);
    consul_session_attach(entry, NULL);

    while (*at != entry)
        at = &(*at)->beside;
    *at = entry->beside;
    entry->name->unused_at = c->last_now;
    *entry->link = entry->next;
    if (entry->next)
        entry->next->link = entry->link;
    free(entry);
}

void consul_entry_set_stage(struct consul_entry *entry, enum entry_stage stage)
{
    entry->stage = stage;
    session_set_waits(&entry->member, stage == ENTRY_QUEUED);
    if (stage == ENTRY_NONE) {
        entry->is_watched = false;
        entry->created = entry->changed = entry->token = 0;
    }
    if (stage != ENTRY_QUEUED) {
        entry->is_granted = false;
        entry->take_at = 0;
    }
}

void consul_entries_close(struct consul *c)
{
    while (c->entries)
        drop_entry(c, c->entries);
}

/* ---- Replying ---- */

/* Returns the connections on which a reply to the entry may arrive. For a waiter that includes
 * the query of its name. */
static connection_set connections_of(const struct consul_entry *entry)
{
    const struct consul_connection *query = entry->name->query;
    connection_set commands_bit = connection_set_of(CONNECTION_COMMANDS);
    connection_set query_bit = query ? connection_set_of(query->number) : 0;
    connection_set waiting = entry->stage == ENTRY_QUEUED ? commands_bit | query_bit : 0;
    return entry->verb == OP_NONE ? waiting : commands_bit | waiting;
}

void consul_entry_reply(struct consul *c, struct consul_entry *entry, struct engine_reply reply)
{
    bool is_answer = reply.kind != REPLY_NOTIFY;
    if (is_answer) {
        reply.asked_at = entry->asked_at;
        entry->verb = OP_NONE;
    }
    if (!entry->op) {
        c->leaving -= is_answer && !entry->is_done;
        entry->is_done |= is_answer;
        return;
    }
    entry->op->connections = connections_of(entry);
    c->host->on_reply(c->host->ctx, entry->op, &reply);
}

void consul_entry_fail(struct consul *c, struct consul_entry *entry, hf_status status,
                       const char *text, nanos retry_at)
{
    consul_entry_reply(
        c, entry,
        (struct engine_reply){
            .kind = REPLY_FAILED, .status = status, .text = text, .retry_at = retry_at});
}

bool consul_entry_tries_on(const struct consul_entry *entry, hf_status status)
{
    return !entry->op && entry->verb == OP_RELEASE && (status == HF_UNAVAILABLE || status == HF_OK);
}

void consul_entries_fail_unsent(struct consul *c, const struct consul_connection *connection)
{
    struct consul_entry *next;
    for (struct consul_entry *entry = c->entries; entry; entry = next) {
        next = entry->next;
        if (entry->verb == OP_NONE || entry->call)
            continue;
        consul_release_over(c, entry);
        if (consul_entry_tries_on(entry, connection->status))
            continue;
        consul_entry_fail(c, entry, connection->status, connection->why,
                          connection->redial.dial_at);
    }
}

/* After a reconnect the queues may be out of date and sessions may have ended: waiters ask
 * again. */
void consul_entries_notify_waiters(struct consul *c)
{
    for (struct consul_entry *entry = c->entries; entry; entry = entry->next)
        if (entry->stage == ENTRY_QUEUED && entry->verb == OP_NONE && entry->op)
            consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
}

/* ---- Sending ---- */

void consul_entry_attach_call(struct consul_entry *entry, struct consul_call *call)
{
    assert(!entry->call);
    if (!call)
        return;
    if (!entry->op)
        consul_call_claim_none(call);
    call->entry = entry;
    entry->call = call;
}

static void check_epoch(struct consul *c, const struct consul_session *session)
{
    char key[CONSUL_PREFIX_MAX + 64];
    size_t len = consul_epoch_key(c, session, key, sizeof key);
    txn_add(&c->body, &(struct txn_op){.verb = session->epoch ? "check-index" : "check-not-exists",
                                       .key = {key, len},
                                       .index = session->epoch});
}

/* Adds the operation that locks the entry for that session and writes its current value. New
 * Flags make sure that its modify index changes. */
static void lock_entry(struct consul *c, struct consul_entry *entry, const char *session, nanos now)
{
    char value[CONSUL_VALUE_MAX + 1];
    size_t len = consul_value_write(c, entry, value, now);
    txn_add(&c->body, &(struct txn_op){.verb = "lock",
                                       .key = consul_value_key(entry->name, entry->id),
                                       .session = session,
                                       .flags = entry->changed,
                                       .value = {value, len}});
}

static void lock_lock(struct consul *c, struct consul_entry *entry, const char *session, nanos now)
{
    char value[CONSUL_VALUE_MAX + 1], whole[CONSUL_VALUE_MAX + 1];
    consul_value_write(c, entry, value, now);
    size_t len = consul_value_lock(whole, entry->id, value);
    txn_add(&c->body, &(struct txn_op){.verb = "lock",
                                       .key = consul_value_key(entry->name, CONSUL_LOCK_TAIL),
                                       .session = session,
                                       .flags = CONSUL_LOCK_FLAGS,
                                       .value = {whole, len}});
}

/* Adds a check that .lock is free. Without it, a session that has .lock for one attempt could
 * overwrite it for another. */
static void check_lock_is_free(struct consul *c, const struct consul_name *name)
{
    bool exists = name->lock.exists && !name->lock.is_held;
    txn_add(&c->body, &(struct txn_op){.verb = exists ? "check-index" : "check-not-exists",
                                       .key = consul_value_key(name, CONSUL_LOCK_TAIL),
                                       .index = exists ? name->lock.changed : 0});
}

static void get(struct consul *c, struct slice key, const char *verb)
{
    txn_add(&c->body, &(struct txn_op){.verb = verb, .key = key});
}

/* Takes a place in the queue, and .lock as well if it seems to be free, in one transaction. */
static void send_acquire(struct consul *c, struct consul_entry *entry, nanos now)
{
    const struct consul_name *name = entry->name;
    bool exclusive = entry->sent.kind == HF_EXCLUSIVE;
    entry->asked_for_lock = exclusive && (!entry->sent.queue || !consul_view_is_busy(name));
    entry->awaits_view = !exclusive && entry->sent.queue && name->count > CONSUL_LISTED_MAX;
    entry->ended_at = 0;

    txn_begin(&c->body);
    check_epoch(c, entry->session);
    get(c, consul_value_key(name, entry->id), "check-not-exists");
    if (entry->asked_for_lock) {
        check_lock_is_free(c, name);
        lock_lock(c, entry, entry->session->id, now);
    }
    lock_entry(c, entry, entry->session->id, now);
    if (!entry->awaits_view)
        get(c, (struct slice){name->base, name->base_len}, "get-tree");
    txn_end(&c->body);
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_ACQUIRE, false, now));
}

/* Sends a try to take .lock. It also changes the entry, so that a LEAVE after an unknown outcome
 * notices the grant. */
void consul_entry_send_take(struct consul *c, struct consul_entry *entry, nanos now)
{
    const char *session = entry->session->id;
    txn_begin(&c->body);
    txn_add(&c->body, &(struct txn_op){.verb = "check-session",
                                       .key = consul_value_key(entry->name, entry->id),
                                       .session = session});
    check_lock_is_free(c, entry->name);
    lock_lock(c, entry, session, now);
    lock_entry(c, entry, session, now);
    txn_end(&c->body);
    entry->take_at = 0;
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_TAKE, false, now));
}

void consul_entry_send_claim(struct consul *c, struct consul_entry *entry, nanos now)
{
    txn_begin(&c->body);
    txn_add(&c->body, &(struct txn_op){.verb = "check-session",
                                       .key = consul_value_key(entry->name, entry->id),
                                       .session = entry->session->id});
    lock_entry(c, entry, entry->session->id, now);
    txn_end(&c->body);
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_CLAIM, false, now));
}

void consul_entry_send_verify(struct consul *c, struct consul_entry *entry, nanos now)
{
    txn_begin(&c->body);
    get(c, consul_value_key(entry->name, entry->id), "get");
    if (entry->sent.kind == HF_EXCLUSIVE)
        get(c, consul_value_key(entry->name, CONSUL_LOCK_TAIL), "get");
    txn_end(&c->body);
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_VERIFY, true, now));
}

static void move_key(struct consul *c, const struct consul_entry *entry, const char *tail)
{
    const char *session = entry->session->id;
    struct slice key = consul_value_key(entry->name, tail);
    txn_add(&c->body, &(struct txn_op){.verb = "check-session", .key = key, .session = session});
    txn_add(&c->body, &(struct txn_op){.verb = "unlock", .key = key, .session = session});
}

/* Moves the keys to another session. A move that arrives late finds the entry on an unexpected
 * session and does nothing. */
static void send_move(struct consul *c, struct consul_entry *entry, struct consul_session *to,
                      nanos now)
{
    txn_begin(&c->body);
    if (entry->sent.kind == HF_EXCLUSIVE) {
        move_key(c, entry, CONSUL_LOCK_TAIL);
        lock_lock(c, entry, to->id, now);
    }
    move_key(c, entry, entry->id);
    lock_entry(c, entry, to->id, now);
    txn_end(&c->body);
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_MOVE, false, now));
    if (entry->call)
        entry->call->session = to;
}

/* ---- What a verb needs ---- */

static int64_t seconds_of(int64_t ttl_ms)
{
    return (ttl_ms + 999) / 1000;
}

/* Returns true if the request may take a place now. A shared request that does not wait reads
 * the queue first. */
static bool may_take_place(struct consul *c, struct consul_entry *entry, nanos now)
{
    bool exclusive = entry->sent.kind == HF_EXCLUSIVE;
    if (!exclusive && c->lock_delay_ms) {
        consul_entry_fail(c, entry, HF_UNSUPPORTED,
                          "lock_delay: Consul delays exclusive locks alone", TIME_NEVER);
        return false;
    }
    if (entry->sent.queue || exclusive || entry->was_read)
        return true;
    consul_entry_attach_call(entry, consul_call_tree(c, CALL_TRY_READ, entry->name, now));
    return false;
}

static void advance_acquire(struct consul *c, struct consul_entry *entry, nanos now)
{
    /* One read of the queue serves all waiters of the name. */
    if (entry->stage == ENTRY_QUEUED) {
        entry->awaits_view = true;
        if (!entry->name->reading)
            consul_view_read(c, entry->name, now);
        return;
    }
    if (entry->stage == ENTRY_HELD) {
        consul_entry_granted(c, entry, entry->token, now);
        return;
    }

    const struct id *attempt = entry->sent.detached ? &entry->sent.attempt : NULL;
    struct consul_session *session = consul_session_of(c, seconds_of(entry->sent.ttl_ms), attempt);
    if (!session) {
        consul_entry_fail(c, entry, HF_NO_MEMORY, "no memory for a session", TIME_NEVER);
        return;
    }
    consul_session_attach(entry, session);
    if (consul_session_need(c, session, now) && may_take_place(c, entry, now))
        send_acquire(c, entry, now);
}

/* Returns the session that gives the hold its ttl: the present session, if it is long enough. */
static struct consul_session *session_to_extend(struct consul *c, const struct consul_entry *entry)
{
    int64_t seconds = seconds_of(entry->sent.ttl_ms);
    if (entry->session->base.ttl >= seconds)
        return entry->session;
    return consul_session_of(c, seconds,
                             entry->session->base.is_private ? &entry->sent.attempt : NULL);
}

/* Goes on with an EXTEND: first a renewal, then a consistent read that shows the keys. */
static void advance_extend(struct consul *c, struct consul_entry *entry, nanos now)
{
    bool checks = entry->verb == OP_CHECK && entry->session && entry->session->base.proven_at;
    if (!entry->created || !entry->session || checks) {
        /* The read also shows the session that has locked the entry. */
        consul_entry_send_verify(c, entry, now);
        return;
    }

    struct consul_session *session = session_to_extend(c, entry);
    if (!session) {
        consul_entry_fail(c, entry, HF_NO_MEMORY, "no memory for a session", TIME_NEVER);
        return;
    }
    bool moves = session != entry->session;
    if (moves && !consul_session_need(c, session, now))
        return;
    if (!consul_session_keep(c, session, entry->asked_at - CONSUL_SHARE, now))
        return;
    if (moves)
        send_move(c, entry, session, now);
    else
        consul_entry_send_verify(c, entry, now);
}

void consul_entry_advance(struct consul *c, struct consul_entry *entry, nanos now)
{
    bool grants = entry->is_granted && (entry->verb == OP_NONE || entry->verb == OP_ACQUIRE);
    if ((entry->verb == OP_NONE && !grants) || entry->call)
        return;
    struct consul_connection *commands = consul_commands(c);
    if (!consul_connection_need(commands, now)) {
        bool fails = commands->state == CONNECTION_DOWN && entry->verb != OP_NONE &&
                     !consul_entry_tries_on(entry, commands->status);
        if (fails)
            consul_entry_fail(c, entry, commands->status, commands->why, commands->redial.dial_at);
        return;
    }

    /* RELEASE never waits */
    bool takes = entry->verb == OP_ACQUIRE || entry->verb == OP_NONE;
    bool must_wait = takes && (commands->in_flight >= CONSUL_IN_FLIGHT_MAX ||
                               (entry->verb == OP_ACQUIRE && entry->name->deleting));
    must_wait |= entry->verb == OP_LEAVE && commands->in_flight >= CONSUL_LEAVING_MAX;
    /* The request must come after the releases that this client sent before it. */
    if (must_wait) {
        c->has_backlog = true;
        return;
    }
    if (grants) {
        consul_entry_continue_grant(c, entry, now);
        return;
    }
    if (entry->is_lost) {
        consul_release_begin(c, entry, now);
        return;
    }
    switch (entry->verb) {
    case OP_ACQUIRE:
        advance_acquire(c, entry, now);
        break;
    case OP_EXTEND:
    case OP_CHECK:
        advance_extend(c, entry, now);
        break;
    case OP_RELEASE:
    case OP_LEAVE:
        consul_release_begin(c, entry, now);
        break;
    default:
        consul_entry_fail(c, entry, HF_UNSUPPORTED, "not offered by this engine", TIME_NEVER);
    }
}

void consul_entries_advance(struct consul *c, nanos now)
{
    struct consul_entry *next;
    for (struct consul_entry *entry = c->entries; entry; entry = next) {
        next = entry->next;
        consul_entry_advance(c, entry, now);
    }
}

/* Retries the waiters whose .lock was closed by Consul's lock-delay. */
nanos consul_entries_tick(struct consul *c, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct consul_entry *entry = c->entries; entry; entry = entry->next) {
        bool waits = entry->take_at && entry->stage == ENTRY_QUEUED && !entry->call && entry->op &&
                     entry->verb == OP_NONE;
        if (!waits || consul_commands(c)->state != CONNECTION_UP)
            continue;
        if (now >= entry->take_at) {
            entry->take_at = 0;
            consul_view_read(c, entry->name, now);
        } else if (entry->take_at < next) {
            next = entry->take_at;
        }
    }
    return next;
}

/* ---- Requests of the client ---- */

/* LEAVE or RELEASE replaces a request in flight. That request gets its reply first. */
static void answer_overtaken(struct consul *c, struct consul_entry *entry)
{
    if (entry->verb == OP_NONE)
        return;
    bool acquires = entry->verb == OP_ACQUIRE;
    consul_entry_reply(c, entry,
                       (struct engine_reply){.kind = acquires ? REPLY_QUEUED : REPLY_FAILED,
                                             .status = acquires ? HF_OK : HF_UNAVAILABLE,
                                             .retry_at = TIME_NEVER,
                                             .text = acquires ? NULL : "overtaken by a release"});
}

void consul_entry_submit(struct consul *c, struct engine_op *op, nanos now)
{
    struct consul_entry *entry = op->engine_state ? op->engine_state : make_entry(c, op);
    if (!entry) {
        struct engine_reply reply = {.kind = REPLY_FAILED,
                                     .asked_at = now,
                                     .retry_at = TIME_NEVER,
                                     .status = HF_NO_MEMORY,
                                     .text = "no memory for a request"};
        c->host->on_reply(c->host->ctx, op, &reply);
        return;
    }

    entry->unheard_since = entry->verb == OP_ACQUIRE ? entry->asked_at : 0;
    answer_overtaken(c, entry);
    entry->sent = *op;
    entry->verb = op->verb;
    entry->asked_at = now;
    entry->tries = 0;
    entry->was_read = false;
    entry->name->shared |= op->kind != HF_EXCLUSIVE;
    op->connections = connections_of(entry);
    consul_entry_advance(c, entry, now);
}

/* The client forgets the op. A hold stays: it is detached, or its session ends it. A place in
 * the queue is removed. */
void consul_entry_forget(struct consul *c, struct engine_op *op)
{
    struct consul_entry *entry = op->engine_state;
    if (!entry)
        return;
    entry->op = NULL;
    op->engine_state = NULL;
    op->connections = 0;
    bool has_place = entry->stage == ENTRY_QUEUED;
    bool takes_place = entry->call && entry->call->kind == CALL_ACQUIRE;
    bool deletes = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    if (entry->stage == ENTRY_HELD && !deletes && entry->session)
        entry->session->has_left_hold = true;
    if (!has_place && !takes_place && !deletes) {
        drop_entry(c, entry);
        return;
    }

    bool is_known = has_place && !entry->call && !entry->is_ending;
    /* If the outcome is unknown, the removal is sent once the outcome is known. */
    entry->verb = is_known ? OP_LEAVE : OP_RELEASE;
    entry->sent.may_be_in_flight |= !is_known;
    c->leaving++;
    entry->sent.name = entry->sent.label = NULL;
    entry->sent.name_len = 0;
    entry->sent.label_len = 0;
    entry->is_granted = false;
    if (entry->call)
        consul_call_claim_none(entry->call);
    else
        consul_entry_advance(c, entry, c->last_now);
}

void consul_entries_reap(struct consul *c)
{
    struct consul_entry *next;
    for (struct consul_entry *entry = c->entries; entry; entry = next) {
        next = entry->next;
        if (entry->is_done && !entry->call)
            drop_entry(c, entry);
    }
}
