/* etcd_lock_delay.c - the setting lock_delay: after a hold that ended without a release, the next
 * one is granted later.
 *
 * With the setting each holder writes a second key, its *guard*: PREFIX .d/ NAME / ATTEMPT. A guard
 * has no lease. A release deletes entry and guard in one step. If etcd ends the lease of a hold, or
 * somebody deletes its entry, the guard stays: an *orphan*.
 *
 * Once the list lets a request in, its client writes the guard and reads the other guards in one
 * transaction. The request is not granted while there are orphans. The first client that sees an
 * orphan attaches it to a new etcd lease of the delay, so the cluster removes it in time even if
 * that client dies. The old holder last renewed before its entry was deleted. So a delay of at
 * least its ttl, counted from the first sight of the orphan, ends after the old holder's belief. */
#include "etcd.h"

#include <assert.h>
#include <string.h>

enum { GUARD_KEY_MAX = ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + ETCD_ID_TEXT + 8 };

#define GUARD_POLL_MAX NANOS_OF_MS(500)

/* Writes the key of the guard with that attempt id. Returns its length. */
static size_t write_key(const struct etcd *e, const struct etcd_name *name, const char *id,
                        char key[GUARD_KEY_MAX])
{
    assert(name->count <= name->room);
    size_t rest = name->base_len - e->prefix_len, len = e->prefix_len;
    memcpy(key, e->prefix, len);
    memcpy(key + len, ".d/", 3);
    memcpy(key + len + 3, name->base + e->prefix_len, rest);
    memcpy(key + len + 3 + rest, id, strlen(id));
    return len + 3 + rest + strlen(id);
}

void etcd_guard_delete(struct etcd *e, const struct etcd_entry *entry)
{
    assert(entry->name);
    char key[GUARD_KEY_MAX];
    if (!e->lock_delay)
        return;

    size_t len = write_key(e, entry->name, entry->id, key);
    message_txn_delete(&e->message, TXN_THEN, (struct slice){key, len});
}

static void send(struct etcd *e, struct etcd_entry *entry, enum call_kind kind, nanos now)
{
    assert(!entry->call);
    entry->call = etcd_call(&e->connection[CONNECTION_COMMANDS], kind, now);
    if (!entry->call)
        return;

    entry->call->entry = entry;
    if (!entry->op)
        etcd_call_claim_none(entry->call);
}

static void send_guard(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    struct etcd_name *name = entry->name;
    char own[GUARD_KEY_MAX], first[GUARD_KEY_MAX], last[GUARD_KEY_MAX];
    size_t own_len = write_key(e, name, entry->id, own), len = write_key(e, name, "", first);
    memcpy(last, first, len);
    last[len - 1]++; /* the final slash plus one is the end of the range */
    struct slice key = etcd_value_key(entry);
    struct range_request entry_read = {.key = key}, list = etcd_view_range(name, true);
    struct range_request guards = {.key = {first, len}, .range_end = {last, len}, .by_key = true};

    pb_clear(&e->message);
    message_compare(&e->message, key, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL, entry->changed);
    message_txn_put(&e->message, TXN_THEN, (struct slice){own, own_len}, SLICE_NONE, 0);
    message_txn_range(&e->message, TXN_THEN, &guards);
    if (entry->sent.kind != HF_EXCLUSIVE)
        message_txn_range(&e->message, TXN_THEN, &list);
    message_txn_range(&e->message, TXN_ELSE, &entry_read);
    send(e, entry, CALL_GUARD, now);
}

/* Sends the next request that the grant needs. Returns true if no orphan is in the way. */
bool etcd_guard_need(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    if (!e->lock_delay || entry->is_guarded)
        return true;

    if (now >= entry->guard_at)
        send_guard(e, entry, now);
    else if (entry->verb == OP_ACQUIRE)
        etcd_entry_reply_delayed(e, entry, now);

    return false;
}

/* ---- Orphans ---- */

/* Returns true if the list has an entry with that id. */
static bool is_listed(struct message list, const char *id)
{
    struct key_value pair;
    while (message_next_pair(&list.pairs, &pair)) {
        size_t len = pair.key.len;
        bool same =
            len > ETCD_ID_TEXT && memcmp(pair.key.at + len - ETCD_ID_TEXT, id, ETCD_ID_TEXT) == 0;
        if (same)
            return true;
    }

    return false;
}

