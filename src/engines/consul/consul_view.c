/* consul_view.c - this client's copy of the queue of a name, and the blocking query that reports
 * changes. */
#include "consul.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint64_t consul_view_hash(const char *text, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    return hash;
}

/* ---- Names ---- */

static void free_name(struct consul_name *name)
{
    free(name->base);
    free(name->queue);
    free(name->row);
    free(name);
}

/* Makes a name. Its buffer has room for an entry's id behind the base. */
static struct consul_name *make_name(struct consul *c, const char *base, size_t len)
{
    struct consul_name *name = calloc(1, sizeof *name);
    char *copy = malloc(len + CONSUL_ID_TEXT + 1);
    if (!name || !copy) {
        free(name);
        free(copy);
        return NULL;
    }

    memcpy(copy, base, len);
    name->base = copy;
    name->base_len = len;
    name->unused_at = c->last_now;
    name->next = c->names;
    c->names = name;
    return name;
}

struct consul_name *consul_name_of(struct consul *c, const char *text, size_t len)
{
    char base[CONSUL_PREFIX_MAX + 3 * HF_NAME_MAX + 3];
    memcpy(base, c->prefix, c->prefix_len);
    size_t end = c->prefix_len + consul_value_encode_name(base + c->prefix_len, text, len);
    base[end++] = '/';

    for (struct consul_name *name = c->names; name; name = name->next)
        if (name->base_len == end && memcmp(name->base, base, end) == 0)
            return name;
    return make_name(c, base, end);
}

/* Returns this client's first waiter for the name; NULL if none waits. */
static const struct consul_entry *first_waiter(const struct consul_name *name)
{
    assert(name->count <= name->room);
    const struct consul_entry *first = NULL;
    for (const struct consul_entry *entry = name->entries; entry; entry = entry->beside) {
        bool waits = entry->stage == ENTRY_QUEUED && entry->op;
        if (waits && (!first || entry->created < first->created))
            first = entry;
    }

    return first;
}

static bool has_watched_hold(const struct consul_name *name)
{
    for (const struct consul_entry *entry = name->entries; entry; entry = entry->beside)
        if (entry->stage == ENTRY_HELD && entry->is_watched)
            return true;
    return false;
}

bool consul_view_knows_next(const struct consul_entry *entry)
{
    const struct consul_name *name = entry->name;
    bool is_first = name->count > 1 && name->row[0].hash == entry->hash;
    bool is_known = is_first && name->row[1].tail[0] && !name->queue[1].foreign &&
                    name->queue[1].kind == HF_EXCLUSIVE;
    return is_known && consul_view_has_lock(entry) && name->index >= name->lock.changed &&
           name->row[0].changed >= entry->changed;
}

/* Returns true if the queue should be watched until it shows who comes behind this client's hold,
 * so that the release need not read it. A hold that did not have to wait is probably alone. */
static bool has_hold_to_pass(const struct consul_name *name)
{
    for (const struct consul_entry *entry = name->entries; entry; entry = entry->beside) {
        bool is_held = entry->stage == ENTRY_HELD && entry->op && entry->verb == OP_NONE;
        bool passes = is_held && entry->has_waited && !entry->is_watched && !name->shared;
        if (passes && name->query)
            return !consul_view_knows_next(entry);
    }

    return false;
}

bool consul_name_is_wanted(const struct consul_name *name)
{
    return first_waiter(name) || has_watched_hold(name) || has_hold_to_pass(name);
}

/* ---- The queue ---- */

