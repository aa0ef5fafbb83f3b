/* oversee.c - who holds, who waits, who held: for people to see; and what they do about it: break, resize. */
#include "holders.h"
#include "lease.h"
#include "members.h"
#include "past.h"
#include "shard.h"
#include "sys/process.h"

#include "base/why.h"

#include <string.h>

static bool same(const struct hf_id *a, const struct hf_id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* An attempt that was repeated by another client has an entry there, too. */
static bool is_repeated(struct hf_table *t, const struct hf_resource *r, const struct hf_entry *e)
{
    HF_EACH_CELL(t, i, &r->holders)
    {
        const struct hf_entry *other = &hf_cell_at(t, i)->entry;
        if (other == e)
            return false;
        if (same(&other->attempt, &e->attempt) && same(&other->owner, &e->owner))
            return true;
    }
    return false;
}

/* The attempts of a hold, and the latest of their ends. */
static uint32_t count_attempts(struct hf_table *t, const struct hf_resource *r, const struct hf_entry *e, int64_t *end)
{
    uint32_t count = 0;
    if (!e->named)
        return 1;
    HF_EACH_CELL(t, i, &r->holders)
    {
        const struct hf_entry *other = &hf_cell_at(t, i)->entry;
        if (!same(&other->owner, &e->owner))
            continue;
        count += !is_repeated(t, r, other);
        *end = other->end > *end ? other->end : *end;
    }
    return count;
}

static void show_entry(struct hf_table *t, const struct hf_resource *r, const char *name, uint32_t index,
                       uint32_t place, hf_nanos now, hf_row_fn *fn, void *arg)
{
    const struct hf_entry *e = &hf_cell_at(t, index)->entry;
    bool past = hf_cell_state(hf_cell_at(t, index)) == CELL_PAST;
    if (!place && !e->units)
        return; /* another attempt of a hold that has its row */
    int64_t end = e->end, until = past ? e->check_at : now;
    uint32_t count = place || past ? 1 : count_attempts(t, r, e, &end);
    char label[HF_LABEL_MAX + 1];
    size_t len = e->label_len <= HF_LABEL_MAX ? e->label_len : HF_LABEL_MAX;
    memcpy(label, e->label, len);
    label[len] = 0;
    struct hf_row row = {
        .size = sizeof row,
        .name = name,
        .role = place ? HF_WAITER : HF_HOLDER,
        .kind = (hf_kind)e->kind,
        .capacity = r->capacity,
        .used = r->used,
        .units = e->units,
        .count = count,
        .place = place,
        .token = place ? 0 : e->token,
        .left_ms = place || past ? 0 : hf_until(now, end) / HF_MS(1),
        .since_ms = e->since >= 0 ? hf_until(e->since, until) / HF_MS(1) : 0,
        .ticket = past ? 0 : e->ticket,
        .ttl_ms = e->ttl / HF_MS(1),
        .pid = e->pid,
        .host = hf_host_name(),
        .label = label,
        .detached = e->client == 0 && !past,
        .ended = past ? (hf_status)e->why : HF_OK,
        .ended_ms = past && e->check_at >= 0 ? hf_until(e->check_at, now) / HF_MS(1) : 0,
    };
    fn(arg, &row);
}

static void show_resource(struct hf_table *t, uint32_t index, const char *name, hf_nanos now, hf_row_fn *fn, void *arg)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    if (!r->holders.count && !r->waiters.count)
        return;
    hf_resource_reap(t, r, now);
    hf_resource_admit(t, r, now);
    hf_resource_settle(t, index);
    uint32_t place = 1;
    HF_EACH_CELL(t, i, &r->holders) show_entry(t, r, name, i, 0, now, fn, arg);
    HF_EACH_CELL(t, i, &r->waiters) show_entry(t, r, name, i, place++, now, fn, arg);
}

static void show_past(struct hf_table *t, uint32_t index, const char *name, hf_nanos now, hf_row_fn *fn, void *arg)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    hf_past_forget(t, r, now);
    uint32_t left = hf_table_cells(t);
    for (uint32_t i = r->past.tail; i && left--; i = hf_cell_at(t, i)->head.prev)
        show_entry(t, r, name, i, 0, now, fn, arg);
}

static void show_shard(struct hf_table *t, uint32_t shard, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn,
                       void *arg)
{
    char name[HF_NAME_MAX + 1];
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = hf_table_cells(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && left--; i = hf_cell_at(t, i)->resource.chain) {
            hf_resource_name(t, &hf_cell_at(t, i)->resource, name);
            if (strncmp(name, what->name, what->len) == 0)
                show_resource(t, i, name, now, fn, arg);
        }
    }
}

