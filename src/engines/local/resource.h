/* resource.h - finding, making and dropping resources by name. The caller holds the mutex of the
 * resource's shard. */
#pragma once
#include "cells.h"

uint64_t resource_name_hash(const char *name, size_t len);
static inline uint32_t shard_of_hash(uint64_t hash)
{
    return (uint32_t)(hash % LOCAL_SHARDS);
}

/* Returns the index of the resource with that name; 0: none. */
uint32_t resource_find(struct table *t, uint64_t hash, const char *name, size_t len);

static inline uint32_t *resource_bucket(struct table *t, uint64_t hash)
{
    return &t->shards[shard_of_hash(hash)].bucket[hash / LOCAL_SHARDS % LOCAL_BUCKETS];
}

/* Compares the part of a long name that is in further cells. */
bool resource_name_rest_equals(struct table *t, const struct resource *r, const char *name,
                               size_t len);
static inline bool resource_named(struct table *t, const struct resource *r, uint64_t hash,
                                  const char *name, size_t len)
{
    size_t own = len < sizeof r->name ? len : sizeof r->name;
    bool begins_so = r->hash == hash && r->name_len == len && memcmp(r->name, name, own) == 0;
    if (!begins_so)
        return false;
    return own == len || resource_name_rest_equals(t, r, name, len);
}

/* Takes the resource off the idle list. */
static inline void resource_use(struct table *t, union cell *cell)
{
    if (cell->resource.idle)
        cell_list_remove_cell(t, &t->shards[shard_of_hash(cell->resource.hash)].idle, cell);
    cell->resource.idle = false;
}

/* Finds or makes the resource and takes it off the idle list; resource_settle() must follow.
 * Returns index 0 if the table is full (hf_error_text() says why). */
struct cell_ref resource_need_any(struct table *t, uint64_t hash, const char *name, size_t len,
                                  int64_t until);
static inline struct cell_ref resource_need(struct table *t, uint64_t hash, const char *name,
                                            size_t len, int64_t until)
{
    /* nearly always the resource is the first of its bucket */
    struct cell_ref first = {.index = *resource_bucket(t, hash)};
    if (first.index) {
        first.cell = cell_at(t, first.index);
        if (resource_named(t, &first.cell->resource, hash, name, len)) {
            resource_use(t, first.cell);
            return first;
        }
    }

    return resource_need_any(t, hash, name, len, until);
}
void resource_name(struct table *t, const struct resource *r, char name[HF_NAME_MAX + 1]);
/* Puts the resource on the idle list if it has no holders and waiters. */
static inline void resource_settle_cell(struct table *t, uint32_t index, union cell *cell)
{
    struct resource *r = &cell->resource;
    bool is_used = r->holders.count || r->waiters.count;
    if (r->idle || is_used)
        return;
    cell_list_push_cell(t, &t->shards[shard_of_hash(r->hash)].idle, index, cell);
    r->idle = true;
}

static inline void resource_settle(struct table *t, uint32_t index)
{
    resource_settle_cell(t, index, cell_at(t, index));
}
/* Frees the resource that has been idle longest; its last token becomes the shard's floor. Returns
 * false if none is idle. */
bool resource_drop_idle(struct table *t, uint32_t shard);
void resource_chain(struct table *t, uint32_t index); /* Adds the resource to its bucket. */
