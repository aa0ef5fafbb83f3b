/* consul_release.c - releases: reads the queue; then one transaction removes the keys of the
 * entry and passes .lock to the first waiter. */
#include "consul.h"
#include "engines/kit/unheard.h"

#include <assert.h>
#include <string.h>

enum { TRIES_MAX = 20 };

void consul_release_over(struct consul *c, struct consul_entry *entry)
{
    if (!entry->is_ending)
        return;

    assert(entry->name->deleting > 0 && c->deleting > 0);
    entry->is_ending = false;
    entry->name->deleting--;
    c->deleting--;
    c->has_backlog = true;
}

static void note_ending(struct consul *c, struct consul_entry *entry)
{
    assert(entry->name);
    if (entry->is_ending)
        return;

    entry->is_ending = true;
    entry->name->deleting++;
    c->deleting++;
}

static void send_read(struct consul *c, struct consul_entry *entry, nanos now)
{
    consul_entry_attach_call(entry, consul_call_tree(c, CALL_READ_END, entry->name, now));
}

/* Deletes a waiter's entry if it is unchanged. If the waiter was made the holder meanwhile, the
 * entry has changed and this transaction does nothing. */
static void send_delete(struct consul *c, struct consul_entry *entry, nanos now)
{
    assert(entry->name);
    struct slice key = consul_value_key(entry->name, entry->id);
    txn_begin(&c->body);

    if (entry->sent.kind == HF_EXCLUSIVE) {
        txn_add(&c->body,
                &(struct txn_op){.verb = "delete-cas", .key = key, .index = entry->changed});
    } else {
        txn_add(&c->body, &(struct txn_op){
                              .verb = "check-session", .key = key, .session = entry->session->id});
        txn_add(&c->body, &(struct txn_op){.verb = "delete", .key = key});
    }

    txn_end(&c->body);
    consul_entry_attach_call(entry, consul_call_txn(c, CALL_DELETE, false, now));
}

/* Replies to a LEAVE of a waiter without a place, or to a RELEASE of a hold without keys. */
static void reply_no_place(struct consul *c, struct consul_entry *entry, nanos now)
{
    char text[UNHEARD_TEXT_MAX];
    struct engine_reply reply = {.kind = REPLY_RELEASED};
    if (entry->unheard_since)
        reply = unheard_reply(text, c->where, entry->unheard_since, now);
    consul_entry_reply(c, entry, reply);
}

/* ---- The transaction ---- */

static void check_row(struct consul *c, const struct consul_name *name, const struct view_row *row)
{
    txn_add(&c->body, &(struct txn_op){.verb = "check-index",
                                       .key = consul_value_key(name, row->tail),
                                       .index = row->changed});
}

/* Gives the entry of another client a new modify index: the entry is locked again for its own
 * session, with other Flags, because Consul ignores a write that changes nothing. The check
 * prevents the write from restoring a deleted entry. */
static void touch_row(struct consul *c, const struct consul_name *name, const struct view_row *row)
{
    assert(name->count <= name->room);
    txn_add(&c->body, &(struct txn_op){.verb = "lock",
                                       .key = consul_value_key(name, row->tail),
                                       .session = row->session,
                                       .flags = name->lock.changed,
                                       .value = {row->value, strlen(row->value)}});
}

/* Returns the first row from `from` on to which .lock can be passed, skipping this entry's own row;
 * -1: none. */
static ptrdiff_t next_exclusive(const struct consul_name *name, ptrdiff_t from, ptrdiff_t own)
{
    assert(name->count <= name->room);
    ptrdiff_t at = from == own ? from + 1 : from;
    bool is_there = at < (ptrdiff_t)name->count;
    bool fits = is_there && name->row[at].tail[0] && !name->queue[at].foreign &&
                name->queue[at].kind == HF_EXCLUSIVE;
    return fits ? at : -1;
}

