/* etcd_replies.c - interprets the server's replies to requests for locks. */
#include "etcd.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRIES_MAX = 3, TRIES_WITHOUT_WAIT = 8 };

void etcd_entry_again(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    int most = etcd_converts(entry->verb) ? TRIES_WITHOUT_WAIT : TRIES_MAX;
    if (++entry->tries > (unsigned)most)
        etcd_entry_fail(e, entry, HF_UNAVAILABLE, "the cluster changes too fast", now);
    else
        etcd_entry_advance(e, entry, now);
}

/* Refuses the request: deletes its place first, and replies after that. */
static void refuse(struct etcd *e, struct etcd_entry *entry, hf_status status, const char *text,
                   nanos now)
{
    entry->refusal = status;
    snprintf(entry->refusal_text, sizeof entry->refusal_text, "%.319s", text);
    if (entry->stage == ENTRY_NONE) {
        etcd_entry_reply_refusal(e, entry);
        return;
    }
    etcd_entry_send_delete(e, entry, now);
}

/* ---- Granting ---- */

static void reply_granted(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    /* The ttl counts from the request. A grant seen by a watch has no request of its own, so the
     * watch passes the start of the ttl. */
    nanos from = entry->verb == OP_ACQUIRE ? entry->asked_at : now;
    nanos wanted = from + NANOS_OF_MS(entry->sent.ttl_ms), end = session_end(&entry->session->base);
    entry->good_until = end < wanted ? end : wanted;
    etcd_entry_set_stage(entry, ENTRY_HELD);
    bool is_noted = entry->token == entry->created || entry->token == entry->changed;
    entry->settle_at = is_noted ? 0 : now + ETCD_SETTLE;
    etcd_entry_reply(e, entry,
                     (struct engine_reply){.kind = REPLY_GRANTED,
                                           .good = entry->good_until - entry->asked_at,
                                           .brief = end < wanted,
                                           .token = entry->token});
}

/* Prove the session before the grant: if the session has ended, the hold has ended with it. */
static bool is_session_good(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    struct etcd_session *session = entry->session;
    if (session_end(&session->base) - now > session->base.length / 4)
        return true;

    if (etcd_session_keep(e, session, now - session->base.length / 4, now))
        etcd_entry_send_verify(e, entry, now);
    return false;
}

void etcd_entry_continue_grant(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->is_granted && entry->session);
    if (entry->call)
        return;

    if (!entry->token)
        etcd_entry_send_claim(e, entry, now);
    else if (etcd_guard_need(e, entry, now) && is_session_good(e, entry, now))
        reply_granted(e, entry, now);
}

void etcd_entry_reply_delayed(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->verb == OP_ACQUIRE);
    if (!entry->sent.queue) {
        refuse(e, entry, HF_BUSY, "", now);
        return;
    }

    etcd_entry_reply(e, entry,
                     (struct engine_reply){
                         .kind = REPLY_QUEUED, .place = 1, .retry_at = now + TIMING_REFRESH_MOST});
}

