/* consul_replies.c - interprets the server's replies to requests for locks. */
#include "consul.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { TRIES_MAX = 8 };

/* ---- Granting ---- */

static void reply_granted(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    nanos since = entry->verb == OP_ACQUIRE ? entry->asked_at : now;
    nanos wanted = since + NANOS_OF_MS(entry->sent.ttl_ms);
    nanos end = session_end(&entry->session->base);
    entry->good_until = end < wanted ? end : wanted;
    consul_entry_set_stage(entry, ENTRY_HELD);
    consul_entry_reply(c, entry,
                       (struct engine_reply){.kind = REPLY_GRANTED,
                                             .good = entry->good_until - entry->asked_at,
                                             .brief = end < wanted,
                                             .token = entry->token});
}

/* Prove the session before the grant: if the session has ended, the hold has ended with it. */
static bool is_session_good(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    struct consul_session *session = entry->session;
    if (session_end(&session->base) - now > session->base.length / 4)
        return true;

    if (consul_session_keep(c, session, now - session->base.length / 4, now))
        consul_entry_send_verify(c, entry, now);
    return false;
}

void consul_entry_continue_grant(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->is_granted);
    if (entry->call)
        return;

    bool is_alive = entry->session && entry->session->base.state == SESSION_ALIVE;
    if (!is_alive) {
        entry->is_granted = false;
        consul_entry_again(c, entry, now);
    } else if (!entry->token) {
        consul_entry_send_claim(c, entry, now);
    } else if (is_session_good(c, entry, now)) {
        reply_granted(c, entry, now);
    }
}

void consul_entry_granted(struct consul *c, struct consul_entry *entry, uint64_t token, nanos now)
{
    if (!entry->token)
        entry->token = token;
    entry->is_granted = true;
    consul_entry_continue_grant(c, entry, now);
}

/* ---- Deciding ---- */

/* Refuses the request: removes its place first, and replies after that. */
static void refuse(struct consul *c, struct consul_entry *entry, hf_status status, const char *text,
                   nanos now)
{
    entry->refusal = status;
    snprintf(entry->refusal_text, sizeof entry->refusal_text, "%.319s", text);
    if (entry->stage == ENTRY_NONE)
        consul_entry_reply_refusal(c, entry);
    else
        consul_release_begin(c, entry, now);
}

static void reply_busy(struct consul *c, struct consul_entry *entry)
{
    consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_BUSY, .retry_at = TIME_NEVER});
}

void consul_entry_reply_refusal(struct consul *c, struct consul_entry *entry)
{
    assert(entry->name);
    hf_status status = entry->refusal;
    entry->refusal = HF_OK;

    if (status == HF_BUSY)
        reply_busy(c, entry);
    else
        consul_entry_fail(c, entry, status, entry->refusal_text, TIME_NEVER);
}

static void describe_mismatch(const struct consul_entry *entry, const struct queue_entry *other,
                              char *text, size_t size)
{
    assert(entry->name);
    const struct engine_op *op = &entry->sent;
    bool same_kind = other->kind == HF_SEMAPHORE && op->kind == HF_SEMAPHORE;
    if (same_kind)
        snprintf(text, size, "is in use with capacity %u, not %u", other->capacity, op->capacity);
    else
        snprintf(text, size, "is in use as %s, not as %s", hf_kind_name(other->kind),
                 hf_kind_name(op->kind));
}

/* Returns true if the kind does not match that of the first entry. A lock of another program
 * matches every kind: requests behind it just wait. */
static bool disagrees(const struct consul_entry *entry)
{
    const struct consul_name *name = entry->name;
    struct queue_entry own = {.kind = entry->sent.kind, .capacity = entry->sent.capacity};
    return name->count > 0 && !name->queue[0].foreign && !entry_order_agree(&own, &name->queue[0]);
}

static void refuse_mismatch(struct consul *c, struct consul_entry *entry, nanos now)
{
    char text[ERROR_TEXT_MAX];
    describe_mismatch(entry, &entry->name->queue[0], text, sizeof text);
    refuse(c, entry, HF_MISMATCH, text, now);
}

