/* etcd_convert.c - upgrade and downgrade: a hold's own entry is written with the other kind.
 *
 * A downgrade only lets others in, so it needs its own entry unchanged and nothing else. An upgrade
 * must be the only hold. So the client reads the list and checks that no other holder is in it.
 * Then it writes on condition that nobody was let in since: the first waiter still has its place
 * or, without waiters, no entry was added. */
#include "etcd.h"

#include <assert.h>
#include <stdlib.h>

/* The list that an upgrade was decided by. */
struct upgrade_guard {
    uint64_t revision;
    struct key_value waiter; /* the first waiter; without a key there is none */
};

static hf_kind kind_after(enum op_verb verb)
{
    assert(etcd_converts(verb));
    return verb == OP_UPGRADE ? HF_WRITE : HF_READ;
}

bool etcd_is_converted(const struct etcd_entry *entry)
{
    return entry->kind == kind_after(entry->verb);
}

/* Adds the conditions of an upgrade about other entries. */
static void compare_bar(struct etcd *e, const struct etcd_entry *entry,
                        const struct upgrade_guard *guard)
{
    const struct etcd_name *name = entry->name;
    struct slice first = {name->first, name->base_len + 1}, last = {name->last, name->base_len + 1};
    if (guard->waiter.key.len)
        message_compare(&e->message, guard->waiter.key, SLICE_NONE, COMPARE_CREATED, COMPARE_EQUAL,
                        guard->waiter.created);
    else
        message_compare(&e->message, first, last, COMPARE_CHANGED, COMPARE_LESS,
                        guard->revision + 1);
}

/* `guard` is NULL for a downgrade. An upgrade has a new token, a downgrade keeps the old one. */
static void send_convert(struct etcd *e, struct etcd_entry *entry,
                         const struct upgrade_guard *guard, nanos now)
{
    assert(entry->token && entry->session);
    char value[ETCD_VALUE_MAX];
    struct slice key = etcd_value_key(entry);
    struct range_request own = {.key = key};
    struct etcd_state state = {
        .kind = kind_after(entry->verb), .confirmed = entry->confirmed, .new_token = guard != NULL};
    size_t len = etcd_value_write(e, entry, state, value, now);

    pb_clear(&e->message);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL, entry->changed);
    if (guard)
        compare_bar(e, entry, guard);
    message_txn_put(&e->message, TXN_THEN, key, (struct slice){value, len}, entry->session->lease);
    message_txn_range(&e->message, TXN_ELSE, &own);
    etcd_entry_send(e, entry, CALL_CONVERT, now);
}

void etcd_convert_advance(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->created && entry->token && entry->session);
    if (etcd_is_converted(entry))
        etcd_entry_send_verify(e, entry, now);
    else if (entry->verb == OP_UPGRADE)
        etcd_entry_send_list(e, entry, CALL_CONVERT_READ, now);
    else
        send_convert(e, entry, NULL, now);
}

/* ---- Upgrading ---- */

/* The verdict on an upgrade, by the holds and waiters of a list. */
enum upgrade_verdict { UPGRADE_MAY, UPGRADE_OTHERS_HOLD, UPGRADE_GONE, UPGRADE_NO_MEMORY };

static enum upgrade_verdict judge_pairs(struct etcd_entry *entry, const struct key_value *pair,
                                        struct queue_entry *queue, size_t count,
                                        struct upgrade_guard *guard)
{
    bool is_there = false, others_hold = false;
    entry_order_judge(queue, count, (struct queue_resize){0, 0});
    for (size_t i = 0; i < count; i++) {
        bool is_own = pair[i].created == entry->created;
        if (is_own)
            etcd_entry_note(entry, &pair[i]);
        is_there |= is_own;
        others_hold |= queue[i].holds && !is_own;
        if (!queue[i].holds && !guard->waiter.key.len)
            guard->waiter = pair[i];
    }

    if (!is_there)
        return UPGRADE_GONE;
    return others_hold ? UPGRADE_OTHERS_HOLD : UPGRADE_MAY;
}

static enum upgrade_verdict judge_list(struct etcd_entry *entry, struct message list,
                                       struct upgrade_guard *guard)
{
    size_t room = (size_t)list.count + 1, count = 0;
    struct queue_entry *queue = malloc(room * sizeof *queue);
    struct key_value *pair = malloc(room * sizeof *pair);
    enum upgrade_verdict verdict = UPGRADE_NO_MEMORY;

    while (queue && pair && count < room && message_next_pair(&list.pairs, &pair[count])) {
        struct etcd_value value;
        struct slice tail = etcd_view_tail(entry->name, pair[count].key);
        if (tail.len && etcd_value_read(&value, &pair[count], tail))
            queue[count++] = value.queue;
    }
    if (queue && pair)
        verdict = judge_pairs(entry, pair, queue, count, guard);

    free(queue);
    free(pair);
    return verdict;
}

void etcd_convert_on_read(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct upgrade_guard guard = {.revision = m->header.revision};
    struct message list;
    bool is_void = entry->verb != OP_UPGRADE || !entry->session || !entry->created || !entry->token;
    if (is_void) {
        etcd_entry_advance(e, entry, now);
        return;
    }

    if (!message_next_response(&m->responses, &list))
        list = (struct message){0};
    switch (judge_list(entry, list, &guard)) {
    case UPGRADE_MAY:
        send_convert(e, entry, &guard, now);
        break;
    case UPGRADE_OTHERS_HOLD:
        etcd_entry_reply_busy(e, entry);
        break;
    case UPGRADE_GONE:
        etcd_entry_lose(e, entry);
        break;
    default:
        etcd_entry_fail(e, entry, HF_NO_MEMORY, "no memory for the queue", TIME_NEVER);
    }
}

/* ---- The reply ---- */

void etcd_convert_on_reply(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message own;
    struct key_value pair;
    bool is_overtaken = !etcd_converts(entry->verb);
    if (m->succeeded && entry->session)
        etcd_session_prove(entry->session, m);

    if (m->succeeded && !is_overtaken) {
        entry->kind = kind_after(entry->verb);
        entry->changed = entry->seen_at = m->header.revision;
        if (entry->verb == OP_UPGRADE)
            entry->token = m->header.revision;
    }
    if (is_overtaken)
        etcd_entry_advance(e, entry, now);
    else if (m->succeeded && entry->session)
        etcd_entry_reply_extended(e, entry, now);
    else if (message_next_response(&m->responses, &own) && message_next_pair(&own.pairs, &pair) &&
             pair.created == entry->created) {
        etcd_entry_note(entry, &pair);
        etcd_entry_again(e, entry, now);
    } else {
        etcd_entry_lose(e, entry);
    }
}
