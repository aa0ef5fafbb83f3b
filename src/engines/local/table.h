/* table.h - the shared file as this process sees it: opened, checked, mapped. */
#pragma once
#include "layout.h"

#include <sys/types.h>

struct hf_table {
    char path[1024];
    int fd;
    char *map;
    struct hf_local_head *head;
    struct hf_local_state *state;
    struct hf_shard *shards;
    union hf_cell *cells;
    dev_t device;
    ino_t inode;
    _Atomic uint32_t backed; /* chunks that the file was seen to have: behind them there is no memory */
    _Atomic uint32_t last;   /* the highest cell that was seen to be there */
    _Atomic bool damaged;    /* an index in the file pointed outside */
    union hf_cell outside;   /* what such an index leads to instead */
    struct hf_shard outside_shard;
};

/* Opens the table at path, making it (mode) when there is none. `path` NULL: the user's own in /dev/shm. Never
 * overwrites what it does not know: foreign, damaged, of another layout, boot or namespace: each has its own message.
 */
hf_status hf_table_open(struct hf_table *t, const char *path, mode_t mode);
void hf_table_close(struct hf_table *t);

/* Is the file still the one that its path names? One stat. */
bool hf_table_in_place(const struct hf_table *t);

/* One more chunk for a shard whose mutex the caller holds: the first of its cells, or 0 with the reason in
 * hf_error_text(). */
uint32_t hf_table_grow(struct hf_table *t, uint32_t shard, int64_t until);

/* The checksum that page 0 must carry. */
uint64_t hf_table_checksum(const struct hf_local_head *page);
uint32_t hf_table_layout(void);

/* As many of these chunks as the file has. */
uint32_t hf_table_backed(struct hf_table *t, uint32_t chunks);

static inline uint32_t hf_table_cells(struct hf_table *t)
{
    uint32_t chunks = atomic_load_explicit(&t->state->chunks, memory_order_acquire);
    if (chunks > atomic_load_explicit(&t->backed, memory_order_relaxed))
        chunks = hf_table_backed(t, chunks);
    return chunks * LOCAL_PER_CHUNK;
}

/* For an index that is 0, or beyond what was seen so far. */
union hf_cell *hf_cell_beyond(struct hf_table *t, uint32_t index);

/* Every index that comes from the file goes through here. */
static inline union hf_cell *hf_cell_at(struct hf_table *t, uint32_t index)
{
    if (__builtin_expect(index - 1 < atomic_load_explicit(&t->last, memory_order_relaxed), true))
        return &t->cells[index];
    return hf_cell_beyond(t, index);
}

/* The same for the number of a shard that a cell carries. */
static inline struct hf_shard *hf_shard_at(struct hf_table *t, uint32_t shard)
{
    if (shard <= LOCAL_REGISTRY)
        return &t->shards[shard];
    atomic_store_explicit(&t->damaged, true, memory_order_relaxed);
    return &t->outside_shard;
}

static inline uint32_t hf_cell_state(const union hf_cell *cell)
{
    return atomic_load_explicit(&cell->head.state, memory_order_acquire);
}

/* Times in the file may be damaged too: what does not fit any more is never. */
static inline hf_nanos hf_after(hf_nanos time, hf_nanos length)
{
    hf_nanos sum;
    return __builtin_add_overflow(time, length, &sum) ? HF_NEVER : sum;
}

/* From `now`, which is not damaged, to a time that may be; 0 if that is over. */
static inline hf_nanos hf_until(hf_nanos now, hf_nanos time)
{
    return time > now ? time - now : 0;
}

/* The one store that makes a change true. Nothing before it may be moved behind it nor the other way: whoever dies here
 * leaves either the old truth or the new one. */
static inline void hf_cell_commit(union hf_cell *cell, enum hf_cell_state state)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&cell->head.state, (uint32_t)state, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}
