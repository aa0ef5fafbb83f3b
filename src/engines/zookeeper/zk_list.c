/* zk_list.c - lists of the places of a lock: reads them, decides who holds, and sets the
 * watches. */
#include "zookeeper.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Locks ---- */

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static struct zk_lock *find_lock(const struct zk_session *s, const char *path)
{
    assert(s->number < (int)s->zk->numbers.room);
    uint32_t hash = hash_of(path);
    struct zk_lock *lock = s->bucket[hash % ZK_BUCKETS];
    while (lock && (lock->hash != hash || strcmp(lock->path, path) != 0))
        lock = lock->same_hash;
    return lock;
}

static struct zk_lock *make_lock(struct zk_session *s, const char *path)
{
    assert(s->number < (int)s->zk->numbers.room);
    struct zk_lock *lock = calloc(1, sizeof *lock);
    if (!lock || !(lock->path = strdup(path))) {
        free(lock);
        return NULL;
    }

    lock->session = s;
    lock->hash = hash_of(path);
    struct zk_lock **bucket = &s->bucket[lock->hash % ZK_BUCKETS];
    lock->same_hash = *bucket;
    *bucket = lock;
    lock->next = s->locks;
    lock->link = &s->locks;
    if (s->locks)
        s->locks->link = &lock->next;
    s->locks = lock;
    zk_lock_loosen(lock);
    return lock;
}

struct zk_lock *zk_lock_of(struct zk_session *s, const char *name, size_t len)
{
    assert(s->number < (int)s->zk->numbers.room);
    char path[ZK_ROOT_MAX + 3 * HF_NAME_MAX + 2];
    size_t at = (size_t)sprintf(path, "%s/", s->zk->root);
    at += zk_name_encode(path + at, name, len);
    path[at] = '\0';
    struct zk_lock *lock = find_lock(s, path);
    return lock ? lock : make_lock(s, path);
}

static void free_lock(struct zk_lock *lock)
{
    struct zk_lock **at = &lock->session->bucket[lock->hash % ZK_BUCKETS];
    while (*at != lock)
        at = &(*at)->same_hash;
    *at = lock->same_hash;
    *lock->link = lock->next;
    if (lock->next)
        lock->next->link = lock->link;
    free(lock->path);
    free(lock);
}

void zk_lock_loosen(struct zk_lock *lock)
{
    assert(lock->session);
    struct zk *zk = lock->session->zk;
    if (lock->is_loose)
        return;

    lock->is_loose = true;
    lock->loose = zk->loose;
    zk->loose = lock;
}

void zk_locks_drop_unused(struct zk *zk)
{
    while (zk->loose) {
        struct zk_lock *lock = zk->loose;
        zk->loose = lock->loose;
        lock->is_loose = false;
        if (!lock->entries && !lock->lists)
            free_lock(lock);
    }
}

void zk_locks_free(struct zk_session *s)
{
    zk_locks_drop_unused(s->zk);
    while (s->locks)
        free_lock(s->locks);
}

/* ---- Listing ---- */

void zk_lock_list(struct zk_lock *lock, nanos now)
{
    assert(lock->session);
    struct zk_session *s = lock->session;
    if (lock->lists) {
        lock->lists_again = true; /* the list in flight may be older than this change */
        return;
    }
    if (s->state != SESSION_UP || s->is_broken || s->is_closing)
        return;

    zk_put_children(&s->zk->message, zk_call_begin(s), lock->path, lock->has_permits);
    struct zk_call *call = zk_call_send(s, CALL_LIST, now);
    if (!call)
        return;

    call->lock = lock;
    lock->lists++;
}

static void end_list(struct zk_lock *lock)
{
    assert(lock->lists);
    lock->lists--;
    zk_lock_loosen(lock);
}

void zk_lock_on_cut(struct zk_lock *lock)
{
    end_list(lock);
    lock->lists_again = false;
}

/* ---- Reading a list ---- */

struct list_row {
    struct zk_place place;
    struct jute_bytes name;
};

struct list {
    struct list_row *row; /* rows in the order of arrival */
    struct queue_entry *queue;
    size_t count;
};

static int by_arrival(const void *a, const void *b)
{
    const struct list_row *x = a, *y = b;
    uint64_t first = x->place.queue.arrival, second = y->place.queue.arrival;
    return first < second ? -1 : first > second;
}

/* Drops rows with the number of an earlier one. They can only be made by hand. */
static void drop_doubles(struct list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool is_double =
            kept && list->row[kept - 1].place.queue.arrival == list->row[i].place.queue.arrival;
        if (!is_double)
            list->row[kept++] = list->row[i];
    }

    list->count = kept;
}