/* Returns the place in the queue. The holder's entry has none. */
static uint32_t place_of(const struct consul_entry *entry, ptrdiff_t row)
{
    assert(entry->name);
    const struct consul_name *name = entry->name;
    bool first_holds =
        row > 0 && name->lock.attempt[0] && strcmp(name->lock.attempt, name->row[0].tail) == 0;
    if (entry->sent.kind != HF_EXCLUSIVE)
        return name->queue[row].place ? name->queue[row].place : 1;
    return (uint32_t)(row + 1 - first_holds);
}

static void wait_in_queue(struct consul *c, struct consul_entry *entry, ptrdiff_t row, nanos now)
{
    assert(entry->name);
    uint32_t place = place_of(entry, row);
    entry->just_created = false;
    entry->has_waited = true;
    if (entry->verb == OP_ACQUIRE && !entry->sent.queue) {
        refuse(c, entry, HF_BUSY, "", now);
        return;
    }

    consul_view_catch_up(c, entry->name, now);
    consul_view_need(c, entry->name, now);
    if (entry->verb != OP_ACQUIRE)
        return;

    nanos pause = entry->name->query ? TIMING_REFRESH_MOST + place * CONSUL_PER_PLACE : CONSUL_POLL;
    consul_entry_reply(
        c, entry,
        (struct engine_reply){.kind = REPLY_QUEUED, .place = place, .retry_at = now + pause});
}

static void decide_exclusive(struct consul *c, struct consul_entry *entry, ptrdiff_t row, nanos now)
{
    assert(entry->name);
    const struct consul_name *name = entry->name;
    bool is_first = name->queue[row].holds, has_lock = consul_view_has_lock(entry);
    bool is_delayed = entry->take_at > now;

    if (has_lock && is_first)
        consul_entry_granted(c, entry, name->lock.token, now);
    else if (has_lock && entry->sent.queue)
        consul_release_pass(c, entry, now);
    else if (is_first && !name->lock.is_held && !is_delayed)
        consul_entry_send_take(c, entry, now);
    else
        wait_in_queue(c, entry, row, now);
}

void consul_entry_decide(struct consul *c, struct consul_entry *entry, nanos now)
{
    struct consul_name *name = entry->name;
    ptrdiff_t row = consul_view_judge(name, entry);
    assert(!entry->call);
    bool is_ours = row >= 0 && name->queue[row].arrival == entry->created;
    if (!is_ours) { /* The queue was read before the place was taken. */
        if (entry->verb == OP_ACQUIRE)
            consul_entry_again(c, entry, now);
        return;
    }

    entry->changed = name->row[row].changed;
    if (row > 0 && disagrees(entry) && entry->verb == OP_ACQUIRE)
        refuse_mismatch(c, entry, now);
    else if (name->count > CONSUL_WAITERS_MAX && entry->just_created)
        refuse(c, entry, HF_FULL, "too many requests wait for this name", now);
    else if (entry->sent.kind == HF_EXCLUSIVE)
        decide_exclusive(c, entry, row, now);
    else if (name->queue[row].holds)
        consul_entry_granted(c, entry, entry->just_created ? entry->created : 0, now);
    else
        wait_in_queue(c, entry, row, now);
}

/* ---- Taking a place ---- */

void consul_entry_again(struct consul *c, struct consul_entry *entry, nanos now)
{
    if (++entry->tries > TRIES_MAX)
        consul_entry_fail(c, entry, HF_UNAVAILABLE, "the servers change too fast", now);
    else
        consul_entry_advance(c, entry, now);
}

static bool is_overtaken(const struct consul_entry *entry)
{
    return entry->verb != OP_ACQUIRE && entry->verb != OP_NONE;
}

