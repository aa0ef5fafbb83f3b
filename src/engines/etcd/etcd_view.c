/* etcd_view.c - this client's copy of the queue of a name: a list, and the watch that keeps the
 * list up to date. */
#include "etcd.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_connection *commands(struct etcd *e)
{
    return &e->connection[CONNECTION_COMMANDS];
}

static struct etcd_connection *watches(struct etcd *e)
{
    return &e->connection[CONNECTION_WATCHES];
}

uint64_t etcd_view_hash(const char *text, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    return hash;
}

/* ---- Names ---- */

static void free_name(struct etcd_name *name)
{
    free(name->base);
    free(name->first);
    free(name->last);
    free(name->queue);
    free(name->row);
    free(name);
}

/* Returns a copy of `base` with `end` appended; the copy has room for an entry's id instead of
 * `end`. */
static char *with_end(const char *base, size_t len, char end)
{
    char *key = malloc(len + ETCD_ID_TEXT + 1);
    if (key) {
        memcpy(key, base, len);
        key[len] = end;
    }

    return key;
}

/* Makes a name. All entries, also those of etcdctl, begin with a hexadecimal digit, so base +
 * '0' to base + 'p' is their range. */
static struct etcd_name *make_name(struct etcd *e, const char *base, size_t len)
{
    assert(len && base[len - 1] == '/');
    struct etcd_name *name = calloc(1, sizeof *name);
    if (!name)
        return NULL;

    name->base = with_end(base, len, '\0');
    name->first = with_end(base, len, '0');
    name->last = with_end(base, len, 'p');
    name->base_len = len;
    if (!name->base || !name->first || !name->last) {
        free_name(name);
        return NULL;
    }

    name->next = e->names;
    e->names = name;
    return name;
}

struct etcd_name *etcd_name_of(struct etcd *e, const char *text, size_t len)
{
    assert(len && len <= HF_NAME_MAX);
    char base[ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + 2];
    memcpy(base, e->prefix, e->prefix_len);
    size_t end = e->prefix_len + etcd_value_encode_name(base + e->prefix_len, text, len);
    base[end++] = '/';

    for (struct etcd_name *name = e->names; name; name = name->next)
        if (name->base_len == end && memcmp(name->base, base, end) == 0)
            return name;
    return make_name(e, base, end);
}

static bool has_waiters(const struct etcd_name *name)
{
    for (const struct etcd_entry *entry = name->entries; entry; entry = entry->beside)
        if (entry->stage == ENTRY_QUEUED)
            return true;
    return false;
}

/* ---- The list ---- */

static bool grow(struct etcd_name *name)
{
    assert(name->count == name->room);
    size_t room = name->room ? 2 * name->room : 16;
    struct queue_entry *queue = realloc(name->queue, room * sizeof *queue);
    if (queue)
        name->queue = queue;
    struct view_row *row = queue ? realloc(name->row, room * sizeof *row) : NULL;
    if (!row)
        return false;

    name->row = row;
    name->room = room;
    return true;
}

static ptrdiff_t find_row(const struct etcd_name *name, uint64_t hash)
{
    for (size_t i = 0; i < name->count; i++)
        if (name->row[i].hash == hash)
            return (ptrdiff_t)i;
    return -1;
}

struct slice etcd_view_tail(const struct etcd_name *name, struct slice key)
{
    if (key.len <= name->base_len || memcmp(key.at, name->base, name->base_len) != 0)
        return SLICE_NONE;
    return (struct slice){key.at + name->base_len, key.len - name->base_len};
}

static void drop_row(struct etcd_name *name, ptrdiff_t at)
{
    assert(at >= 0 && (size_t)at < name->count);
    size_t behind = name->count - (size_t)at - 1;
    memmove(&name->queue[at], &name->queue[at + 1], behind * sizeof *name->queue);
    memmove(&name->row[at], &name->row[at + 1], behind * sizeof *name->row);
    name->count--;
}

/* Adds or updates the row of a pair. Returns false without memory. */
static bool put_row(struct etcd_name *name, const struct key_value *pair)
{
    assert(name->count <= name->room);
    struct etcd_value value;
    struct slice tail = etcd_view_tail(name, pair->key);
    if (!tail.len || !etcd_value_read(&value, pair, tail))
        return true;

    uint64_t hash = etcd_view_hash(tail.at, tail.len);
    ptrdiff_t at = find_row(name, hash);
    if (at >= 0 && name->queue[at].arrival != value.queue.arrival) {
        drop_row(name, at); /* a repeated attempt wrote its entry anew */
        at = -1;
    }
    if (at < 0 && name->count == name->room && !grow(name))
        return false;

    if (at < 0) {
        at = (ptrdiff_t)name->count++;
        while (at > 0 && name->queue[at - 1].arrival > value.queue.arrival) {
            name->queue[at] = name->queue[at - 1];
            name->row[at] = name->row[at - 1];
            at--;
        }
    }

    name->queue[at] = value.queue;
    name->row[at] = (struct view_row){.hash = hash, .changed = pair->changed, .lease = pair->lease};
    return true;
}

