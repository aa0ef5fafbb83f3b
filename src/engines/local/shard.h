/* shard.h - a shard's mutex, and what is done when its owner died inside. */
#pragma once
#include "table.h"

/* HF_OK with the shard locked (and mended, if a death had left it half-done), or HF_UNAVAILABLE: hf_error_text() names
 * the process that sits in it. */
hf_status hf_shard_lock(struct hf_table *t, uint32_t shard, int64_t until);
/* The same, and *now is brought up to date if getting in took time. */
hf_status hf_shard_enter_late(struct hf_table *t, uint32_t shard, int64_t until, enum hf_robust_result tried,
                              hf_nanos *now);
static inline hf_status hf_shard_enter(struct hf_table *t, uint32_t shard, int64_t until, hf_nanos *now)
{
    enum hf_robust_result tried = hf_robust_try(&t->shards[shard].mutex);
    return tried == HF_ROBUST_LOCKED ? HF_OK : hf_shard_enter_late(t, shard, until, tried, now);
}

static inline void hf_shard_unlock(struct hf_table *t, uint32_t shard)
{
    hf_robust_unlock(&t->shards[shard].mutex);
}

/* Makes everything that is derived anew from the cells, gives free units to whoever is first, and wakes all who might
 * have been about to be told. The caller holds the mutex. */
void hf_shard_repair(struct hf_table *t, uint32_t shard);