static hf_status list_all(struct hf_table *t, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg)
{
    for (uint32_t shard = 0; shard < LOCAL_SHARDS; shard++) {
        hf_status status = hf_shard_lock(t, shard, what->until);
        if (status != HF_OK)
            return status;
        show_shard(t, shard, what, now, fn, arg);
        hf_shard_unlock(t, shard);
    }
    return HF_OK;
}

/* Enters the shard of one name and finds its resource, its ended holds reaped. 0 in *index: nobody uses it. HF_OK: the
 * mutex is held. */
static hf_status find_one(struct hf_table *t, const struct hf_seen *what, hf_nanos now, uint32_t *shard,
                          uint32_t *index)
{
    uint64_t hash = hf_name_hash(what->name, what->len);
    *shard = hf_shard_of(hash);
    hf_status status = hf_shard_lock(t, *shard, what->until);
    if (status != HF_OK)
        return status;
    *index = hf_resource_find(t, hash, what->name, what->len);
    struct hf_resource *r = *index ? &hf_cell_at(t, *index)->resource : NULL;
    if (r && !r->idle) {
        hf_resource_reap(t, r, now);
        hf_resource_admit(t, r, now);
        hf_resource_settle(t, *index);
    }
    return HF_OK;
}

static hf_status leave(struct hf_table *t, uint32_t shard, hf_status status)
{
    hf_shard_unlock(t, shard);
    if (atomic_load_explicit(&t->damaged, memory_order_relaxed))
        return hf_why(HF_DAMAGED, "%s: damaged: it refers to places outside of itself", t->path);
    return status;
}

static hf_status list_one(struct hf_table *t, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg)
{
    uint32_t shard, index;
    hf_status status = find_one(t, what, now, &shard, &index);
    if (status != HF_OK)
        return status;
    char name[HF_NAME_MAX + 1];
    if (index) {
        hf_resource_name(t, &hf_cell_at(t, index)->resource, name);
        (what->which == HF_SEE_PAST ? show_past : show_resource)(t, index, name, now, fn, arg);
    }
    return leave(t, shard, HF_OK);
}

hf_status hf_lease_list(struct hf_table *t, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg)
{
    return what->which == HF_SEE_PREFIX ? list_all(t, what, now, fn, arg) : list_one(t, what, now, fn, arg);
}

/* Every attempt of the hold goes; their clients are told to look at what they still have. */
static bool break_token(struct hf_table *t, struct hf_resource *r, uint64_t token, hf_nanos now)
{
    bool found = false;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *e = &hf_cell_at(t, i)->entry;
        if (e->token != token)
            continue;
        uint32_t client = e->client;
        hf_entry_end(t, r, i, HF_LOST, now);
        if (client)
            hf_member_recheck(t, client);
        found = true;
    }
    return found;
}

hf_status hf_lease_break(struct hf_table *t, const struct hf_seen *what, uint64_t token, hf_nanos now)
{
    uint32_t shard, index;
    hf_status status = find_one(t, what, now, &shard, &index);
    if (status != HF_OK)
        return status;
    struct hf_resource *r = index ? &hf_cell_at(t, index)->resource : NULL;
    if (r && break_token(t, r, token, now)) {
        hf_resource_admit(t, r, now);
        hf_resource_settle(t, index);
    } else {
        status = hf_why(HF_NOT_HELD, "%.*s: nobody holds it with token %llu", (int)what->len, what->name,
                        (unsigned long long)token);
    }
    return leave(t, shard, status);
}

hf_status hf_lease_resize(struct hf_table *t, const struct hf_seen *what, uint32_t capacity, hf_nanos now)
{
    uint32_t shard, index;
    hf_status status = find_one(t, what, now, &shard, &index);
    if (status != HF_OK)
        return status;
    struct hf_resource *r = index ? &hf_cell_at(t, index)->resource : NULL;
    if (!r || r->idle) {
        status = hf_why(HF_NOT_HELD, "%.*s: nobody holds it or waits for it, so it has no capacity to change",
                        (int)what->len, what->name);
    } else if (r->kind != HF_SEMAPHORE) {
        status = hf_why(HF_MISMATCH, "%.*s: is not a semaphore", (int)what->len, what->name);
    } else {
        r->capacity = capacity;
        HF_EACH_CELL(t, i, &r->waiters)
        if (hf_cell_at(t, i)->entry.units > capacity)
            hf_entry_refuse(t, r, i, HF_TOO_BIG, now);
        hf_table_changed(t, now);
        hf_resource_admit(t, r, now);
        hf_resource_settle(t, index);
    }
    return leave(t, shard, status);
}