/* Copies the state of the entry on the server into the client's entry. */
static void learn(struct consul *c, struct consul_entry *entry, const char *session_id,
                  uint64_t created, uint64_t changed)
{
    assert(entry->name);
    struct consul_session *session = consul_session_of_id(c, session_id);
    entry->created = created;
    entry->changed = changed;
    if (!session)
        session = consul_session_adopt(c, entry, session_id);
    if (session)
        consul_session_attach(entry, session);
    if (entry->stage == ENTRY_NONE || entry->stage == ENTRY_UNKNOWN)
        consul_entry_set_stage(entry, ENTRY_QUEUED);
}

/* Handles the server's reply that the session of the entry has ended. If an earlier reply already
 * said so, the entry has no session any more. */
static void lose_session(struct consul *c, struct consul_entry *entry)
{
    assert(entry->name);
    if (entry->session)
        consul_session_lost(c, entry->session);
}

/* A transaction was carried out, but another reply called its session lost meanwhile, perhaps that
 * of a deposed leader. Then the request is sent again, and finds its keys if they are there. */
static bool repeat_without_session(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    if (entry->session)
        return false;
    consul_entry_set_stage(entry, ENTRY_UNKNOWN);
    consul_entry_again(c, entry, now);
    return true;
}

static void on_place(struct consul *c, struct consul_entry *entry, const struct consul_reply *reply,
                     nanos now)
{
    assert(entry->name);
    struct consul_pair pair;
    if (repeat_without_session(c, entry, now))
        return;

    struct slice key = consul_value_key(entry->name, entry->id);
    bool found = reply_find(reply, key, &pair);
    entry->created = entry->changed = found ? pair.changed : 0;
    entry->just_created = true;
    consul_entry_set_stage(entry, found ? ENTRY_QUEUED : ENTRY_UNKNOWN);
    consul_session_prove(entry->session);
    if (entry->awaits_view && found && !is_overtaken(entry)) {
        entry->just_created = false;
        consul_view_read(c, entry->name, now);
        return;
    }

    bool taken = found && !entry->awaits_view && consul_view_take(entry->name, reply, pair.changed);
    if (is_overtaken(entry))
        consul_entry_advance(c, entry, now);
    else if (taken)
        consul_entry_decide(c, entry, now);
    else
        refuse(c, entry, HF_NO_MEMORY, "no memory for the queue", now);
}

/* The transaction failed. Finds the part that failed: the epoch, an entry that exists already,
 * .lock, or the session. */
static void on_no_place(struct consul *c, struct consul_entry *entry,
                        const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    enum { OP_EPOCH, OP_ENTRY, OP_LOCK };
    const char *why;
    int op = reply_failed_op(reply, &why);
    consul_entry_set_stage(entry, op == OP_ENTRY ? ENTRY_UNKNOWN : ENTRY_NONE);
    bool is_dead = strstr(why, "invalid session");
    bool is_delayed = strstr(why, "lock delay");
    bool is_locked = entry->asked_for_lock && op >= OP_LOCK && !is_dead;
    if (is_dead)
        lose_session(c, entry);
    if (op == OP_EPOCH && !is_dead && entry->session)
        entry->session->must_raise_epoch = true;
    if (is_locked) /* .lock is taken: the next transaction asks for a place only. */
        entry->name->lock = (struct view_lock){.exists = true, .is_held = true};

    bool reads = op == OP_ENTRY || (is_locked && !entry->sent.queue);
    if (is_overtaken(entry))
        consul_entry_advance(c, entry, now);
    else if (is_delayed && !entry->sent.queue)
        reply_busy(c, entry);
    else if (reads)
        consul_entry_attach_call(
            entry,
            consul_call_tree(c, op == OP_ENTRY ? CALL_REFRESH : CALL_TRY_READ, entry->name, now));
    else
        consul_entry_again(c, entry, now);
}

/* Handles the reply to the read of the queue for a request that does not wait. The request may take
 * a place only if it would then hold. */