/* The lease of a waiter has ended, or its key was moved to another lease: the waiter asks again. */
static void request_anew(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    etcd_entry_set_stage(entry, ENTRY_UNKNOWN);
    if (entry->verb == OP_NONE)
        etcd_entry_reply(e, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
    else
        etcd_entry_again(e, entry, now);
}

void etcd_entry_granted(struct etcd *e, struct etcd_entry *entry, uint64_t revision, nanos now)
{
    assert(entry->name);
    if (!entry->session) {
        request_anew(e, entry, now);
        return;
    }

    bool permits = entry->sent.kind == HF_SEMAPHORE;
    /* Granted at once means: by the list and the capacity as of the revision that created the
     * entry. */
    bool waited =
        revision != entry->created || (permits && entry->name->resize_at != entry->created);
    bool overlaps =
        /* Writers never overlap, but lists show tokens, so writers note their tokens as well. */
        entry->sent.kind != HF_EXCLUSIVE;
    bool must_write = waited && (overlaps || entry->sent.detached);
    if (!entry->token && !must_write)
        entry->token = revision;
    entry->is_granted = true;
    etcd_entry_continue_grant(e, entry, now);
}

/* ---- Deciding ---- */

static void describe_mismatch(const struct etcd_entry *entry, const struct queue_entry *other,
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

/* Returns true if the kind does not match that of the first entry. Entries of other programs are
 * exclusive and queue behind every kind. */
static bool disagrees(const struct etcd_entry *entry, const struct queue_entry *first)
{
    struct queue_entry own = {.kind = entry->sent.kind, .capacity = entry->sent.capacity};
    return !first->foreign && !entry_order_agree(&own, first);
}

static void refuse_too_big(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%u units are more than its capacity, which was changed to %u",
             entry->sent.units, entry->name->resize.capacity);
    refuse(e, entry, HF_TOO_BIG, text, now);
}

static void decide(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    struct etcd_name *name = entry->name;
    ptrdiff_t row = etcd_view_judge(name, entry);
    char text[ERROR_TEXT_MAX];
    if (row > 0 && disagrees(entry, &name->queue[0])) {
        describe_mismatch(entry, &name->queue[0], text, sizeof text);
        refuse(e, entry, HF_MISMATCH, text, now);
        return;
    }
    if (row < 0 && name->total > ETCD_WAITERS_MAX) {
        refuse(e, entry, HF_FULL, "too many requests wait for this name", now);
        return;
    }

    if (row >= 0)
        etcd_view_note(name, row, entry);
    if (row >= 0 && etcd_resize_is_too_big(name, &name->queue[row])) {
        refuse_too_big(e, entry, now);
        return;
    }
    if (row >= 0 && name->queue[row].holds) {
        etcd_entry_granted(e, entry, name->revision, now);
        return;
    }
    if (!entry->sent.queue) {
        refuse(e, entry, HF_BUSY, "", now);
        return;
    }

    uint32_t place = row >= 0 ? name->queue[row].place : (uint32_t)name->total;
    etcd_entry_reply(e, entry,
                     (struct engine_reply){.kind = REPLY_QUEUED,
                                           .place = place ? place : 1,
                                           .retry_at = now + TIMING_REFRESH_MOST});
    etcd_view_need(e, name, now);
    if (row < 0 && name->shared)
        etcd_view_read(e, name, now);
}

/* ---- Taking a place ---- */

void etcd_entry_note(struct etcd_entry *entry, const struct key_value *pair)
{
    struct etcd_value value;
    entry->changed = pair->changed;
    if (!etcd_value_read(&value, pair, (struct slice){entry->id, ETCD_ID_TEXT}))
        return;
    if (value.queue.foreign) /* overwritten by hand */
        return;
    entry->kind = value.queue.kind;
    entry->confirmed = value.queue.confirmed;
}

static void learn(struct etcd *e, struct etcd_entry *entry, const struct key_value *pair)
{
    assert(entry->name);
    struct etcd_session *session = etcd_session_of_lease(e, pair->lease);
    entry->created = pair->created;
    etcd_entry_note(entry, pair);
    if (!session && pair->lease)
        session = etcd_session_adopt(e, entry, pair->lease);
    if (session)
        etcd_session_attach(entry, session);
    if (entry->stage == ENTRY_NONE || entry->stage == ENTRY_UNKNOWN)
        etcd_entry_set_stage(entry, ENTRY_QUEUED);
}

static bool is_overtaken(const struct etcd_entry *entry)
{
    return entry->verb != OP_ACQUIRE && entry->verb != OP_NONE;
}

/* Keeps a list. An incomplete list of a shared lock is ignored: readers and permits beyond its
 * end may hold, too. */
static bool take_list(struct etcd *e, struct etcd_name *name, struct message *read,
                      uint64_t revision)
{
    bool is_useless = read->more && name->shared;
    return is_useless || etcd_view_take(e, name, read, revision);
}

static void on_place(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message put, all;
    if (!entry->session) { /* The session was lost meanwhile, and the place in the queue with it. */
        etcd_entry_set_stage(entry, ENTRY_UNKNOWN);
        etcd_entry_again(e, entry, now);
        return;
    }

    entry->created = entry->changed = m->header.revision;
    etcd_entry_set_stage(entry, ENTRY_QUEUED);
    etcd_session_prove(entry->session, m);
    etcd_renewal_show(entry, m);
    bool complete =
        message_next_response(&m->responses, &put) && message_next_response(&m->responses, &all);
    etcd_resize_take(entry->name, m->responses, m->header.revision);
    bool read = complete && take_list(e, entry->name, &all, m->header.revision);

    if (is_overtaken(entry))
        etcd_entry_advance(e, entry, now);
    else if (read)
        decide(e, entry, now);
    else
        refuse(e, entry, HF_NO_MEMORY, "no memory for the queue", now);
}

/* Replies BUSY to a request that does not wait and has no place. */
static void reply_held_by_others(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    const struct etcd_name *name = entry->name;
    char text[ERROR_TEXT_MAX];
    if (name->count == 0 || !disagrees(entry, &name->queue[0])) {
        etcd_entry_reply_busy(e, entry);
        return;
    }

    describe_mismatch(entry, &name->queue[0], text, sizeof text);
    refuse(e, entry, HF_MISMATCH, text, now);
}

/* An exclusive request that does not wait found keys below the name. If none of the keys is an
 * entry, the request is sent again on condition that no key has changed since. */
static void on_name_in_use(struct etcd *e, struct etcd_entry *entry, uint64_t revision, nanos now)
{
    assert(entry->name);
    bool has_entries = entry->name->count > 0 || entry->name->more;
    if (has_entries || ++entry->tries > TRIES_WITHOUT_WAIT) {
        reply_held_by_others(e, entry, now);
        return;
    }

    entry->try_revision = revision;
    etcd_entry_advance(e, entry, now);
}

/* Returns true if the server has our epoch. If not, the epoch is written before the next
 * request. */
static bool is_epoch(struct etcd *e, struct message *read)
{
    struct key_value pair;
    char text[24];
    if (!message_next_pair(&read->pairs, &pair)) {
        etcd_session_lost(e, e->door, e->last_now);
        return false;
    }

    size_t len = (size_t)snprintf(text, sizeof text, "%016" PRIx64, e->epoch);
    bool same = pair.value.len == len && memcmp(pair.value.at, text, len) == 0;
    e->must_raise_epoch |= !same;
    return same;
}

static void on_no_place(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message epoch, own, all;
    struct key_value pair;
    bool complete = message_next_response(&m->responses, &epoch) &&
                    message_next_response(&m->responses, &own) &&
                    message_next_response(&m->responses, &all);

    etcd_resize_take(entry->name, m->responses, m->header.revision);
    if (complete && message_next_pair(&own.pairs, &pair)) {
        learn(e, entry, &pair);
        bool listed = entry->session && take_list(e, entry->name, &all, m->header.revision);
        if (listed && !is_overtaken(entry))
            decide(e, entry, now);
        else
            etcd_entry_again(e, entry, now);
        return;
    }

    etcd_entry_set_stage(entry, ENTRY_NONE);
    if (complete && !is_epoch(e, &epoch)) {
        etcd_entry_again(e, entry, now);
        return;
    }

    bool is_exclusive = entry->sent.kind == HF_EXCLUSIVE && !entry->sent.queue;
    entry->try_revision = 0;
    if (is_overtaken(entry))
        etcd_entry_advance(e, entry, now);
    else if (complete && is_exclusive && etcd_view_take(e, entry->name, &all, m->header.revision))
        on_name_in_use(e, entry, m->header.revision, now);
    else if (complete && !entry->sent.queue && ++entry->tries > TRIES_WITHOUT_WAIT)
        etcd_entry_reply_busy(e, entry); /* The list changed before each try: give up. */
    else if (complete && !entry->sent.queue)
        etcd_entry_advance(e, entry, now);
    else
        etcd_entry_again(e, entry, now);
}

/* Handles the reply to the read of a request that does not wait: sends the request if it would hold
 * behind the entries of the list. */
static void on_try_read(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct etcd_name *name = entry->name;
    if (is_overtaken(entry) || !etcd_view_take_reply(e, name, m)) {
        etcd_entry_again(e, entry, now);
        return;
    }

    struct queue_entry own = {
        .kind = entry->sent.kind, .units = entry->sent.units, .capacity = entry->sent.capacity};
    if (etcd_resize_is_too_big(name, &own)) {
        refuse_too_big(e, entry, now);
        return;
    }
    bool is_there = etcd_view_judge(name, entry) >= 0;
    bool is_refused = !is_there && (!etcd_view_would_hold(name, entry) ||
                                    (name->count && disagrees(entry, &name->queue[0])));
    if (is_refused) {
        reply_held_by_others(e, entry, now);
    } else {
        entry->try_revision = m->header.revision;
        etcd_entry_advance(e, entry, now);
    }
}

static void on_refresh(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    bool is_void = is_overtaken(entry) || entry->stage != ENTRY_QUEUED;
    if (is_void || !etcd_view_take_reply(e, entry->name, m)) {
        etcd_entry_again(e, entry, now);
        return;
    }

    bool is_gone = etcd_view_judge(entry->name, entry) < 0 && !entry->name->more;
    if (is_gone) {
        etcd_entry_set_stage(entry, ENTRY_NONE);
        etcd_entry_again(e, entry, now);
        return;
    }
    decide(e, entry, now);
}

/* ---- Holding ---- */

void etcd_entry_lose(struct etcd *e, struct etcd_entry *entry)
{
    assert(entry->name);
    bool waits = entry->stage == ENTRY_QUEUED && entry->verb == OP_NONE;
    etcd_entry_set_stage(entry, ENTRY_NONE);
    etcd_session_attach(entry, NULL);
    etcd_entry_reply(e, entry,
                     (struct engine_reply){.kind = waits ? REPLY_NOTIFY : REPLY_NOT_HELD,
                                           .retry_at = TIME_NEVER,
                                           .text = waits ? NULL : "its key in etcd is gone"});
}

/* lock_delay: handles the reply to a guard call. */
static void on_guard_reply(struct etcd *e, struct etcd_entry *entry, enum call_kind kind,
                           struct message *m, nanos now)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    bool is_void = entry->stage != ENTRY_QUEUED || !entry->session || !entry->is_granted;

    if (is_void || is_overtaken(entry))
        etcd_entry_advance(e, entry, now);
    else if (kind == CALL_ORPHAN_LEASE)
        etcd_guard_on_lease(e, entry, m, now);
    else if (kind == CALL_ORPHAN_MARK)
        etcd_guard_on_marked(e, entry, now);
    else if (m->succeeded)
        etcd_guard_on_reply(e, entry, m, now);
    else if (message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair) &&
             pair.created == entry->created) {
        etcd_entry_note(entry, &pair);
        etcd_entry_advance(e, entry, now);
    } else {
        etcd_entry_lose(e, entry);
    }
}