/* Returns true if the list of a shared name can be kept up to date by the events of its watch. */
static bool is_synced(const struct etcd_name *name)
{
    return name->read_at && name->read_at >= name->gap;
}

/* Replaces the list by a read. A read as of the creation of an entry, or later, has everything
 * ahead of that entry. A read that is older than the list is ignored. For an exclusive name only
 * reads add rows. A late reply may bring back rows whose deletion was already seen, which costs one
 * more read. The list of a shared name never goes back, because it must be the queue as of one
 * revision. */
bool etcd_view_take(struct etcd *e, struct etcd_name *name, struct message *read, uint64_t revision)
{
    assert(name->count <= name->room);
    struct key_value pair;
    bool is_newer = name->shared && is_synced(name) && revision <= name->revision;
    if (revision < name->read_at || is_newer)
        return true;

    bool missed = name->revision > revision || name->gap > revision;
    name->count = 0;
    name->read_at = name->revision = revision;
    name->total = read->count;
    name->more = read->more;

    while (message_next_pair(&read->pairs, &pair))
        if (!put_row(name, &pair)) {
            name->count = 0;
            return false;
        }
    if (missed)
        etcd_view_read(e, name, e->last_now);
    return true;
}

ptrdiff_t etcd_view_judge(struct etcd_name *name, const struct etcd_entry *entry)
{
    assert(entry->name == name);
    entry_order_judge(name->queue, name->count, name->resize);
    return find_row(name, entry->hash);
}

bool etcd_view_take_reply(struct etcd *e, struct etcd_name *name, struct message *m)
{
    struct message list;
    bool is_read = message_next_response(&m->responses, &list);
    etcd_resize_take(name, m->responses, m->header.revision);
    return is_read && etcd_view_take(e, name, &list, m->header.revision);
}

void etcd_view_note(const struct etcd_name *name, ptrdiff_t row, struct etcd_entry *entry)
{
    assert(row >= 0 && (size_t)row < name->count);
    const struct queue_entry *known = &name->queue[row];
    entry->changed = name->row[row].changed;
    if (known->foreign) /* overwritten by hand */
        return;
    entry->kind = known->kind;
    entry->confirmed = known->confirmed;
}

bool etcd_view_would_hold(struct etcd_name *name, const struct etcd_entry *entry)
{
    assert(entry->name == name);
    const struct engine_op *op = &entry->sent;
    if (name->count == name->room && !grow(name))
        return false;

    name->queue[name->count] = (struct queue_entry){
        .arrival = UINT64_MAX, .kind = op->kind, .units = op->units, .capacity = op->capacity};
    entry_order_judge(name->queue, name->count + 1, name->resize);
    return name->queue[name->count].holds;
}

/* Returns the range to read. A truncated list shows a request its own row only if the request is
 * near the front. */
struct range_request etcd_view_range(const struct etcd_name *name, bool whole)
{
    return (struct range_request){.key = {name->first, name->base_len + 1},
                                  .range_end = {name->last, name->base_len + 1},
                                  .limit = whole ? 0 : ETCD_LIST_MAX};
}

/* ---- Deciding ---- */

