/* resource.h - resources by name: found, made, dropped. All under the mutex of the resource's shard. */
#pragma once
#include "cells.h"

uint64_t hf_name_hash(const char *name, size_t len);
static inline uint32_t hf_shard_of(uint64_t hash)
{
    return (uint32_t)(hash % LOCAL_SHARDS);
}

/* 0: there is none. */
uint32_t hf_resource_find(struct hf_table *t, uint64_t hash, const char *name, size_t len);

static inline uint32_t *hf_bucket_of(struct hf_table *t, uint64_t hash)
{
    return &t->shards[hf_shard_of(hash)].bucket[hash / LOCAL_SHARDS % LOCAL_BUCKETS];
}

/* Of a name that does not fit into the resource itself: the rest. */
bool hf_name_same_rest(struct hf_table *t, const struct hf_resource *r, const char *name, size_t len);
static inline bool hf_resource_named(struct hf_table *t, const struct hf_resource *r, uint64_t hash, const char *name,
                                     size_t len)
{
    size_t own = len < sizeof r->name ? len : sizeof r->name;
    if (r->hash != hash || r->name_len != len || memcmp(r->name, name, own) != 0)
        return false;
    return own == len || hf_name_same_rest(t, r, name, len);
}

/* Takes it off the idle list. */
static inline void hf_resource_use(struct hf_table *t, union hf_cell *cell)
{
    if (cell->resource.idle)
        hf_cells_remove_cell(t, &t->shards[hf_shard_of(cell->resource.hash)].idle, cell);
    cell->resource.idle = false;
}

/* Finds or makes; taken off the idle list, so hf_resource_settle() must follow. 0: full, see hf_error_text(). */
struct hf_spot hf_resource_need_any(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until);
static inline struct hf_spot hf_resource_need(struct hf_table *t, uint64_t hash, const char *name, size_t len,
                                              int64_t until)
{
    struct hf_spot first = {.index = *hf_bucket_of(t, hash)}; /* of its bucket: mostly it */
    if (first.index) {
        first.cell = hf_cell_at(t, first.index);
        if (hf_resource_named(t, &first.cell->resource, hash, name, len)) {
            hf_resource_use(t, first.cell);
            return first;
        }
    }
    return hf_resource_need_any(t, hash, name, len, until);
}
void hf_resource_name(struct hf_table *t, const struct hf_resource *r, char name[HF_NAME_MAX + 1]);
/* Onto the idle list when nobody holds or waits. */
static inline void hf_resource_settle_cell(struct hf_table *t, uint32_t index, union hf_cell *cell)
{
    struct hf_resource *r = &cell->resource;
    if (r->idle || r->holders.count || r->waiters.count)
        return;
    hf_cells_push_cell(t, &t->shards[hf_shard_of(r->hash)].idle, index, cell);
    r->idle = true;
}

static inline void hf_resource_settle(struct hf_table *t, uint32_t index)
{
    hf_resource_settle_cell(t, index, hf_cell_at(t, index));
}
/* Frees the idle resource that was used longest ago; its last token becomes the shard's floor. False: none is idle. */
bool hf_resource_drop_idle(struct hf_table *t, uint32_t shard);
void hf_resource_chain(struct hf_table *t, uint32_t index); /* into its bucket */