static void on_claimed(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    /* The place was lost meanwhile. */
    if (entry->stage != ENTRY_QUEUED || !entry->session) {
        etcd_entry_advance(e, entry, now);
        return;
    }

    if (m->succeeded) {
        entry->changed = entry->token = m->header.revision;
        entry->confirmed |= entry->kind == HF_SEMAPHORE;
        etcd_session_prove(entry->session, m);
        etcd_renewal_show(entry, m);
    } else if (message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair) &&

               pair.created == entry->created) {
        /* If the entry has not changed, the capacity has: the list decides again. */
        entry->is_granted &= pair.changed != entry->changed;
        etcd_entry_note(entry, &pair);
        if (!entry->is_granted && entry->verb == OP_NONE)
            etcd_view_read(e, entry->name, now);
    } else {
        etcd_entry_lose(e, entry);
        return;
    }
    etcd_entry_advance(e, entry, now);
}

void etcd_entry_reply_extended(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    nanos ttl = NANOS_OF_MS(entry->sent.ttl_ms);
    bool is_renewal = entry->verb == OP_EXTEND && entry->sent.is_renewal;
    const struct session *session = &entry->session->base;
    nanos end = is_renewal ? entry->shown_at + session->length : session_end(session);
    nanos good = end - entry->asked_at;
    bool checks = entry->verb != OP_EXTEND && entry->good_until;
    if (checks && good > entry->good_until - entry->asked_at)
        /* Other holds may have renewed the session. */
        good = entry->good_until - entry->asked_at;
    good = good < ttl || checks ? good : ttl;
    entry->good_until = entry->asked_at + good;
    etcd_entry_set_stage(entry, ENTRY_HELD);
    /* A hold that is renewed once will last: watch its entry to notice a loss. */
    entry->is_watched |= entry->verb == OP_EXTEND;
    etcd_entry_reply(
        e, entry,
        (struct engine_reply){.kind = REPLY_EXTENDED, .good = good, .token = entry->token});
    if (entry->is_watched)
        etcd_view_watch_entry(e, entry, now);
}