static bool read_rows(struct list *list, struct jute_reader *body, uint32_t count)
{
    assert(body->at <= body->end);
    struct jute_bytes name;
    for (uint32_t i = 0; i < count; i++) {
        struct list_row *row = &list->row[list->count];
        if (!zk_next_child(body, &name))
            return false;
        if (!name.len || !zk_place_read(&row->place, name))
            continue;
        row->name = name;
        row->place.queue.arrival =
            zk_place_arrival(row->place.sequence, list->row[0].place.sequence);
        list->count++;
    }

    return true;
}

/* Reads a list. Returns false if it is malformed, or without memory. The caller frees both
 * arrays in any case. */
static bool read_list(struct list *list, struct jute_reader *body)
{
    assert(body->at <= body->end);
    uint32_t count;
    *list = (struct list){0};
    if (!zk_read_children(body, &count))
        return false;

    list->row = malloc((count + 1) * sizeof *list->row);
    list->queue = malloc((count + 1) * sizeof *list->queue);
    if (!list->row || !list->queue || !read_rows(list, body, count))
        return false;

    qsort(list->row, list->count, sizeof *list->row, by_arrival);
    drop_doubles(list);
    for (size_t i = 0; i < list->count; i++)
        list->queue[i] = list->row[i].place.queue;
    return true;
}

static void free_list(struct list *list)
{
    free(list->row);
    free(list->queue);
}

/* Returns the row of a place; -1: it is not in the list. */
static ptrdiff_t find_row(const struct list *list, const struct zk_entry *entry)
{
    assert(entry->lock);
    if (!list->count)
        return -1;

    struct list_row key = {0};
    /* The server's counter wraps. So arrivals are counted from the number of the row that was read
     * first, which gets the middle value. */
    const struct list_row *any = &list->row[0];
    uint64_t distance = any->place.queue.arrival - (UINT64_C(1) << 32);
    int32_t from = (int32_t)((uint32_t)any->place.sequence - (uint32_t)distance);
    key.place.queue.arrival = zk_place_arrival(entry->sequence, from);
    const struct list_row *found =
        bsearch(&key, list->row, list->count, sizeof *list->row, by_arrival);
    bool is_own = found && strcmp(found->place.id, entry->id) == 0;
    return is_own ? found - list->row : -1;
}

bool zk_list_find(struct zk_entry *entry, struct jute_reader *body)
{
    assert(entry->lock);
    struct list list;
    bool found = false;
    if (read_list(&list, body))
        for (size_t i = 0; i < list.count && !found; i++) {
            const struct list_row *row = &list.row[i];
            if (strcmp(row->place.id, entry->id) != 0)
                continue;
            entry->sequence = row->place.sequence;
            found = asprintf(&entry->place, "%s/%.*s", entry->lock->path, (int)row->name.len,
                             row->name.at) > 0;
        }
    free_list(&list);
    return found;
}

/* ---- Deciding ---- */

static void describe_mismatch(const struct zk_entry *entry, const struct queue_entry *other,
                              char *text, size_t size)
{
    assert(entry->lock);
    const struct engine_op *op = &entry->sent;
    if (other->kind == HF_SEMAPHORE && op->kind == HF_SEMAPHORE)
        snprintf(text, size, "is in use with capacity %u, not %u", other->capacity, op->capacity);
    else
        snprintf(text, size, "is in use as %s, not as %s", hf_kind_name(other->kind),
                 hf_kind_name(op->kind));
}

/* Returns the nearest place ahead whose end may let this one in. Readers pass each other. */
static size_t watched_row(const struct list *list, size_t own)
{
    assert(own > 0);
    for (size_t i = own; list->queue[own].kind == HF_READ && i-- > 0;)
        if (list->queue[i].kind != HF_READ || list->queue[i].foreign)
            return i;
    return own - 1;
}

static void watch_ahead(struct zk_entry *entry, const struct list *list, size_t own, nanos now)
{
    assert(entry->lock);
    const struct list_row *row = &list->row[watched_row(list, own)];
    char *path;
    if (asprintf(&path, "%s/%.*s", entry->lock->path, (int)row->name.len, row->name.at) < 0)
        return; /* the next refresh sets the watch again */
    if (entry->ahead && strcmp(entry->ahead, path) == 0) {
        free(path);
        return;
    }

    free(entry->ahead);
    entry->ahead = path;
    zk_entry_send_watch(entry, now);
}

static void wait_in_queue(struct zk *zk, struct zk_entry *entry, const struct list *list,
                          size_t own, nanos now)
{
    assert(entry->lock);
    nanos refresh =
        entry->lock->session->base.is_private ? ZK_PRIVATE_REFRESH : TIMING_REFRESH_MOST;
    if (entry->verb == OP_ACQUIRE)
        zk_entry_reply(zk, entry,
                       (struct engine_reply){.kind = REPLY_QUEUED,
                                             .place = list->queue[own].place,
                                             .retry_at = now + refresh});

    /* semaphores are notified of every change of the children */
    if (entry->sent.kind != HF_SEMAPHORE)
        watch_ahead(entry, list, own, now);
}