static void on_try_read(struct consul *c, struct consul_entry *entry,
                        const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    struct consul_name *name = entry->name;
    if (is_overtaken(entry) || !consul_view_take(name, reply, reply->index)) {
        consul_entry_again(c, entry, now);
        return;
    }

    bool exclusive = entry->sent.kind == HF_EXCLUSIVE;
    bool is_there = consul_view_judge(name, entry) >= 0;
    bool is_free = exclusive ? !consul_view_is_busy(name) : consul_view_would_hold(name, entry);
    entry->was_read = true;

    if (!is_there && disagrees(entry))
        refuse_mismatch(c, entry, now);
    else if (!is_there && (!is_free || entry->tries >= TRIES_MAX))
        reply_busy(c, entry);
    else
        consul_entry_again(c, entry, now);
}

static void on_refresh(struct consul *c, struct consul_entry *entry,
                       const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    struct consul_name *name = entry->name;
    if (is_overtaken(entry) || !consul_view_take(name, reply, reply->index)) {
        consul_entry_again(c, entry, now);
        return;
    }

    ptrdiff_t row = consul_view_judge(name, entry);
    if (row < 0) {
        consul_entry_set_stage(entry, ENTRY_NONE);
        consul_entry_again(c, entry, now);
        return;
    }

    entry->just_created = false;
    if (entry->stage == ENTRY_UNKNOWN)
        learn(c, entry, name->row[row].session, name->queue[row].arrival, name->row[row].changed);
    consul_entry_decide(c, entry, now);
}

/* Handles the reply to a try to take .lock. The try fails if another client was faster, the place
 * is gone, or Consul's lock-delay is running. */
static void on_take(struct consul *c, struct consul_entry *entry, const struct consul_reply *reply,
                    nanos now)
{
    assert(entry->name);
    struct consul_pair pair;
    const char *why;
    if (reply->status == 200 && repeat_without_session(c, entry, now))
        return;

    struct slice key = consul_value_key(entry->name, CONSUL_LOCK_TAIL);
    if (reply->status == 200 && reply_find(reply, key, &pair)) {
        struct view_lock *lock = &entry->name->lock;
        *lock = (struct view_lock){
            .exists = true, .is_held = true, .changed = pair.changed, .token = pair.changed};
        memcpy(lock->attempt, entry->id, sizeof lock->attempt);
        memcpy(lock->session, pair.session, strlen(pair.session) + 1);
        entry->changed = pair.changed;
        consul_session_prove(entry->session);
        if (is_overtaken(entry))
            consul_entry_advance(c, entry, now);
        else
            consul_entry_granted(c, entry, pair.changed, now);
        return;
    }

    int op = reply_failed_op(reply, &why);
    bool is_delayed = strstr(why, "lock delay");
    if (is_delayed)
        entry->take_at = now + CONSUL_DELAYED;

    if (strstr(why, "invalid session"))
        lose_session(c, entry);
    else if (op == 0)
        consul_entry_set_stage(entry, ENTRY_NONE);

    ptrdiff_t row = consul_view_judge(entry->name, entry);
    if (is_overtaken(entry))
        consul_entry_advance(c, entry, now);
    else if (is_delayed && row >= 0)
        wait_in_queue(c, entry, row, now);
    else if (entry->verb == OP_ACQUIRE)
        consul_entry_again(c, entry, now);
    else if (entry->stage == ENTRY_NONE)
        consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
    else
        consul_view_read(c, entry->name, now);
}

static void on_passed(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    /* The queue is read again, and then the request waits. */
    if (entry->verb == OP_ACQUIRE)
        consul_entry_again(c, entry, now);
    else if (entry->verb == OP_NONE)
        consul_view_read(c, entry->name, now);
    else
        consul_entry_advance(c, entry, now);
}

/* ---- Holding ---- */

void consul_entry_lose(struct consul *c, struct consul_entry *entry)
{
    assert(entry->name);
    bool waits = entry->stage == ENTRY_QUEUED && entry->verb == OP_NONE;
    entry->is_lost = false;
    consul_entry_set_stage(entry, ENTRY_NONE);
    consul_session_attach(entry, NULL);
    consul_entry_reply(c, entry,
                       (struct engine_reply){.kind = waits ? REPLY_NOTIFY : REPLY_NOT_HELD,
                                             .retry_at = TIME_NEVER,
                                             .text = waits ? NULL : "its key in Consul is gone"});
}

