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
/* Finds or makes; taken off the idle list, so hf_resource_settle() must follow. 0: full, see hf_error_text(). */
uint32_t hf_resource_need(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until);
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