static void decide(struct zk *zk, struct zk_entry *entry, const struct list *list, nanos now)
{
    assert(entry->lock);
    ptrdiff_t own = find_row(list, entry);
    const struct queue_entry *first = list->count ? &list->queue[0] : NULL;
    char text[ERROR_TEXT_MAX];
    if (own < 0) {
        bool acquires = entry->verb == OP_ACQUIRE;
        zk_entry_lose(zk, entry);
        if (acquires)
            zk_entry_advance(zk, entry, now);
        return;
    }

    /* The first place decides the kind. Places of other programs are exclusive and queue behind
     * every kind. */
    bool disagrees = own > 0 && !first->foreign && !entry_order_agree(&list->queue[own], first);
    if (disagrees) {
        describe_mismatch(entry, first, text, sizeof text);
        zk_entry_refuse(zk, entry, HF_MISMATCH, text, now);
    } else if (own >= ZK_PLACES_MAX) {
        zk_entry_refuse(zk, entry, HF_FULL, "too many hold this name or wait for it", now);
    } else if (list->queue[own].holds) {
        zk_entry_granted(zk, entry, now);
    } else if (!entry->sent.queue) {
        zk_entry_refuse(zk, entry, HF_BUSY, "", now);
    } else {
        wait_in_queue(zk, entry, list, (size_t)own, now);
    }
}

static bool is_undecided(const struct zk_entry *entry)
{
    return entry->stage == ENTRY_QUEUED && !entry->is_granted && !entry->in_flight &&
           (entry->verb == OP_NONE || entry->verb == OP_ACQUIRE);
}

void zk_lock_on_list(struct zk_lock *lock, struct zk_header *header, struct jute_reader *body,
                     nanos now)
{
    assert(lock->session);
    struct zk_session *s = lock->session;
    struct list list = {0};
    struct zk_entry *next;
    end_list(lock);
    bool is_read = header->error == ZK_NO_NODE || (!header->error && read_list(&list, body));
    if (!is_read) {
        free_list(&list);
        zk_session_break(s, header->error == ZK_NO_AUTH ? HF_DENIED : HF_UNAVAILABLE,
                         header->error ? zk_error_text(header->error) : "a list makes no sense");
        return;
    }

    entry_order_judge(list.queue, list.count, (struct queue_resize){0, 0});
    for (struct zk_entry *entry = lock->entries; entry; entry = next) {
        next = entry->beside;
        if (is_undecided(entry))
            decide(s->zk, entry, &list, now);
    }

    free_list(&list);
    if (lock->lists_again) {
        lock->lists_again = false;
        zk_lock_list(lock, now);
    }
}

/* ---- Events ---- */

static void on_own_place(struct zk_entry *entry, nanos now)
{
    assert(entry->lock);
    struct zk_session *s = entry->lock->session;
    bool releases = entry->verb == OP_RELEASE || entry->verb == OP_LEAVE;
    s->watched -= entry->is_seen;
    entry->is_seen = false;
    if (releases)
        return;

    if (entry->stage == ENTRY_HELD)
        s->zk->host->recheck(s->zk->host->ctx);
    else
        zk_lock_list(entry->lock, now);
}

/* Reads the list again, because the place ahead was deleted. That happens even if no other place
 * was ahead: somebody may have deleted our own place. */
static void on_place_ahead(struct zk_entry *entry, nanos now)
{
    free(entry->ahead);
    entry->ahead = NULL;
    zk_lock_list(entry->lock, now);
}

static bool has_waiters(const struct zk_lock *lock)
{
    for (const struct zk_entry *entry = lock->entries; entry; entry = entry->beside)
        if (entry->stage == ENTRY_QUEUED)
            return true;
    return false;
}

static void on_place_event(struct zk_lock *lock, const char *path, nanos now)
{
    assert(lock->session);
    struct zk_entry *next;
    for (struct zk_entry *entry = lock->entries; entry; entry = next) {
        next = entry->beside;
        if (entry->place && strcmp(entry->place, path) == 0)
            on_own_place(entry, now);
        else if (entry->ahead && strcmp(entry->ahead, path) == 0)
            on_place_ahead(entry, now);
    }
}

void zk_list_on_event(struct zk_session *s, const struct zk_event *event, nanos now)
{
    assert(s->number < (int)s->zk->numbers.room);
    char path[ZK_ROOT_MAX + 3 * HF_NAME_MAX + 512];
    if (event->path.len >= sizeof path || !event->path.len)
        return;

    memcpy(path, event->path.at, event->path.len);
    path[event->path.len] = '\0';
    if (event->type == ZK_CHILDREN) {
        struct zk_lock *lock = find_lock(s, path);
        if (lock && has_waiters(lock))
            zk_lock_list(lock, now);
        return;
    }

    char *slash = strrchr(path, '/');
    if (!slash)
        return;

    *slash = '\0';
    struct zk_lock *lock = find_lock(s, path);
    *slash = '/';
    if (lock)
        on_place_event(lock, path, now);
}
