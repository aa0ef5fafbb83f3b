/* local_admin.c - admin functions: list of holders, waiters and past holds; break and resize. */
#include "clients.h"
#include "hold_history.h"
#include "shard.h"
#include "sys/process.h"
#include "table_ops.h"
#include "wait_queue.h"

#include "base/error.h"

#include <string.h>

static bool same(const struct id *a, const struct id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Returns true if an earlier entry has the same attempt, because another client repeated the
 * request. */
static bool is_repeated(struct table *t, const struct resource *r, const struct entry *e)
{
    FOR_EACH_CELL (t, i, &r->holders) {
        const struct entry *other = &cell_at(t, i)->entry;
        if (other == e)
            return false;
        if (same(&other->attempt, &e->attempt) && same(&other->owner, &e->owner))
            return true;
    }

    return false;
}

/* The list that is being reported. A damaged table may have a cell in many lists, so the number of
 * rows is limited to twice the number of cells (twice, because the table may grow meanwhile). */
struct rows {
    nanos now;
    nanos wait; /* how long the whole list may still wait for mutexes */
    hf_row_fn *fn;
    void *arg;
    uint32_t left;
};

/* Counts the attempts of a hold and finds the latest of their ends. */
static uint32_t count_attempts(struct table *t, const struct resource *r, const struct entry *e,
                               int64_t *end)
{
    uint32_t count = 0;
    if (!e->named)
        return 1;

    FOR_EACH_CELL (t, i, &r->holders) {
        const struct entry *other = &cell_at(t, i)->entry;
        if (!same(&other->owner, &e->owner))
            continue;
        count += !is_repeated(t, r, other);
        *end = other->end > *end ? other->end : *end;
    }

    return count;
}

/* Returns the time between two points. In a damaged table these may be any numbers. */
static int64_t ms_between(nanos from, nanos to)
{
    return from >= 0 ? time_until(from, to) / NANOS_OF_MS(1) : 0;
}

/* Shows the row of an entry that was copied out of the table: nobody changes the copy. */
static void show_copy(const struct resource *r, const char *name, const struct entry *e,
                      uint32_t place, uint32_t depth, int64_t end, struct rows *rows)
{
    bool past = e->head.state == CELL_PAST;
    char label[HF_LABEL_MAX + 1];
    size_t len = e->label_len <= HF_LABEL_MAX ? e->label_len : HF_LABEL_MAX;
    memcpy(label, e->label, len);
    label[len] = 0;

    struct hf_row row = {
        .size = sizeof row,
        .name = name,
        .role = place ? HF_WAITER : HF_HOLDER,
        .kind = e->kind <= HF_WRITE ? (hf_kind)e->kind : HF_EXCLUSIVE,
        .capacity = r->capacity,
        .used = r->used,
        .units = e->units,
        .depth = depth,
        .place = place,
        .token = place ? 0 : e->token,
        .left_ms = place || past ? 0 : time_until(rows->now, end) / NANOS_OF_MS(1),
        .since_ms = ms_between(e->since, past ? e->check_at : rows->now),
        .ticket = past ? 0 : e->ticket,
        .ttl_ms = e->ttl / NANOS_OF_MS(1),
        .pid = e->pid,
        .host = process_host_name(),
        .label = label,
        .detached = e->client == 0 && !past,
        .ended = past && e->why != HF_OK ? HF_LOST : HF_OK,
        .ended_ms = past ? ms_between(e->check_at, rows->now) : 0,
    };
    rows->fn(rows->arg, &row);
}

static void show_entry(struct table *t, const struct resource *r, const char *name, uint32_t index,
                       uint32_t place, struct rows *rows)
{
    assert(rows->fn);
    struct entry e;
    memcpy(&e, cell_at(t, index), sizeof e);
    if (!place && !e.units)
        return; /* the row of the hold includes this attempt */
    if (rows->left == 0) {
        table_found_damage(t);
        return;
    }

    rows->left--;
    int64_t end = e.end;
    bool is_single = place || e.head.state == CELL_PAST;
    uint32_t depth = is_single ? 1 : count_attempts(t, r, &cell_at(t, index)->entry, &end);
    show_copy(r, name, &e, place, depth, end, rows);
}

static void show_resource(struct table *t, uint32_t index, const char *name, struct rows *rows)
{
    struct resource *r = &cell_at(t, index)->resource;
    if (!r->holders.count && !r->waiters.count)
        return;

    resource_reap(t, r, rows->now);
    resource_admit(t, r, rows->now);
    resource_settle(t, index);
    uint32_t place = 1;

    FOR_EACH_CELL (t, i, &r->holders)
        show_entry(t, r, name, i, 0, rows);
    FOR_EACH_CELL (t, i, &r->waiters)
        show_entry(t, r, name, i, place++, rows);
}

static void show_past(struct table *t, uint32_t index, const char *name, struct rows *rows)
{
    struct resource *r = &cell_at(t, index)->resource;
    history_forget(t, r, rows->now);
    uint32_t left = cell_walk_most(t);
    for (uint32_t i = r->past.tail; i && cell_walk_goes_on(t, &left); i = cell_at(t, i)->head.prev)
        show_entry(t, r, name, i, 0, rows);
}

static void show_shard(struct table *t, uint32_t shard, const struct admin_target *what,
                       struct rows *rows)
{
    assert(shard < LOCAL_SHARDS);
    char name[HF_NAME_MAX + 1];
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = cell_walk_most(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && cell_walk_goes_on(t, &left);
             i = cell_at(t, i)->resource.chain) {
            resource_name(t, &cell_at(t, i)->resource, name);
            bool is_listed = !what->page || name_range_has(what->page, name);
            if (is_listed && strncmp(name, what->name, what->len) == 0)
                show_resource(t, i, name, rows);
        }
    }
}