static bool is_proven(const struct etcd_entry *entry)
{
    const struct etcd_session *session = entry->session;
    if (!session || !session->base.proven_at)
        return false;
    if (entry->verb != OP_EXTEND)
        return true;
    if (entry->sent.is_renewal)
        return etcd_renewal_is_recent(entry);
    return session->base.proven_at >= entry->asked_at - ETCD_SHARE;
}

/* The read has shown the entry. Replies to an EXTEND if the keepalive is proven, too. Sends a
 * conversion unless the entry already has the wanted kind. */
static void on_seen(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    bool converts = etcd_converts(entry->verb);
    bool extends = entry->verb == OP_EXTEND || entry->verb == OP_CHECK || converts;
    bool is_done = is_proven(entry) && (!converts || etcd_is_converted(entry));

    if (!extends)
        etcd_entry_advance(e, entry, now);
    else if (is_done)
        etcd_entry_reply_extended(e, entry, now);
    else
        etcd_entry_again(e, entry, now);
}

/* Returns the token of a hold that another process acquired. */
static uint64_t noted_token(const struct etcd_entry *entry, const struct key_value *pair)
{
    struct etcd_value value;
    struct slice tail = {entry->id, ETCD_ID_TEXT};
    bool noted = etcd_value_read(&value, pair, tail) && value.token;
    return noted ? value.token : pair->created;
}