/* If the entry was deleted, the place is lost. Otherwise the next read of the queue decides. */
static void on_claimed(struct consul *c, struct consul_entry *entry,
                       const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    struct consul_pair pair;
    if (reply->status == 200 && repeat_without_session(c, entry, now))
        return;

    struct slice key = consul_value_key(entry->name, entry->id);
    if (reply->status == 200 && reply_find(reply, key, &pair)) {
        entry->changed = entry->token = pair.changed;
        consul_session_prove(entry->session);
        consul_entry_advance(c, entry, now);
        return;
    }

    entry->is_granted = false;
    consul_entry_set_stage(entry, ENTRY_NONE);
    consul_session_attach(entry, NULL);

    if (entry->verb == OP_NONE)
        consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
    else
        consul_entry_again(c, entry, now);
}

/* Returns the end of the hold. CHECK leaves it unchanged, and EXTEND never shortens it. */
static nanos end_of_hold(const struct consul_entry *entry)
{
    assert(entry->name);
    nanos session = session_end(&entry->session->base);
    nanos wanted = entry->asked_at + NANOS_OF_MS(entry->sent.ttl_ms);
    bool checks = entry->verb == OP_CHECK && entry->good_until;
    /* Do not extend to the session's end: another hold may have renewed the session, and that must
     * not lengthen this hold. */
    if (checks || wanted < entry->good_until)
        wanted = entry->good_until;
    return wanted < session ? wanted : session;
}

static void reply_extended(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    entry->good_until = end_of_hold(entry);
    consul_entry_set_stage(entry, ENTRY_HELD);
    /* A hold that is renewed once will last: watch its keys to notice a loss. */
    entry->is_watched |= entry->verb == OP_EXTEND;
    consul_entry_reply(c, entry,
                       (struct engine_reply){.kind = REPLY_EXTENDED,
                                             .good = entry->good_until - entry->asked_at,
                                             .token = entry->token});
    if (entry->is_watched)
        consul_view_need(c, entry->name, now);
}

/* The read has shown the keys. Replies to an EXTEND if the renewal is proven, too. */
static void on_seen(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    bool extends = entry->verb == OP_EXTEND || entry->verb == OP_CHECK;
    const struct consul_session *session = entry->session;
    bool is_proven =
        session && session->base.proven_at &&
        (entry->verb == OP_CHECK || session->base.proven_at >= entry->asked_at - CONSUL_SHARE);

    if (!extends)
        consul_entry_advance(c, entry, now);
    else if (is_proven)
        reply_extended(c, entry, now);
    else
        consul_entry_again(c, entry, now);
}

/* Returns true if the entry, and for an exclusive hold .lock too, exist and are locked by one
 * session. */
static bool is_whole(struct consul_entry *entry, const struct consul_reply *reply,
                     struct consul_pair *pair, uint64_t *token)
{
    assert(entry->name);
    struct consul_pair lock;
    struct consul_value value;
    struct slice tail = {entry->id, CONSUL_ID_TEXT};
    bool has_entry = reply->status == 200 &&
                     reply_find(reply, consul_value_key(entry->name, entry->id), pair) &&
                     consul_value_read(&value, pair, tail) &&
                     (!entry->created || pair->created == entry->created);
    *token = has_entry ? value.token : 0;
    if (!has_entry || entry->sent.kind != HF_EXCLUSIVE)
        return has_entry;

    if (!reply_find(reply, consul_value_key(entry->name, CONSUL_LOCK_TAIL), &lock))
        return false;

    consul_view_take_lock(entry->name, &lock);
    *token = entry->name->lock.token;
    return consul_view_has_lock(entry) && strcmp(lock.session, pair->session) == 0;
}

