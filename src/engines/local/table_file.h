/* table_file.h - the shared file as this process sees it: opened, checked, mapped. */
#pragma once
#include "layout.h"

#include <sys/types.h>

struct table {
    char path[1024];
    int fd;
    char *map;
    /* list of the mutexes that this process has locked, for the kernel */
    struct robust_owner owner;
    uint32_t reaping; /* dead client whose life word this process took over; 0: none */
    struct table_head *head;
    struct table_state *state;
    struct shard *shards;
    union cell *cells;
    dev_t device;
    ino_t inode;
    _Atomic uint32_t
        /* number of chunks that the file is known to have; beyond them no memory is mapped */
        backed;
    _Atomic uint32_t last; /* the highest cell index known to exist */
    /* some value in the file was impossible: every op fails from now on */
    _Atomic bool damaged;
    union cell outside; /* used in place of a cell that does not exist */
    struct shard outside_shard;
};

/* Opens the table at `path`, or makes it with `mode` if there is none. `path` NULL is the user's
 * own table in /dev/shm. A file that is foreign, damaged or of another layout or namespace is
 * refused with its own message and never overwritten. */
hf_status table_open(struct table *t, const char *path, mode_t mode);
void table_close(struct table *t);

/* Returns true if the path still names this file. Costs one stat(). */
bool table_in_place(const struct table *t);

/* Gives a shard one more chunk. The caller holds the shard's mutex. Returns the index of its first
 * cell, or 0 with the reason in hf_error_text(). */
uint32_t table_grow(struct table *t, uint32_t shard, int64_t until);

/* Computes the checksum that page 0 must have. */
uint64_t table_checksum(const struct table_head *page);
uint32_t table_layout(void);

/* Returns the smaller of `chunks` and the number of chunks that the file has. */
uint32_t table_backed(struct table *t, uint32_t chunks);

static inline uint32_t table_cells(struct table *t)
{
    uint32_t chunks = atomic_load_explicit(&t->state->chunks, memory_order_acquire);
    if (chunks > atomic_load_explicit(&t->backed, memory_order_relaxed))
        chunks = table_backed(t, chunks);
    return chunks * LOCAL_PER_CHUNK;
}

/* The rare half of cell_at(): index 0, or an index above all seen so far. */
union cell *cell_beyond(struct table *t, uint32_t index);

/* Other processes may change the file at any time, even between the check of a value and its use.
 * So these functions read a value once, and keep the compiler from reading it again.
 */
static inline uint32_t read_once(uint32_t value)
{
    __asm__("" : "+r"(value));
    return value;
}
static inline int64_t read_time_once(int64_t value)
{
    __asm__("" : "+r"(value));
    return value;
}

static inline void table_found_damage(struct table *t)
{
    atomic_store_explicit(&t->damaged, true, memory_order_relaxed);
}

/* Every index that is read from the file goes through here. */
static inline union cell *cell_at(struct table *t, uint32_t index)
{
    index = read_once(index);
    if (__builtin_expect(index - 1 < atomic_load_explicit(&t->last, memory_order_relaxed), true))
        return &t->cells[index];
    return cell_beyond(t, index);
}

/* Every shard number that is read from a cell goes through here. */
static inline struct shard *shard_at(struct table *t, uint32_t shard)
{
    shard = read_once(shard);
    if (shard <= LOCAL_REGISTRY)
        return &t->shards[shard];
    table_found_damage(t);
    return &t->outside_shard;
}

static inline uint32_t cell_state(const union cell *cell)
{
    return atomic_load_explicit(&cell->head.state, memory_order_acquire);
}

/* Adds to a time from the file, which may be damaged: TIME_NEVER on overflow. */
static inline nanos time_after(nanos time, nanos length)
{
    nanos sum;
    length = read_time_once(length);
    return __builtin_add_overflow(time, length, &sum) ? TIME_NEVER : sum;
}

/* Returns the time from `now` to a time from the file; 0 if that is past. */
static inline nanos time_until(nanos now, nanos time)
{
    time = read_time_once(time);
    return time > now ? time - now : 0;
}

/* The one store that makes a change true. The compiler may move nothing across it: a process that
 * dies here leaves either the old truth or the new one. */
static inline void cell_commit(union cell *cell, enum cell_state state)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&cell->head.state, (uint32_t)state, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}