void etcd_entry_take(struct etcd *e, struct etcd_entry *entry, const struct key_value *pair)
{
    bool takes = entry->verb == OP_ACQUIRE || entry->verb == OP_NONE;
    learn(e, entry, pair);
    uint64_t noted = noted_token(entry, pair);
    /* An upgrade of unknown outcome may have raised the token. */
    if (!takes && noted > entry->token)
        entry->token = noted;
}

static void on_verified(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    bool is_there = message_next_response(&m->responses, &own) &&
                    message_next_pair(&own.pairs, &pair) &&
                    (!entry->created || pair.created == entry->created);
    bool takes = entry->verb == OP_ACQUIRE || entry->verb == OP_NONE;
    if (takes && entry->stage == ENTRY_NONE) { /* The place was lost meanwhile. */
        etcd_entry_advance(e, entry, now);
        return;
    }
    if (!is_there) {
        etcd_entry_lose(e, entry);
        return;
    }

    etcd_entry_take(e, entry, &pair);
    entry->seen_at = m->header.revision;
    if (entry->session)
        etcd_session_prove(entry->session, m);
    etcd_renewal_show(entry, m);
    on_seen(e, entry, now);
}

static void on_moved(struct etcd *e, struct etcd_entry *entry, const struct etcd_call *call,
                     struct message *m, nanos now)
{
    assert(entry->name);
    struct etcd_session *to = call->session;
    struct message own;
    struct key_value pair;
    bool is_lost = to->base.state != SESSION_ALIVE || to->lease != call->lease;
    if (m->succeeded && is_lost) {
        entry->changed = entry->seen_at = m->header.revision;
        etcd_session_attach(entry, NULL); /* The next read shows whether it exists. */
        etcd_entry_again(e, entry, now);
    } else if (m->succeeded) {
        entry->changed = entry->seen_at = m->header.revision;
        etcd_session_attach(entry, to);
        etcd_session_prove(to, m);
        etcd_renewal_show(entry, m);
        on_seen(e, entry, now);
    } else if (message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair) &&