static void pass_lock(struct consul *c, const struct consul_name *name, ptrdiff_t to, ptrdiff_t own)
{
    assert(name->count <= name->room);
    const struct view_row *next = &name->row[to];
    char value[CONSUL_VALUE_MAX + 1];
    size_t len = consul_value_lock(value, next->tail, next->value);
    ptrdiff_t second = next_exclusive(name, to + 1, own);
    check_row(c, name, next);
    if (second >= 0)
        check_row(c, name, &name->row[second]);
    struct slice key = consul_value_key(name, CONSUL_LOCK_TAIL);
    txn_add(&c->body,
            &(struct txn_op){.verb = "unlock", .key = key, .session = name->lock.session});
    txn_add(&c->body, &(struct txn_op){.verb = "lock",
                                       .key = key,
                                       .session = next->session,
                                       .flags = CONSUL_LOCK_FLAGS,
                                       .value = {value, len}});
    touch_row(c, name, next);
    if (second >= 0)
        touch_row(c, name, &name->row[second]);
}

static void send_end(struct consul *c, struct consul_entry *entry, ptrdiff_t own, bool keeps_entry,
                     nanos now)
{
    assert(entry->name);
    const struct consul_name *name = entry->name;
    ptrdiff_t next = next_exclusive(name, 0, own);
    bool has_lock = consul_view_has_lock(entry);
    entry->ends_at = own >= 0 && has_lock ? name->lock.changed : 0;
    if (entry->ends_at && name->row[own].changed > entry->ends_at)
        entry->ends_at = name->row[own].changed;
    txn_begin(&c->body);

    if (has_lock) {
        struct slice key = consul_value_key(name, CONSUL_LOCK_TAIL);
        txn_add(&c->body,
                &(struct txn_op){.verb = "check-index", .key = key, .index = name->lock.changed});
        if (next >= 0)
            pass_lock(c, name, next, own);
        else
            txn_add(&c->body, &(struct txn_op){.verb = "delete",
                                               .key = consul_value_key(name, CONSUL_LOCK_TAIL)});
    }

    if (own >= 0 && !keeps_entry)
        txn_add(&c->body, &(struct txn_op){.verb = "delete-cas",
                                           .key = consul_value_key(name, entry->id),
                                           .index = name->row[own].changed});

    txn_end(&c->body);
    consul_entry_attach_call(entry,
                             consul_call_txn(c, keeps_entry ? CALL_PASS : CALL_END, false, now));
}

/* Returns true if the queue was read during the hold and showed the next holder: the transaction
 * compares all that it relies on, so the queue need not be read again. */
static bool may_pass_at_once(const struct consul_entry *entry)
{
    bool is_hold = entry->stage == ENTRY_HELD && entry->sent.kind == HF_EXCLUSIVE && entry->session;
    bool is_known =
        is_hold && !entry->sent.may_be_in_flight && !entry->is_lost && !entry->ends_blindly;
    return is_known && entry->tries == 0 && consul_view_knows_next(entry);
}

static void pass_at_once(struct consul *c, struct consul_entry *entry, nanos now)
{
    ptrdiff_t own = consul_view_judge(entry->name, entry);
    entry->ends_hold = true;
    send_end(c, entry, own, false, now);
}

/* ---- Beginning ---- */

/* Removes an attempt of unknown outcome only after its epoch has changed: from then on the late
 * request cannot take effect. */
void consul_release_begin(struct consul *c, struct consul_entry *entry, nanos now)
{
    bool is_unknown = entry->stage == ENTRY_UNKNOWN || entry->sent.may_be_in_flight;
    if (entry->stage == ENTRY_NONE && !is_unknown && !entry->is_lost) {
        reply_no_place(c, entry, now);
        return;
    }

    note_ending(c, entry);
    if (is_unknown && entry->session && !consul_epoch_need(c, entry->session, now))
        return;

    bool leaves = entry->stage == ENTRY_QUEUED && entry->verb == OP_LEAVE && entry->changed;
    /* .lock may name this entry although the view does not show that yet: the entry has a token
     * because it was granted, or it took .lock out of turn together with its place. */
    bool may_have_lock = entry->token || entry->asked_for_lock || consul_view_has_lock(entry);
    bool is_known = entry->sent.kind == HF_EXCLUSIVE
                        ? leaves && !may_have_lock
                        : entry->stage == ENTRY_QUEUED || entry->stage == ENTRY_HELD;
    bool is_simple = is_known && !is_unknown && !entry->is_lost && !entry->ends_blindly;

    if (is_simple && entry->session && entry->session->base.state == SESSION_ALIVE)
        send_delete(c, entry, now);
    else if (may_pass_at_once(entry))
        pass_at_once(c, entry, now);
    else
        send_read(c, entry, now);
}