static hf_status check_damage(struct table *t)
{
    if (!atomic_load_explicit(&t->damaged, memory_order_relaxed))
        return HF_OK;
    return error_set(HF_DAMAGED, "%s: damaged: it contains impossible values", t->path);
}

static hf_status leave(struct table *t, uint32_t shard, hf_status status)
{
    assert(shard < LOCAL_SHARDS);
    shard_unlock(t, shard);
    hf_status damage = check_damage(t);
    return damage == HF_OK ? status : damage;
}

/* Stops at the first shard that is damaged or cannot be locked: its rows would be missing. */
static hf_status list_all(struct table *t, const struct admin_target *what, struct rows *rows)
{
    hf_status status = HF_OK;
    for (uint32_t shard = 0; shard < LOCAL_SHARDS && status == HF_OK; shard++) {
        status = shard_lock_next(t, shard, &rows->wait);
        if (status != HF_OK)
            return status;
        show_shard(t, shard, what, rows);
        status = leave(t, shard, HF_OK);
    }

    return status;
}

/* Locks the shard of one name and finds its resource, with expired holds ended. *index is 0 if
 * nobody uses the name. The mutex is held after HF_OK. */
static hf_status find_one(struct table *t, const struct admin_target *what, nanos now, nanos *wait,
                          uint32_t *shard, uint32_t *index)
{
    assert(what->len <= HF_NAME_MAX);
    uint64_t hash = resource_name_hash(what->name, what->len);
    *shard = shard_of_hash(hash);
    hf_status status = shard_lock_next(t, *shard, wait);

    if (status != HF_OK)
        return status;

    *index = resource_find(t, hash, what->name, what->len);
    struct resource *r = *index ? &cell_at(t, *index)->resource : NULL;

    if (r && !r->idle) {
        resource_reap(t, r, now);
        resource_admit(t, r, now);
        resource_settle(t, *index);
    }

    return HF_OK;
}

static hf_status list_one(struct table *t, const struct admin_target *what, struct rows *rows)
{
    uint32_t shard, index;
    hf_status status = find_one(t, what, rows->now, &rows->wait, &shard, &index);
    if (status != HF_OK)
        return status;

    char name[HF_NAME_MAX + 1];
    if (index) {
        resource_name(t, &cell_at(t, index)->resource, name);
        (what->which == LIST_HISTORY ? show_past : show_resource)(t, index, name, rows);
    }

    return leave(t, shard, HF_OK);
}

/* ---- A page ---- */

static void add_names(struct table *t, uint32_t shard, const struct admin_target *what,
                      struct name_page *page)
{
    assert(shard < LOCAL_SHARDS);
    char name[HF_NAME_MAX + 1];
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = cell_walk_most(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && cell_walk_goes_on(t, &left);
             i = cell_at(t, i)->resource.chain) {
            const struct resource *r = &cell_at(t, i)->resource;
            resource_name(t, r, name);
            bool is_in_use = r->holders.count || r->waiters.count;
            if (is_in_use && strncmp(name, what->name, what->len) == 0)
                name_page_add(page, name, strlen(name));
        }
    }
}