void etcd_view_decide(struct etcd *e, struct etcd_name *name, nanos now)
{
    assert(name->count <= name->room);
    struct etcd_entry *next;
    entry_order_judge(name->queue, name->count, name->resize);

    for (struct etcd_entry *entry = name->entries; entry; entry = next) {
        next = entry->beside;
        bool waits = entry->stage == ENTRY_QUEUED && !entry->is_granted && !entry->call &&
                     entry->verb == OP_NONE;
        if (!waits)
            continue;
        ptrdiff_t row = find_row(name, entry->hash);
        if (row >= 0)
            etcd_view_note(name, row, entry);
        if (row >= 0 && etcd_resize_is_too_big(name, &name->queue[row]))
            etcd_entry_reply(e, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
        else if (row >= 0 && name->queue[row].holds)
            etcd_entry_granted(e, entry, name->revision, now);
    }

    if (name->more && name->count <= ETCD_LIST_MAX / 2 && has_waiters(name))
        etcd_view_read(e, name, now);
}

void etcd_view_read(struct etcd *e, struct etcd_name *name, nanos now)
{
    assert(name->count <= name->room);
    if (name->reading || commands(e)->state != CONNECTION_UP)
        return;

    struct range_request all = etcd_view_range(name, name->shared);
    pb_clear(&e->message);
    message_txn_range(&e->message, TXN_THEN, &all);
    if (name->permits)
        etcd_resize_read(e, name, TXN_THEN);
    struct etcd_call *call = etcd_call(commands(e), CALL_READ_VIEW, now);
    if (!call)
        return;

    etcd_call_abandon(call);
    call->name = name;
    name->reading = call;
}

/* Returns the revision as of which the list has every entry. */
static uint64_t list_revision(const struct etcd_name *name)
{
    return name->shared ? name->revision : name->read_at;
}

/* Notifies waiters of this client that are missing from a complete list: they lost their places. */
static void notify_missing(struct etcd *e, struct etcd_name *name)
{
    assert(name->count <= name->room);
    for (struct etcd_entry *entry = name->entries; entry; entry = entry->beside) {
        bool waits = entry->stage == ENTRY_QUEUED && !entry->call && entry->verb == OP_NONE;
        bool missing = find_row(name, entry->hash) < 0 && entry->created <= list_revision(name);
        if (!waits || !missing)
            continue;
        etcd_entry_set_stage(entry, ENTRY_NONE);
        etcd_entry_reply(e, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
    }
}

/* Returns true if a waiter took its place after the list was read. */
static bool is_behind(const struct etcd_name *name)
{
    for (const struct etcd_entry *entry = name->entries; entry; entry = entry->beside)
        if (entry->stage == ENTRY_QUEUED && !entry->call && entry->created > list_revision(name))
            return true;
    return false;
}

void etcd_view_on_read(struct etcd *e, struct etcd_call *call, struct message *m, nanos now)
{
    assert(call->kind == CALL_READ_VIEW);
    struct etcd_name *name = call->name;
    if (!name)
        return;

    name->reading = NULL;
    if (!etcd_view_take_reply(e, name, m))
        return;

    if (!name->more)
        notify_missing(e, name);
    etcd_view_decide(e, name, now);
    if (is_behind(name) || (name->permits && name->resize_at < name->resize_due))
        etcd_view_read(e, name, now);
}

/* ---- Watches ---- */

static int64_t number_watch(struct etcd *e, struct etcd_watch watch)
{
    size_t number = 1;
    while (number < e->watches && e->watch[number].used)
        number++;

    if (number >= e->watches) {
        size_t room = e->watches ? 2 * e->watches : 16;
        struct etcd_watch *all = realloc(e->watch, room * sizeof *all);
        if (!all)
            return 0;
        memset(all + e->watches, 0, (room - e->watches) * sizeof *all);
        e->watch = all;
        number = e->watches ? e->watches : 1;
        e->watches = room;
    }

    watch.used = true;
    e->watch[number] = watch;
    return (int64_t)number;
}

/* Sends e->message on the stream of watches; opens the stream if this is the first message. */
static void send_watch(struct etcd *e, nanos now)
{
    struct etcd_connection *c = watches(e);
    assert(c->state == CONNECTION_UP);
    if (e->watch_stream >= 0) {
        c->is_broken |= !http2_message(c->http2, e->watch_stream, e->message.bytes, e->message.len);
        return;
    }

    e->watch_call = etcd_call(c, CALL_WATCH, now);
    if (e->watch_call)
        e->watch_stream = e->watch_call->stream;
}

static void begin_watch(struct etcd *e, struct etcd_name *name, nanos now)
{
    assert(!name->watch);
    name->watch = number_watch(e, (struct etcd_watch){.name = name});
    if (!name->watch)
        return;

    pb_clear(&e->message);
    message_watch(&e->message, name->watch, (struct slice){name->first, name->base_len + 1},
                  (struct slice){name->last, name->base_len + 1}, !name->shared);
    send_watch(e, now);
}

/* The capacity of a semaphore is watched beside its entries. */
static void begin_resize_watch(struct etcd *e, struct etcd_name *name, nanos now)
{
    name->resize_watch = number_watch(e, (struct etcd_watch){.name = name, .is_of_resize = true});
    if (!name->resize_watch)
        return;

    pb_clear(&e->message);
    etcd_resize_watch(e, name);
    send_watch(e, now);
}

void etcd_view_unwatch(struct etcd *e, int64_t number)
{
    assert(number > 0 && (size_t)number < e->watches);
    /* The watch's number is not reused until the stream ends: the server may still send events for
     * that watch. */
    e->watch[number] = (struct etcd_watch){.used = true};
    if (e->watch_stream < 0 || watches(e)->state != CONNECTION_UP)
        return;

    pb_clear(&e->message);
    message_unwatch(&e->message, number);
    send_watch(e, e->last_now);
}

/* The watch of deletions alone no longer suffices, and neither does the list that it kept. */
void etcd_view_share(struct etcd *e, struct etcd_name *name)
{
    if (name->shared)
        return;
    name->shared = true;
    name->read_at = name->revision = name->count = 0;
    if (!name->watch)
        return;

    etcd_view_unwatch(e, name->watch);
    name->watch = 0;
    etcd_view_need(e, name, e->last_now);
}

void etcd_view_need(struct etcd *e, struct etcd_name *name, nanos now)
{
    assert(name->watch == 0 || (size_t)name->watch < e->watches);
    if (!etcd_connection_need(watches(e), now))
        return; /* Not sent now; etcd_views_resume() sends it later. */
    if (!name->watch)
        begin_watch(e, name, now);
    if (name->permits && !name->resize_watch)
        begin_resize_watch(e, name, now);
}

void etcd_view_watch_entry(struct etcd *e, struct etcd_entry *entry, nanos now)
{
    assert(entry->name);
    if (entry->watch || !etcd_connection_need(watches(e), now))
        return;

    entry->watch = number_watch(e, (struct etcd_watch){.entry = entry});
    if (!entry->watch)
        return;

    pb_clear(&e->message);
    message_watch(&e->message, entry->watch, etcd_value_key(entry), SLICE_NONE, true);
    send_watch(e, now);
}

void etcd_views_resume(struct etcd *e, nanos now)
{
    for (struct etcd_name *name = e->names; name; name = name->next)
        if (has_waiters(name))
            etcd_view_need(e, name, now);

    for (struct etcd_entry *entry = e->entries; entry; entry = entry->next)
        if (entry->is_watched)
            etcd_view_watch_entry(e, entry, now);
}

void etcd_views_lost(struct etcd *e)
{
    bool had_holds = false;
    for (size_t i = 0; i < e->watches; i++) {
        had_holds |= e->watch[i].entry != NULL;
        e->watch[i] = (struct etcd_watch){0};
    }

    for (struct etcd_name *name = e->names; name; name = name->next)
        name->watch = name->resize_watch = 0;
    for (struct etcd_entry *entry = e->entries; entry; entry = entry->next)
        entry->watch = 0;
    if (had_holds)
        /* A deletion may have been missed: the client checks its holds. */
        e->host->recheck(e->host->ctx);
}

/* ---- Events ---- */

static void take_deletion(struct etcd_name *name, const struct watch_event *event)
{
    struct slice tail = etcd_view_tail(name, event->pair.key);
    ptrdiff_t row = tail.len ? find_row(name, etcd_view_hash(tail.at, tail.len)) : -1;
    if (row >= 0 && event->pair.changed > name->queue[row].arrival)
        drop_row(name, row);
}

/* Takes the events of a shared name. Returns true if one of the events may let a waiter in; an
 * added entry cannot. After a gap the events only say which revision the next read must reach. */
static bool take_shared_events(struct etcd *e, struct etcd_name *name, struct watch_message *m)
{
    struct watch_event event;
    /* a lagging member may repeat events that the list already has */
    uint64_t known = name->revision;
    bool may_let_in = false;
    while (message_next_event(&m->events, &event)) {
        if (event.pair.changed <= known)
            continue;
        bool is_taken = is_synced(name) && (event.deleted || put_row(name, &event.pair));
        if (!is_taken) {
            name->gap = event.pair.changed;
            continue;
        }
        if (event.deleted)
            take_deletion(name, &event);
        may_let_in |= event.deleted || event.pair.changed != event.pair.created;
        name->revision = event.pair.changed;
    }

    if (!is_synced(name))
        etcd_view_read(e, name, e->last_now);
    return may_let_in;
}

static bool take_events(struct etcd *e, struct etcd_name *name, struct watch_message *m)
{
    assert(name->count <= name->room);
    struct watch_event event;
    if (name->shared)
        return take_shared_events(e, name, m);

    while (message_next_event(&m->events, &event)) {
        if (event.deleted)
            take_deletion(name, &event);
        if (event.pair.changed > name->revision)
            name->revision = event.pair.changed;
    }
    return true;
}

static void on_name_event(struct etcd *e, struct etcd_name *name, struct watch_message *m,
                          nanos now)
{
    assert(name->count <= name->room);
    if (m->created) {
        bool missed = m->header.revision > (name->shared ? name->revision : name->read_at);
        if (missed && name->shared)
            name->gap = m->header.revision;
        if (missed)
            etcd_view_read(e, name, now);
        return;
    }

    if (!take_events(e, name, m))
        return;
    if (!name->more)
        notify_missing(e, name);
    etcd_view_decide(e, name, now);
}

/* Handles that the capacity was changed, or may have changed before the watch began. */
static void on_resize_event(struct etcd *e, struct etcd_name *name, const struct watch_message *m,
                            nanos now)
{
    if (m->header.revision <= name->resize_at)
        return;
    name->resize_due = m->header.revision;
    etcd_view_read(e, name, now);
}

/* If the watch began after the entry was last seen, a deletion may have been missed: read the
 * entry. */
static void on_entry_watched(struct etcd_entry *entry, uint64_t revision, nanos now)
{
    bool is_hold = entry->stage == ENTRY_HELD && entry->session && entry->op;
    if (revision > entry->seen_at && is_hold)
        etcd_renewal_read_soon(entry, now);
}

/* Handles that the entry of a hold was deleted, but not by its release. */
static void on_entry_event(struct etcd *e, struct etcd_entry *entry, struct watch_message *m,
                           nanos now)
{
    assert(entry->name);
    struct watch_event event;
    bool deleted = false;
    if (m->created)
        on_entry_watched(entry, m->header.revision, now);
    while (message_next_event(&m->events, &event))
        deleted |= event.deleted;
    bool releases = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    if (deleted)
        entry->shown_at = 0;
    if (deleted && entry->stage == ENTRY_HELD && !releases)
        e->host->recheck(e->host->ctx);
}

void etcd_view_on_watch(struct etcd *e, const char *bytes, size_t len, nanos now)
{
    struct watch_message m;
    if (!message_read_watch(&m, bytes, len)) {
        watches(e)->is_broken = true;
        return;
    }

    bool known = m.watch_id > 0 && (size_t)m.watch_id < e->watches;
    struct etcd_watch *watch = known ? &e->watch[m.watch_id] : NULL;
    if (m.canceled) {
        if (watch && (watch->name || watch->entry))
            watches(e)->is_broken = true; /* A new connection begins all watches anew. */
        return;
    }

    if (watch && watch->name && watch->is_of_resize)
        on_resize_event(e, watch->name, &m, now);
    else if (watch && watch->name)
        on_name_event(e, watch->name, &m, now);
    else if (watch && watch->entry)
        on_entry_event(e, watch->entry, &m, now);
}

/* ---- Time ---- */

bool etcd_views_wanted(const struct etcd *e)
{
    for (const struct etcd_name *name = e->names; name; name = name->next)
        if (has_waiters(name))
            return true;

    for (const struct etcd_entry *entry = e->entries; entry; entry = entry->next)
        if (entry->is_watched)
            return true;
    return false;
}

bool etcd_views_listening(const struct etcd *e)
{
    return e->watch_stream >= 0;
}

static void drop_name(struct etcd *e, struct etcd_name **at)
{
    assert(!(*at)->entries && !(*at)->deleting);
    struct etcd_name *name = *at;
    *at = name->next;
    if (name->watch)
        etcd_view_unwatch(e, name->watch);
    if (name->resize_watch)
        etcd_view_unwatch(e, name->resize_watch);
    if (name->reading)
        name->reading->name = NULL;
    free_name(name);
}

/* Forgets names that have been unused for a while. */
nanos etcd_views_tick(struct etcd *e, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct etcd_name **at = &e->names; *at;) {
        bool used = (*at)->entries || (*at)->deleting;
        nanos end = used ? TIME_NEVER : (*at)->unused_at + ETCD_VIEW_KEPT;
        if (now >= end) {
            drop_name(e, at);
            continue;
        }
        next = end < next ? end : next;
        at = &(*at)->next;
    }

    return next;
}

void etcd_views_close(struct etcd *e)
{
    assert(!e->entries);
    while (e->names) {
        struct etcd_name *name = e->names;
        e->names = name->next;
        free_name(name);
    }

    free(e->watch);
}