               pair.created == entry->created) {
        learn(e, entry, &pair);
        etcd_entry_again(e, entry, now);
    } else {
        etcd_entry_lose(e, entry);
    }
}

/* If the transaction failed, the entry was changed or deleted: the next EXTEND notices. */
static void on_settled(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    if (m->succeeded)
        entry->changed = m->header.revision;
    else if (message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair))
        etcd_entry_note(entry, &pair);

    etcd_entry_advance(e, entry, now);
}

/* ---- Leaving ---- */

void etcd_entry_reply_refusal(struct etcd *e, struct etcd_entry *entry)
{
    assert(entry->name);
    hf_status status = entry->refusal;
    entry->refusal = HF_OK;

    if (status == HF_BUSY)
        etcd_entry_reply_busy(e, entry);
    else
        etcd_entry_fail(e, entry, status, entry->refusal_text, TIME_NEVER);
}

void etcd_entry_reply_busy(struct etcd *e, struct etcd_entry *entry)
{
    etcd_entry_reply(e, entry, (struct engine_reply){.kind = REPLY_BUSY, .retry_at = TIME_NEVER});
}

static void on_deleted(struct etcd *e, struct etcd_entry *entry, struct message *m)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    bool is_there = !m->succeeded && message_next_response(&m->responses, &own) &&
                    message_next_pair(&own.pairs, &pair) && pair.created == entry->created;
    if (is_there && entry->refusal) {
        /* The epoch was raised meanwhile: the list decides again, or a release deletes. */
        entry->refusal = HF_OK;
        etcd_entry_again(e, entry, e->last_now);
        return;
    }

    bool was_held = m->succeeded || entry->verb == OP_LEAVE || entry->deletes_blindly;
    etcd_entry_set_stage(entry, ENTRY_NONE);
    etcd_session_attach(entry, NULL);
    entry->deletes_blindly = false;
    if (entry->refusal && entry->verb == OP_ACQUIRE) {
        etcd_entry_reply_refusal(e, entry);
        return;
    }

    entry->refusal = HF_OK;
    if (entry->verb == OP_RELEASE || entry->verb == OP_LEAVE)
        etcd_entry_reply(e, entry,
                         (struct engine_reply){.kind = was_held ? REPLY_RELEASED : REPLY_NOT_HELD,
                                               .retry_at = TIME_NEVER});
    else
        etcd_entry_advance(e, entry, e->last_now);
}

/* ---- Replies ---- */

void etcd_entry_on_reply(struct etcd *e, struct etcd_call *call, struct message *m, nanos now)
{
    struct etcd_entry *entry = call->entry;
    struct etcd_name *name = entry->name;
    bool has_list =
        call->kind == CALL_ACQUIRE || call->kind == CALL_TRY_READ || call->kind == CALL_REFRESH;
    assert(entry->call == call);

    entry->call = NULL;
    switch (call->kind) {
    case CALL_ACQUIRE:
        if (m->succeeded)
            on_place(e, entry, m, now);
        else
            on_no_place(e, entry, m, now);
        break;
    case CALL_TRY_READ:
        on_try_read(e, entry, m, now);
        break;
    case CALL_REFRESH:
        on_refresh(e, entry, m, now);
        break;
    case CALL_CLAIM:
        on_claimed(e, entry, m, now);
        break;
    case CALL_VERIFY:
        on_verified(e, entry, m, now);
        break;
    case CALL_SETTLE:
        on_settled(e, entry, m, now);
        break;
    case CALL_GUARD:
    case CALL_ORPHAN_LEASE:
    case CALL_ORPHAN_MARK:
        on_guard_reply(e, entry, call->kind, m, now);
        break;
    case CALL_MOVE:
        on_moved(e, entry, call, m, now);
        break;
    case CALL_CONVERT_READ:
        etcd_convert_on_read(e, entry, m, now);
        break;
    case CALL_CONVERT:
        etcd_convert_on_reply(e, entry, m, now);
        break;
    default:
        on_deleted(e, entry, m);
        break;
    }

    /* A list read for one request may let another waiter of this client in. */
    if (has_list)
        etcd_view_decide(e, name, now);
}

