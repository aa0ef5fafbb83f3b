/* shard.h - locking a shard. */
#pragma once
#include "cells.h"

/* Locks the shard, and repairs it if its last owner died inside. Returns HF_UNAVAILABLE if it
 * cannot be locked in time, and hf_error_text() names the process that holds it; or if it
 * cannot be repaired in time. */
hf_status shard_lock(struct table *t, uint32_t shard, int64_t until);
/* As shard_lock(), for a call that locks several shards in turn. *wait is the time that the whole
 * call may still wait for mutexes; the function subtracts what it waited. The walks of the call are
 * bounded together, too. */
hf_status shard_lock_next(struct table *t, uint32_t shard, nanos *wait);
/* Like shard_lock(), and updates *now if locking took time. */
hf_status shard_enter_late(struct table *t, uint32_t shard, int64_t until,
                           enum robust_mutex_result tried, nanos *now);
static inline hf_status shard_enter(struct table *t, uint32_t shard, int64_t until, nanos *now)
{
    enum robust_mutex_result tried = robust_mutex_try(&t->owner, &t->shards[shard].mutex);
    cell_walk_restart();
    return tried == ROBUST_MUTEX_LOCKED ? HF_OK : shard_enter_late(t, shard, until, tried, now);
}

static inline void shard_unlock(struct table *t, uint32_t shard)
{
    robust_mutex_unlock(&t->owner, &t->shards[shard].mutex);
}