void consul_release_pass(struct consul *c, struct consul_entry *entry, nanos now)
{
    ptrdiff_t own = consul_view_judge(entry->name, entry);
    send_end(c, entry, own, true, now);
}

/* ---- Replies ---- */

static void finish(struct consul *c, struct consul_entry *entry, bool was_held)
{
    assert(entry->name);
    ptrdiff_t row = consul_view_judge(entry->name, entry);
    bool says_released =
        was_held || entry->verb == OP_LEAVE || entry->ends_blindly || entry->sent.may_be_in_flight;
    if (row >= 0)
        consul_view_drop_row(entry->name, row);
    if (consul_view_has_lock(entry))
        entry->name->lock = (struct view_lock){0};
    entry->ends_blindly = entry->ends_hold = false;
    consul_release_over(c, entry);
    if (entry->is_lost) {
        consul_entry_lose(c, entry);
        return;
    }

    consul_entry_set_stage(entry, ENTRY_NONE);
    consul_session_attach(entry, NULL);
    if (entry->refusal && entry->verb == OP_ACQUIRE) {
        consul_entry_reply_refusal(c, entry);
        return;
    }

    entry->refusal = HF_OK;
    if (entry->verb == OP_RELEASE || entry->verb == OP_LEAVE)
        consul_entry_reply(
            c, entry,
            (struct engine_reply){.kind = says_released ? REPLY_RELEASED : REPLY_NOT_HELD,
                                  .retry_at = TIME_NEVER});
    else
        consul_entry_advance(c, entry, c->last_now);
}

/* Handles the reply to a read of the queue. A deposed leader answers a default read from old data,
 * which may lack a key that exists. */
static void on_read(struct consul *c, struct consul_entry *entry, enum call_kind kind,
                    const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    if (!consul_view_take(entry->name, reply, reply->index)) {
        consul_release_over(c, entry);
        consul_entry_fail(c, entry, HF_NO_MEMORY, "no memory for the queue", now);
        return;
    }

    ptrdiff_t own = consul_view_judge(entry->name, entry);
    bool has_lock = consul_view_has_lock(entry);
    bool exclusive = entry->sent.kind == HF_EXCLUSIVE;
    entry->ends_hold = own >= 0 && (!exclusive || has_lock);

    /* If two workers take turns, the former holder may be about to come back. If its place came
     * between this read and the deletion of .lock, it would need a further write to take .lock. So
     * the release waits a moment for it. */
    bool is_alone = has_lock && own == 0 && entry->name->count == 1;
    if (kind == CALL_READ_END && is_alone && entry->has_waited && entry->name->index)
        consul_entry_attach_call(entry, consul_call_tree(c, CALL_READ_LATE, entry->name, now));
    else if (own >= 0 || has_lock)
        send_end(c, entry, own, false, now);
    else if (kind != CALL_READ_GONE)
        consul_entry_attach_call(entry, consul_call_tree(c, CALL_READ_GONE, entry->name, now));
    else
        finish(c, entry, false);
}

void consul_release_on_reply(struct consul *c, struct consul_entry *entry, enum call_kind kind,
                             const struct consul_reply *reply, nanos now)
{
    assert(entry->name);
    bool done = reply->status == 200;
    if (kind == CALL_READ_END || kind == CALL_READ_LATE || kind == CALL_READ_GONE) {
        on_read(c, entry, kind, reply, now);
    } else if (done) {
        if (kind == CALL_END && entry->ends_hold)
            consul_entry_ended(entry);
        finish(c, entry, kind == CALL_DELETE || entry->ends_hold);
    } else if (++entry->tries > TRIES_MAX) {
        consul_release_over(c, entry);
        consul_entry_fail(c, entry, HF_UNAVAILABLE, "the queue changes too fast", now);
    } else {
        send_read(c, entry, now);
    }
}