/* ---- Failures ---- */

/* Replies to the verb in flight: its outcome is unknown. */
static void reply_unknown(struct etcd *e, struct etcd_entry *entry, const char *text)
{
    etcd_entry_reply(
        e, entry,
        (struct engine_reply){.kind = REPLY_UNKNOWN, .retry_at = TIME_NEVER, .text = text});
}

/* Returns true for calls between the list that lets a request in and its grant. */
static bool takes_step(enum call_kind kind)
{
    return kind == CALL_CLAIM || kind == CALL_VERIFY || kind == CALL_GUARD ||
           kind == CALL_ORPHAN_LEASE || kind == CALL_ORPHAN_MARK;
}

void etcd_entry_on_cut(struct etcd *e, struct etcd_call *call, bool not_processed, hf_status status,
                       const char *text, nanos now)
{
    assert(call->connection);
    struct etcd_entry *entry = call->entry;
    entry->call = NULL;
    bool places = call->kind == CALL_ACQUIRE, deletes = call->kind == CALL_DELETE;
    bool refuses = deletes && entry->refusal;

    if ((places || refuses) && !not_processed) {
        etcd_entry_set_stage(entry, ENTRY_UNKNOWN);
        e->must_raise_epoch = true;
    }

    bool rewrites = call->kind == CALL_MOVE || call->kind == CALL_SETTLE;
    if (rewrites && !not_processed)
        /* The next read shows the lease that the entry is attached to. */
        etcd_session_attach(entry, NULL);
    if (takes_step(call->kind))
        entry->is_granted = false; /* The list is read again. */
    entry->deletes_blindly |= deletes && !refuses;
    if (deletes)
        entry->refusal = HF_OK;

    bool answers = entry->verb != OP_NONE && !(places && is_overtaken(entry));
    bool converts = call->kind == CALL_CONVERT;
    bool may_have_happened = (places || deletes || converts) && !not_processed;
    if (answers && may_have_happened)
        reply_unknown(e, entry, text);
    else if (answers)
        etcd_entry_fail(e, entry, status == HF_OK ? HF_UNAVAILABLE : status, text, now);
}

enum {
    GRPC_INVALID = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_DENIED = 7,
    GRPC_EXHAUSTED = 8,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16
};

static hf_status status_of_refusal(const struct http2_end *end)
{
    bool full = strstr(end->text, "database space exceeded");
    bool user = strstr(end->text, "user name is empty") || strstr(end->text, "authentication");
    switch (end->code) {
    case GRPC_EXHAUSTED:
        return full ? HF_FULL : HF_UNAVAILABLE;
    case GRPC_DENIED:
    case GRPC_UNAUTHENTICATED:
        return HF_DENIED;
    case GRPC_INVALID:
        if (user)
            return HF_DENIED;
        return strstr(end->text, "too large") ? HF_INVALID : HF_INTERNAL;
    default:
        return HF_UNAVAILABLE;
    }
}

void etcd_entry_on_refusal(struct etcd *e, struct etcd_call *call, const struct http2_end *end,
                           nanos now)
{
    assert(call->connection);
    struct etcd_entry *entry = call->entry;
    bool is_own_lease = call->kind != CALL_ORPHAN_MARK;
    /* The lease was not found, so nothing was written. */
    if (end->code == GRPC_NOT_FOUND && is_own_lease) {
        struct etcd_session *session = call->session ? call->session : entry->session;
        entry->call = NULL;
        if (session)
            etcd_session_lost(e, session, now);
        etcd_entry_again(e, entry, now);
        return;
    }

    hf_status status = status_of_refusal(end);
    bool no_leader = strstr(end->text, "no leader");
    bool is_refused = status != HF_UNAVAILABLE || no_leader || end->code == GRPC_EXHAUSTED;
    char text[300];
    snprintf(text, sizeof text, "%.100s: %.180s", e->where, end->text);
    etcd_entry_on_cut(e, call, is_refused, status, text, now);
}