/* Shows the names of the page, each name as of one moment. A name that is free by now has no
 * rows. */
static hf_status show_page(struct table *t, const struct name_page *page, struct rows *rows)
{
    hf_status status = HF_OK;
    for (uint32_t i = 0; i < page->count && status == HF_OK; i++) {
        struct admin_target one = {.which = LIST_ONE, .name = name_page_at(page, i)};
        one.len = strlen(one.name);
        status = one.len ? list_one(t, &one, rows) : HF_OK;
    }

    if (status == HF_OK && name_page_end(page)) {
        struct hf_row end = end_of_page(name_page_end(page));
        rows->fn(rows->arg, &end);
    }

    return status;
}

/* Goes through all names, and shows those that come first, as many as fit on the page. */
static hf_status list_page(struct table *t, const struct admin_target *what, struct rows *rows)
{
    struct name_page page;
    assert(what->page);
    hf_status status = name_page_open(&page, what->page);
    if (status != HF_OK)
        return status;

    for (uint32_t shard = 0; shard < LOCAL_SHARDS && status == HF_OK; shard++) {
        status = shard_lock_next(t, shard, &rows->wait);
        if (status == HF_OK) {
            add_names(t, shard, what, &page);
            status = leave(t, shard, HF_OK);
        }
    }

    if (status == HF_OK)
        status = show_page(t, &page, rows);
    name_page_free(&page);
    return status;
}

hf_status table_list(struct table *t, const struct admin_target *what, nanos now, hf_row_fn *fn,
                     void *arg)
{
    assert(what && fn);
    struct rows rows = {.now = now, .wait = what->until - now, .fn = fn, .arg = arg};
    rows.left = 2 * table_cells(t) + 1024;
    hf_status status;
    if (what->which != LIST_PREFIX) {
        cell_walk_restart();
        status = list_one(t, what, &rows);
    } else {
        cell_walk_restart_long(t);
        status = (what->page && what->page->most ? list_page : list_all)(t, what, &rows);
    }

    return status == HF_OK ? check_damage(t) : status;
}

/* Ends every attempt of the hold and makes their clients check their holds. */
static bool break_token(struct table *t, struct resource *r, uint64_t token, nanos now)
{
    bool found = false;
    FOR_EACH_CELL (t, i, &r->holders) {
        struct entry *e = &cell_at(t, i)->entry;
        if (e->token != token)
            continue;
        uint32_t client = e->client;
        entry_end(t, r, i, HF_LOST, now);
        if (client)
            table_client_recheck(t, client);
        found = true;
    }

    return found;
}

hf_status table_break(struct table *t, const struct admin_target *what, uint64_t token, nanos now)
{
    uint32_t shard, index;
    nanos wait = what->until - now;
    cell_walk_restart();
    hf_status status = find_one(t, what, now, &wait, &shard, &index);
    if (status != HF_OK)
        return status;

    struct resource *r = index ? &cell_at(t, index)->resource : NULL;
    if (r && break_token(t, r, token, now)) {
        resource_admit(t, r, now);
        resource_settle(t, index);
    } else {
        status = error_set(HF_NOT_HELD, "%.*s: nobody holds it with token %llu", (int)what->len,
                           what->name, (unsigned long long)token);
    }

    return leave(t, shard, status);
}

hf_status table_resize(struct table *t, const struct admin_target *what, uint32_t capacity,
                       nanos now)
{
    uint32_t shard, index;
    nanos wait = what->until - now;
    cell_walk_restart();
    hf_status status = find_one(t, what, now, &wait, &shard, &index);
    if (status != HF_OK)
        return status;

    struct resource *r = index ? &cell_at(t, index)->resource : NULL;
    if (!r || r->idle) {
        status = error_set(HF_NOT_HELD,
                           "%.*s: nobody holds it or waits for it, so it has no capacity to change",
                           (int)what->len, what->name);
    } else if (r->kind != HF_SEMAPHORE) {
        status = error_set(HF_MISMATCH, "%.*s: is not a semaphore", (int)what->len, what->name);
    } else {
        r->capacity = capacity;
        FOR_EACH_CELL (t, i, &r->waiters)
            if (cell_at(t, i)->entry.units > capacity)
                entry_refuse(t, r, i, HF_TOO_BIG, now);
        table_changed(t, now);
        resource_admit(t, r, now);
        resource_settle(t, index);
    }

    return leave(t, shard, status);
}
