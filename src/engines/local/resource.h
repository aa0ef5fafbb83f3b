/* resource.h - resources by name, their holders and their queue. All under the mutex of the resource's shard.
 *
 * The rule that every function here keeps: none ends with a first waiter that fits. */
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
void hf_resource_settle(struct hf_table *t, uint32_t index);
/* Frees the idle resource that was used longest ago; its last token becomes the shard's floor. False: none is idle. */
bool hf_resource_drop_idle(struct hf_table *t, uint32_t shard);
void hf_resource_chain(struct hf_table *t, uint32_t index); /* into its bucket */

/* Ends the holds whose time is over. */
void hf_resource_reap(struct hf_table *t, struct hf_resource *r, hf_nanos now);
/* Ends the holds of clients that died and that nobody has buried yet: their neighbour may be stopped. */
void hf_resource_reap_dead(struct hf_table *t, struct hf_resource *r);
/* Gives the free units to the first waiters, in order, and makes sure that the next one looks in time. */
void hf_resource_admit(struct hf_table *t, struct hf_resource *r, hf_nanos now);
/* Makes an entry (waiting or new) a holder. `told`: its client hears of it some other way. */
void hf_resource_grant(struct hf_table *t, struct hf_resource *r, uint32_t entry, hf_nanos now, bool told);

/* Takes an entry out of its resource, whatever it was, and frees its cell; then admits. */
void hf_entry_drop(struct hf_table *t, uint32_t index, hf_nanos now);
/* Something happened to a waiting or just granted entry: its client must look. */
void hf_entry_notify(struct hf_table *t, uint32_t index);
