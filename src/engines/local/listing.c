/* listing.c - who holds and who waits, for people to see. */
#include "lease.h"
#include "resource.h"
#include "shard.h"
#include "sys/process.h"

#include "base/why.h"

#include <string.h>

static void show_entry(struct hf_table *t, const struct hf_resource *r, const char *name, uint32_t index,
                       uint32_t place, hf_nanos now, hf_row_fn *fn, void *arg)
{
    const struct hf_entry *e = &hf_cell_at(t, index)->entry;
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
        .count = 1,
        .place = place,
        .token = place ? 0 : e->token,
        .left_ms = place || e->end < now ? 0 : (e->end - now) / HF_MS(1),
        .since_ms = e->since < now ? (now - e->since) / HF_MS(1) : 0,
        .ttl_ms = e->ttl / HF_MS(1),
        .pid = e->pid,
        .host = hf_host_name(),
        .label = label,
        .detached = e->client == 0,
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

static void show_shard(struct hf_table *t, uint32_t shard, const char *prefix, size_t len, hf_nanos now, hf_row_fn *fn,
                       void *arg)
{
    char name[HF_NAME_MAX + 1];
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = hf_table_cells(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && left--; i = hf_cell_at(t, i)->resource.chain) {
            hf_resource_name(t, &hf_cell_at(t, i)->resource, name);
            if (strncmp(name, prefix, len) == 0)
                show_resource(t, i, name, now, fn, arg);
        }
    }
}

static hf_status list_all(struct hf_table *t, const char *prefix, size_t len, hf_nanos now, hf_nanos until,
                          hf_row_fn *fn, void *arg)
{
    for (uint32_t shard = 0; shard < LOCAL_SHARDS; shard++) {
        hf_status status = hf_shard_lock(t, shard, until);
        if (status != HF_OK)
            return status;
        show_shard(t, shard, prefix, len, now, fn, arg);
        hf_shard_unlock(t, shard);
    }
    return HF_OK;
}

static hf_status list_one(struct hf_table *t, const char *name, size_t len, hf_nanos now, hf_nanos until, hf_row_fn *fn,
                          void *arg)
{
    uint64_t hash = hf_name_hash(name, len);
    hf_status status = hf_shard_lock(t, hf_shard_of(hash), until);
    if (status != HF_OK)
        return status;
    uint32_t index = hf_resource_find(t, hash, name, len);
    if (index) {
        char copy[HF_NAME_MAX + 1];
        hf_resource_name(t, &hf_cell_at(t, index)->resource, copy);
        show_resource(t, index, copy, now, fn, arg);
    }
    hf_shard_unlock(t, hf_shard_of(hash));
    return HF_OK;
}

hf_status hf_lease_list(struct hf_table *t, const char *name, size_t len, bool prefix, hf_nanos now, hf_nanos until,
                        hf_row_fn *fn, void *arg)
{
    hf_status status =
        prefix ? list_all(t, name, len, now, until, fn, arg) : list_one(t, name, len, now, until, fn, arg);
    if (status == HF_OK && atomic_load_explicit(&t->damaged, memory_order_relaxed))
        return hf_why(HF_DAMAGED, "%s: damaged: it refers to places outside of itself", t->path);
    return status;
}