static bool grow(struct consul_name *name)
{
    assert(name->count <= name->room);
    size_t room = name->room ? 2 * name->room : 8;
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

static ptrdiff_t find_row(const struct consul_name *name, uint64_t hash)
{
    for (size_t i = 0; i < name->count; i++)
        if (name->row[i].hash == hash)
            return (ptrdiff_t)i;
    return -1;
}

/* Returns the entry's row; -1 if there is none, or only that of an entry that had its id before. */
static ptrdiff_t row_of(const struct consul_name *name, const struct consul_entry *entry)
{
    ptrdiff_t row = find_row(name, entry->hash);
    return row >= 0 && name->row[row].changed > entry->born_after ? row : -1;
}

/* Returns the part of the key behind the base; empty if the key does not begin with it. */
static struct slice tail_of(const struct consul_name *name, const struct consul_pair *pair)
{
    if (pair->key_len <= name->base_len || memcmp(pair->key, name->base, name->base_len) != 0)
        return (struct slice){"", 0};
    return (struct slice){pair->key + name->base_len, pair->key_len - name->base_len};
}

static bool has_room(struct consul_name *name)
{
    return name->count < name->room || grow(name);
}

/* Adds the row of a pair. Returns false without memory. */
static bool add_row(struct consul_name *name, const struct consul_pair *pair)
{
    assert(name->count <= name->room);
    struct consul_value value;
    struct slice tail = tail_of(name, pair);
    if (!tail.len || !consul_value_read(&value, pair, tail))
        return true;
    if (!has_room(name))
        return false;

    struct view_row *row = &name->row[name->count];
    row->hash = consul_view_hash(tail.at, tail.len);
    row->changed = pair->changed;
    row->tail[0] = '\0';

    if (consul_value_is_own(tail)) {
        memcpy(row->tail, tail.at, tail.len);
        row->tail[tail.len] = '\0';
    }

    memcpy(row->session, pair->session, strlen(pair->session) + 1);
    memcpy(row->value, pair->value, pair->value_len + 1);
    name->queue[name->count++] = value.queue;
    return true;
}

void consul_view_take_lock(struct consul_name *name, const struct consul_pair *pair)
{
    name->lock = consul_value_read_lock(pair, NULL);
}

/* If another program holds .lock, adds that program as an entry to the queue of a shared lock. Its
 * arrival is the time when .lock was locked. */
static bool add_native(struct consul_name *name)
{
    assert(name->count <= name->room);
    const struct view_lock *lock = &name->lock;
    bool native = lock->exists && lock->is_held && !lock->attempt[0];
    if (!native || !name->shared)
        return true;
    if (!has_room(name))
        return false;

    name->row[name->count] = (struct view_row){.changed = lock->changed};
    name->queue[name->count++] =
        (struct queue_entry){.arrival = lock->changed, .foreign = true, .units = 1, .capacity = 1};
    return true;
}

struct arrival {
    uint64_t arrival;
    size_t row;
};

static int by_arrival(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;
    return x->arrival < y->arrival ? -1 : x->arrival > y->arrival;
}

/* Sorts the rows by arrival; they are read in the order of their keys. Returns false without
 * memory. */
static bool sort_rows(struct consul_name *name)
{
    assert(name->count <= name->room);
    size_t count = name->count;
    struct arrival *order = malloc((count + 1) * sizeof *order);
    struct queue_entry *queue = malloc((name->room + 1) * sizeof *queue);
    struct view_row *row = malloc((name->room + 1) * sizeof *row);
    bool has_memory = order && queue && row;
    for (size_t i = 0; has_memory && i < count; i++)
        order[i] = (struct arrival){name->queue[i].arrival, i};
    if (has_memory && count)
        qsort(order, count, sizeof *order, by_arrival);

    for (size_t i = 0; has_memory && i < count; i++) {
        queue[i] = name->queue[order[i].row];
        row[i] = name->row[order[i].row];
    }

    free(order);
    free(has_memory ? (void *)name->queue : (void *)queue);
    free(has_memory ? (void *)name->row : (void *)row);

    if (has_memory) {
        name->queue = queue;
        name->row = row;
    }

    return has_memory;
}

/* Makes the order strict: keys written by one transaction have the same index. */
static void separate(struct consul_name *name)
{
    for (size_t i = 1; i < name->count; i++)
        if (name->queue[i].arrival <= name->queue[i - 1].arrival)
            name->queue[i].arrival = name->queue[i - 1].arrival + 1;
}

static bool is_before(const struct consul_pair *a, const struct consul_pair *b)
{
    size_t len = a->key_len < b->key_len ? a->key_len : b->key_len;
    int order = memcmp(a->key, b->key, len);
    return order < 0 || (order == 0 && a->key_len < b->key_len);
}

/* Returns the index of the first result of the get-tree at the end of a transaction. The tree's
 * results are sorted by key and repeat a result from before the tree, so the tree begins where the
 * order breaks. */
static size_t first_of_tree(const struct consul_reply *reply)
{
    struct consul_pair pair, next;
    size_t i = reply_pairs(reply);
    bool has_next = false;
    for (; i > 0; i--) {
        bool sorted = reply_key(reply, i - 1, &pair) && (!has_next || is_before(&pair, &next));
        if (!sorted)
            break;
        next.key = pair.key;
        next.key_len = pair.key_len;
        has_next = true;
    }

    return i;
}

bool consul_view_take(struct consul_name *name, const struct consul_reply *reply, uint64_t index)
{
    assert(name->count <= name->room);
    struct consul_pair pair;
    bool done = true;
    name->count = 0;
    name->index = index;
    name->lock = (struct view_lock){0};

    for (size_t i = first_of_tree(reply); done && i < reply_pairs(reply); i++) {
        if (!reply_pair(reply, i, &pair))
            continue;
        if (consul_value_is_lock(tail_of(name, &pair)))
            consul_view_take_lock(name, &pair);
        else
            done = add_row(name, &pair);
    }

    done = done && add_native(name) && sort_rows(name);
    if (!done)
        name->count = 0;
    separate(name);
    return done;
}

void consul_view_drop_row(struct consul_name *name, ptrdiff_t row)
{
    size_t behind = name->count - (size_t)row - 1;
    memmove(&name->queue[row], &name->queue[row + 1], behind * sizeof *name->queue);
    memmove(&name->row[row], &name->row[row + 1], behind * sizeof *name->row);
    name->count--;
}

/* This engine has no resize. */
static const struct queue_resize no_resize;

ptrdiff_t consul_view_judge(struct consul_name *name, const struct consul_entry *entry)
{
    entry_order_judge(name->queue, name->count, no_resize);
    return row_of(name, entry);
}

bool consul_view_would_hold(struct consul_name *name, const struct consul_entry *entry)
{
    assert(name->count <= name->room);
    const struct engine_op *op = &entry->sent;
    if (name->count == name->room && !grow(name))
        return false;

    name->queue[name->count] = (struct queue_entry){
        .arrival = UINT64_MAX, .kind = op->kind, .units = op->units, .capacity = op->capacity};
    entry_order_judge(name->queue, name->count + 1, no_resize);
    return name->queue[name->count].holds;
}

bool consul_view_has_lock(const struct consul_entry *entry)
{
    const struct view_lock *lock = &entry->name->lock;
    return lock->is_held && lock->changed > entry->born_after &&
           strcmp(lock->attempt, entry->id) == 0;
}

bool consul_view_is_busy(const struct consul_name *name)
{
    return name->count > 0 || name->lock.is_held;
}

/* ---- Reading ---- */

void consul_view_read(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    name->reads_again = name->reading != NULL;
    if (name->reading || consul_commands(c)->state != CONNECTION_UP)
        return;

    struct consul_call *call = consul_call_tree(c, CALL_READ_VIEW, name, now);
    if (!call)
        return;

    consul_call_abandon(call);
    call->name = name;
    name->reading = call;
}

static bool is_waiting(const struct consul_entry *entry)
{
    return entry->stage == ENTRY_QUEUED && !entry->call && entry->verb == OP_NONE &&
           !entry->is_granted && entry->op;
}

/* Returns true if the queue is at least as new as the entry and does not contain it. */
static bool is_missing(const struct consul_name *name, const struct consul_entry *entry)
{
    return row_of(name, entry) < 0 && entry->created <= name->index;
}

static void decide_all(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    struct consul_entry *next;
    bool holds_are_whole = true, can_send = consul_commands(c)->state == CONNECTION_UP;
    for (struct consul_entry *entry = name->entries; entry; entry = next) {
        next = entry->beside;
        if (entry->stage == ENTRY_HELD && !entry->is_ending && is_missing(name, entry))
            holds_are_whole = false;
        if (!can_send) /* Waiters read the queue again once a call can be sent. */
            continue;
        bool awaits = entry->awaits_view && entry->verb == OP_ACQUIRE && !entry->call &&
                      entry->stage == ENTRY_QUEUED && entry->created <= name->index;
        if (awaits) {
            entry->awaits_view = false;
            if (is_missing(name, entry))
                consul_entry_advance(c, entry, now);
            else
                consul_entry_decide(c, entry, now);
            continue;
        }
        if (!is_waiting(entry))
            continue;
        if (is_missing(name, entry)) {
            consul_entry_set_stage(entry, ENTRY_NONE);
            consul_entry_reply(c, entry, (struct engine_reply){.kind = REPLY_NOTIFY});
        } else {
            consul_entry_decide(c, entry, now);
        }
    }

    if (!holds_are_whole)
        c->host->recheck(c->host->ctx);
}

void consul_view_on_read(struct consul *c, struct consul_name *name,
                         const struct consul_reply *reply, nanos now)
{
    assert(name->count <= name->room);
    bool again = name->reads_again;
    name->reads_again = false;
    if (consul_view_take(name, reply, reply->index))
        decide_all(c, name, now);
    if (again)
        consul_view_read(c, name, now);
    consul_view_need(c, name, now);
}

/* A query may have reported a change that the queue does not show yet, because it was read earlier:
 * reads it again. */
void consul_view_catch_up(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    bool is_behind = name->index < name->query_index && name->caught_up_to != name->query_index;
    if (!is_behind)
        return;

    /* Read again only once: the index reported for an absent key is not that key's index. */
    name->caught_up_to = name->query_index;
    consul_view_read(c, name, now);
}

/* ---- Queries ---- */

/* Returns the key to watch: its next change decides about this client's waiters or holds. */
static enum query_target target_of(struct consul_name *name, const struct consul_entry *waiter)
{
    assert(name->count <= name->room);
    if (name->shared)
        return QUERY_TREE;
    if (!waiter)
        return has_hold_to_pass(name) ? QUERY_TREE : QUERY_LOCK;

    ptrdiff_t row = consul_view_judge(name, waiter);
    bool behind_holder = row == 1 && !consul_view_has_lock(waiter) && name->lock.attempt[0] &&
                         strcmp(name->lock.attempt, name->row[0].tail) == 0;
    return row == 0 || behind_holder ? QUERY_LOCK : QUERY_ENTRY;
}

/* Returns the index to put into the query. The agent replies when the key's index is above it; at
 * once if it is 0. */
static uint64_t index_of(const struct consul_name *name, enum query_target target,
                         const struct consul_entry *waiter)
{
    assert(name->count <= name->room);
    if (target == name->target && target != QUERY_ENTRY && name->query_index)
        return name->query_index;
    if (target == QUERY_TREE)
        return name->shared ? name->index : name->lock.changed;
    if (target == QUERY_LOCK)
        return name->lock.exists ? name->lock.changed : 0;
    return waiter->changed;
}

static void send_query(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    const struct consul_entry *waiter = name->shared ? NULL : first_waiter(name);
    enum query_target target = target_of(name, waiter);
    uint64_t index = index_of(name, target, waiter);
    struct slice key = {name->base, name->base_len};

    if (target == QUERY_LOCK)
        key = consul_value_key(name, CONSUL_LOCK_TAIL);
    else if (target == QUERY_ENTRY)
        key = consul_value_key(name, waiter->id);

    text_clear(&c->head);
    text_clear(&c->body);
    text_print(&c->head, "GET /v1/kv/");
    text_path(&c->head, key);
    text_print(&c->head, "?%s", target == QUERY_TREE ? "recurse&" : "");
    text_print(&c->head, "wait=%ds&index=%" PRIu64, CONSUL_QUERY_S, index);
    struct consul_call *call = consul_call(name->query, CALL_QUERY, now);
    name->target = target;
    name->watched = target == QUERY_ENTRY ? waiter->created : 0;
    name->query_index = index;
    if (call)
        call->patience += NANOS_OF_MS(CONSUL_QUERY_S * 1000 / 16 * 17);
}

/* Finds a connection for a query: an unused connection, or a connection that only watches a
 * hold. */
static struct consul_connection *find_connection(struct consul *c, bool waits)
{
    struct consul_connection *found = NULL;
    for (unsigned i = CONNECTION_FIRST_QUERY; i < CONSUL_CONNECTIONS; i++) {
        struct consul_connection *connection = &c->connection[i];
        bool unused = !connection->name && !connection->calls;
        if (unused && connection->state == CONNECTION_UP)
            return connection;
        if (unused && (!found || found->name))
            found = connection;
        bool may_be_taken = waits && !found && connection->name && !first_waiter(connection->name);
        if (may_be_taken)
            found = connection;
    }

    return found;
}

static void give_connection(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    struct consul_connection *connection = find_connection(c, first_waiter(name) != NULL);
    if (!connection)
        /* No connection is left: waiters poll, and holders notice a loss at their next renewal. */
        return;

    if (connection->name) {
        connection->name->query = NULL;
        connection->name = NULL;
        if (connection->calls)
            consul_connection_drop(connection, HF_UNAVAILABLE, "used for a waiter", now);
        connection->redial = (struct redial){.dial_at = now};
    }

    connection->name = name;
    name->query = connection;
    name->query_index = 0;
    name->target = QUERY_NONE;
}

/* Returns true while shared holds are being confirmed. Confirming changes their keys one by one,
 * and a query would return the whole queue after each change. */
static bool is_confirming(const struct consul_name *name)
{
    assert(name->count <= name->room);
    if (!name->shared)
        return false;

    for (const struct consul_entry *entry = name->entries; entry; entry = entry->beside)
        if (entry->stage == ENTRY_QUEUED && entry->is_granted)
            return true;
    return false;
}

/* Returns true if the query in flight watches the wrong entry: a request whose outcome was unknown
 * turns out to have an earlier place than the waiter that is watched. */
static bool watches_later_entry(const struct consul_name *name)
{
    assert(name->count <= name->room);
    bool watches = name->query && name->query->calls && name->target == QUERY_ENTRY;
    const struct consul_entry *first = watches ? first_waiter(name) : NULL;
    return first && first->created < name->watched;
}

static struct consul_entry *entry_with_lock(struct consul_name *name)
{
    for (struct consul_entry *entry = name->entries; entry; entry = entry->beside)
        if (consul_view_has_lock(entry))
            return entry;
    return NULL;
}

/* If .lock names a waiter of this client, grants that waiter: .lock is passed only to the first in
 * the queue. It does not matter which reply has shown .lock. If nothing can be sent now, the
 * waiters ask again later. */
static void grant_named(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    struct consul_entry *holder = entry_with_lock(name);
    bool is_new = holder && is_waiting(holder);
    if (is_new && consul_commands(c)->state == CONNECTION_UP)
        consul_entry_granted(c, holder, name->lock.token, now);
}

void consul_view_need(struct consul *c, struct consul_name *name, nanos now)
{
    assert(name->count <= name->room);
    grant_named(c, name, now);
    if (watches_later_entry(name))
        consul_connection_drop(name->query, HF_UNAVAILABLE, "used for an earlier waiter", now);
    bool wanted = consul_name_is_wanted(name);
    bool has_call = name->query && name->query->calls;
    if (!wanted && name->query && !has_call) {
        name->query->name = NULL;
        name->query = NULL;
    }

    if (!wanted || consul_commands(c)->state != CONNECTION_UP)
        return;

    if (!name->query)
        give_connection(c, name, now);
    bool may_query = name->query && !name->query->calls && !name->reading;
    if (may_query && consul_connection_need(name->query, now) && !is_confirming(name))
        send_query(c, name, now);
}

/* A query has returned .lock. If .lock names a waiter of this client, that waiter is granted. If
 * nobody has .lock, the first waiter tries to take it. */
static void on_lock(struct consul *c, struct consul_name *name, const struct consul_reply *reply,
                    nanos now)
{
    assert(name->count <= name->room);
    struct consul_pair pair;
    struct consul_entry *holder = NULL;
    bool had_hold = has_watched_hold(name);

    if (reply->status == 200 && reply_pair(reply, 0, &pair))
        consul_view_take_lock(name, &pair);
    else
        name->lock = (struct view_lock){0};

    holder = entry_with_lock(name);
    if (had_hold && (!holder || holder->stage != ENTRY_HELD))
        c->host->recheck(c->host->ctx);

    if (first_waiter(name) && !name->lock.is_held)
        consul_view_read(c, name, now);
}

void consul_view_on_query(struct consul *c, struct consul_name *name,
                          const struct consul_reply *reply, nanos now)
{
    assert(name->count <= name->room);
    bool has_changed = reply->index != name->query_index;
    name->query_index = reply->index < name->query_index ? 0 : reply->index;

    if (has_changed && name->target == QUERY_LOCK)
        on_lock(c, name, reply, now);
    else if (has_changed && name->target == QUERY_ENTRY)
        consul_view_read(c, name, now);
    else if (has_changed && consul_view_take(name, reply, reply->index))
        decide_all(c, name, now);

    consul_view_need(c, name, now);
}

/* The query was cut: changes since the cut may have been missed. */
void consul_view_query_lost(struct consul *c, struct consul_connection *connection)
{
    assert(connection->number < CONSUL_CONNECTIONS);
    struct consul_name *name = connection->name;
    if (!name)
        return;

    name->query_index = 0;
    name->target = QUERY_NONE;
    if (has_watched_hold(name))
        c->host->recheck(c->host->ctx);
}

/* ---- Time ---- */

static nanos query_due(struct consul *c, const struct consul_name *name, nanos now)
{
    bool dials = consul_commands(c)->state == CONNECTION_UP && consul_name_is_wanted(name);
    if (!name->query || (name->query->state == CONNECTION_DOWN && !dials))
        return TIME_NEVER;
    return consul_connection_tick(name->query, now);
}

static void drop_name(struct consul_name **at)
{
    struct consul_name *name = *at;
    *at = name->next;
    free_name(name);
}

/* Forgets names that have been unused for a while. */
nanos consul_views_tick(struct consul *c, nanos now)
{
    nanos next = TIME_NEVER;
    for (struct consul_name **at = &c->names; *at;) {
        struct consul_name *name = *at;
        consul_view_need(c, name, now);
        nanos due = query_due(c, name, now);
        next = due < next ? due : next;
        bool used = name->entries || name->deleting || name->reading || name->query;
        nanos end = used ? TIME_NEVER : name->unused_at + CONSUL_VIEW_KEPT;
        if (now >= end) {
            drop_name(at);
            continue;
        }
        next = end < next ? end : next;
        at = &name->next;
    }

    return next;
}

void consul_views_close(struct consul *c)
{
    while (c->names)
        drop_name(&c->names);
}