/* Notes the orphans that have no lease yet. Returns the number of all orphans. For an exclusive
 * lock every other guard is an orphan. */
static unsigned note_orphans(struct etcd_entry *entry, struct message *guards, struct message *list)
{
    assert(entry->name);
    struct etcd_name *name = entry->name;
    struct key_value pair;
    unsigned count = 0;
    name->orphans = 0;

    while (message_next_pair(&guards->pairs, &pair)) {
        const char *id = pair.key.at + pair.key.len - ETCD_ID_TEXT;
        bool is_ours = pair.key.len <= ETCD_ID_TEXT || memcmp(id, entry->id, ETCD_ID_TEXT) == 0;
        if (is_ours || (list && is_listed(*list, id)))
            continue;
        count++;
        if (pair.lease || name->orphans == ORPHANS_MAX)
            continue;
        struct etcd_orphan *orphan = &name->orphan[name->orphans++];
        memcpy(orphan->id, id, ETCD_ID_TEXT);
        orphan->id[ETCD_ID_TEXT] = '\0';
        orphan->changed = pair.changed;
    }

    return count;
}

static void wait_for_orphans(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    nanos poll = e->lock_delay / 8;
    entry->guard_at = now + (poll < GUARD_POLL_MAX ? poll : GUARD_POLL_MAX);

    if (entry->name->orphans) {
        pb_clear(&e->message);
        message_lease_grant(&e->message, (e->lock_delay + NANOS_OF_MS(999)) / NANOS_OF_MS(1000));
        send(e, entry, CALL_ORPHAN_LEASE, now);
    } else if (entry->verb == OP_ACQUIRE) {
        etcd_entry_reply_delayed(e, entry, now);
    }
}

void etcd_guard_on_lease(struct etcd *e, struct etcd_entry *entry, const struct message *m,
                         nanos now)
{
    assert(entry->name);
    struct etcd_name *name = entry->name;
    char key[GUARD_KEY_MAX];
    pb_clear(&e->message);

    for (unsigned i = 0; i < name->orphans; i++) {
        struct slice guard = {key, write_key(e, name, name->orphan[i].id, key)};
        message_compare(&e->message, guard, SLICE_NONE, COMPARE_CHANGED, COMPARE_EQUAL,
                        name->orphan[i].changed);
    }

    for (unsigned i = 0; i < name->orphans; i++) {
        struct slice guard = {key, write_key(e, name, name->orphan[i].id, key)};
        message_txn_put(&e->message, TXN_THEN, guard, SLICE_NONE, m->lease);
    }

    if (name->orphans)
        send(e, entry, CALL_ORPHAN_MARK, now);
    else
        etcd_entry_advance(e, entry, now);
}

/* The next poll shows whether the orphans got this lease, or another client was faster. */
void etcd_guard_on_marked(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    if (entry->verb == OP_ACQUIRE)
        etcd_entry_reply_delayed(e, entry, now);
    else
        etcd_entry_advance(e, entry, now);
}

void etcd_guard_on_reply(struct etcd *e, struct etcd_entry *entry, struct message *m, nanos now)
{
    assert(entry->name);
    struct message put, guards, list;
    bool is_shared = entry->sent.kind != HF_EXCLUSIVE;
    bool complete = message_next_response(&m->responses, &put) &&
                    message_next_response(&m->responses, &guards) &&
                    (!is_shared || message_next_response(&m->responses, &list));
    if (complete && note_orphans(entry, &guards, is_shared ? &list : NULL)) {
        wait_for_orphans(e, entry, now);
        return;
    }

    entry->is_guarded = complete;
    etcd_entry_advance(e, entry, now);
}

nanos etcd_guards_tick(struct etcd *e, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct etcd_entry *entry = e->entries; e->lock_delay && entry; entry = entry->next) {
        bool waits = entry->is_granted && entry->guard_at && !entry->call;
        if (waits && now >= entry->guard_at)
            etcd_entry_advance(e, entry, now);
        else if (waits && entry->guard_at < next)
            next = entry->guard_at;
    }

    return next;
}