static void on_verified(struct consul *c, struct consul_entry *entry,
                        const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    struct consul_pair pair;
    uint64_t token;
    if (!is_whole(entry, reply, &pair, &token)) {
        entry->is_granted = false;
        if (entry->verb == OP_RELEASE || entry->verb == OP_LEAVE) {
            consul_entry_advance(c, entry, now);
        } else if (entry->verb == OP_ACQUIRE || entry->verb == OP_NONE) {
            consul_view_read(c, entry->name, now);
            consul_entry_advance(c, entry, now);
        } else {
            entry->is_lost = true; /* The remaining keys are removed before the reply. */
            consul_release_begin(c, entry, now);
        }
        return;
    }

    learn(c, entry, pair.session, pair.created, pair.changed);
    if (!entry->token)
        entry->token = token;
    if (entry->session)
        consul_session_prove(entry->session);
    on_seen(c, entry, now);
}

static void on_moved(struct consul *c, struct consul_entry *entry, struct consul_session *to,
                     const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    struct consul_pair pair;
    struct slice key = consul_value_key(entry->name, entry->id);
    const char *why;
    if (reply->status == 200 && reply_find(reply, key, &pair)) {
        entry->changed = pair.changed;
        consul_session_attach(entry, to);
        consul_session_prove(to);
        on_seen(c, entry, now);
        return;
    }

    reply_failed_op(reply, &why);
    if (strstr(why, to->id) && strstr(why, "invalid session"))
        consul_session_lost(c, to);
    else
        /* the next read shows which session has the entry */
        consul_session_attach(entry, NULL);

    consul_entry_again(c, entry, now);
}

/* ---- Replies ---- */

void consul_entry_on_reply(struct consul *c, struct consul_call *call,
                           const struct consul_reply *reply, nanos now)
{
    struct consul_entry *entry = call->entry;
    assert(entry->call == call);
    entry->call = NULL;

    switch (call->kind) {
    case CALL_ACQUIRE:
        if (reply->status == 200)
            on_place(c, entry, reply, now);
        else
            on_no_place(c, entry, reply, now);
        break;
    case CALL_TRY_READ:
        on_try_read(c, entry, reply, now);
        break;
    case CALL_REFRESH:
        on_refresh(c, entry, reply, now);
        break;
    case CALL_TAKE:
        on_take(c, entry, reply, now);
        break;
    case CALL_PASS:
        on_passed(c, entry, now);
        break;
    case CALL_CLAIM:
        on_claimed(c, entry, reply, now);
        break;
    case CALL_VERIFY:
        on_verified(c, entry, reply, now);
        break;
    case CALL_MOVE:
        on_moved(c, entry, call->session, reply, now);
        break;
    default:
        consul_release_on_reply(c, entry, call->kind, reply, now);
        break;
    }
}

/* ---- Failures ---- */

void consul_entry_on_cut(struct consul *c, struct consul_call *call, bool not_processed,
                         hf_status status, const char *text, nanos now)
{
    assert(call->connection);
    struct consul_entry *entry = call->entry;
    enum call_kind kind = call->kind;
    bool places = kind == CALL_ACQUIRE, ends = kind == CALL_END || kind == CALL_DELETE;
    entry->call = NULL;
    entry->may_come_late |= !not_processed;

    if (places && !not_processed) {
        consul_entry_set_stage(entry, ENTRY_UNKNOWN);
        if (entry->session)
            entry->session->must_raise_epoch = true;
    }

    if (kind == CALL_MOVE && !not_processed)
        /* the next read shows which session has the entry */
        consul_session_attach(entry, NULL);
    if (kind == CALL_CLAIM || kind == CALL_VERIFY)
        entry->is_granted = false; /* the queue is read again before the entry is granted */

    if (ends && !not_processed) {
        entry->ends_blindly = true;
        entry->refusal = HF_OK;
    }

    consul_release_over(c, entry);
    if (consul_entry_tries_on(entry, status))
        return;

    bool answers = entry->verb != OP_NONE && !(places && is_overtaken(entry));
    bool may_have_happened = (places || ends) && !not_processed;
    if (answers && may_have_happened)
        consul_entry_reply(
            c, entry,
            (struct engine_reply){.kind = REPLY_UNKNOWN, .retry_at = TIME_NEVER, .text = text});
    else if (answers)
        consul_entry_fail(c, entry, status == HF_OK ? HF_UNAVAILABLE : status, text, now);
}
