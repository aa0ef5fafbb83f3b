/* layout.h - what lies in the shared file.
 *
 *   page 0     head: what this file is. Written once, before the file gets its name, and covered by a checksum.
 *   page 1     state: how far the file is in use.
 *   page 2..   shards: a mutex each, and where its lists begin. A name belongs to the shard that its hash says; the
 * last one, the registry, holds the clients. then       chunks of 16 cells of 256 bytes. A chunk belongs to one shard
 * for ever, a cell is one of: a resource, a piece of a long name, an entry (somebody who waits or holds), a client.
 *
 * The truth is in the cells: each carries its state, and every change of truth is ONE store of that state (or of one
 * other word), made when the cell's other fields are right. Lists, chains, counts are derived: after a death inside a
 * shard's mutex hf_shard_repair() makes them anew from the cells. So an operation may die between any two instructions.
 */
#pragma once
#include "core/message.h"
#include "sys/robust.h"

#include <assert.h>

enum {
    LOCAL_VERSION = 1,
    LOCAL_PAGE = 4096,
    LOCAL_CELL = 256,
    LOCAL_CHUNK = 4096,
    LOCAL_PER_CHUNK = LOCAL_CHUNK / LOCAL_CELL,
    LOCAL_SHARDS = 64,
    LOCAL_REGISTRY = LOCAL_SHARDS, /* the shard of the clients */
    LOCAL_BUCKETS = 64,
    LOCAL_STATE_AT = LOCAL_PAGE,
    LOCAL_SHARDS_AT = 2 * LOCAL_PAGE,
    LOCAL_CELLS_AT = 9 * LOCAL_PAGE,
    LOCAL_START = 64 * 1024, /* bytes of a new file */
};
#define LOCAL_MAP ((size_t)4 << 30) /* mapped once: a map that moves would lose its robust mutexes */
#define LOCAL_MAGIC "HOLDFAST"

struct hf_local_head {
    char magic[8];
    uint32_t version, layout; /* layout: signature of the structs below */
    uint8_t boot_id[16];
    uint64_t pid_namespace, time_namespace;
    char libc[32];
    uint64_t token_floor; /* no token of this table is at or below it */
    uint64_t checksum;    /* of the whole page with this field 0 */
};

struct hf_local_state {
    pthread_mutex_t grow;          /* taken inside a shard's mutex, never the other way */
    _Atomic uint32_t chunks;       /* in use */
    uint32_t room;                 /* chunks that the file has space for */
    _Atomic uint32_t retired;      /* the file has lost its name: whoever still has it open gets nothing any more */
    _Atomic int64_t watched_until; /* somebody wants to hear of every change until then */
    hf_word changes;               /* rises with every change while somebody does */
    _Atomic uint32_t ring;         /* rises when a client comes or goes: neighbours must be looked up again */
};

/* Indices of cells; 0 is none. A cell is in one list at a time. */
struct hf_cells {
    uint32_t head, tail, count;
};

struct hf_shard {
    pthread_mutex_t mutex;
    uint64_t token_floor; /* of resources that were dropped */
    struct hf_cells free;
    struct hf_cells
        idle; /* resources that nobody holds or waits for, newest first; in the registry: the ring of clients */
    uint32_t detached; /* entries that no client answers for */
    uint32_t repairs;  /* how often a death was mended here */
    uint32_t bucket[LOCAL_BUCKETS];
};

enum hf_cell_state {
    CELL_FREE,
    CELL_RESERVED, /* cell 0 */
    CELL_RESOURCE,
    CELL_NAME,
    CELL_WAITING,
    CELL_HELD,
    CELL_PAST,  /* a hold that is over, kept for people to see; nobody's */
    CELL_ENDED, /* the hold is over, by time or by force; the cell is still its client's, which alone frees it */
    CELL_CLIENT,
    CELL_DEAD, /* a client whose death was noticed: it gets nothing any more */
};

struct hf_cell_head {
    _Atomic uint32_t state;
    uint32_t shard;
    uint32_t next, prev;
    hf_word word; /* rises with all news for an entry; a blocked caller sleeps on it. In every cell, because a late
                     waker may meet a cell that has become something else */
    uint32_t spare;
};

struct hf_resource {
    struct hf_cell_head head;
    uint64_t hash;
    uint64_t token;   /* the last one given out */
    uint64_t ticket;  /* the next arrival number */
    int64_t next_end; /* no hold ends before; may be too early, never too late */
    uint32_t used, capacity;
    uint32_t declared; /* the capacity that asks name; differs from `capacity` after a resize */
    uint32_t history;  /* how many past holds are kept */
    int64_t history_age;
    struct hf_cells holders, waiters, past;
    uint32_t chain, more; /* next in its bucket; first further piece of the name */
    uint16_t name_len;
    uint8_t kind; /* HF_EXCLUSIVE, HF_SEMAPHORE or HF_READ (for read and write) */
    uint8_t idle; /* on the shard's idle list */
    char name[128];
};

struct hf_name_piece {
    struct hf_cell_head head;
    uint32_t resource, more;
    char name[224];
};

/* Is an entry in its client's ready list? The list needs no mutex, so a repair cannot tell whether whoever died got it
 * in there: it stays in doubt until its client takes it out, and whoever has news for it asks for a look at all. */
enum hf_link { UNLINKED, LINKED, LINK_IN_DOUBT };

struct hf_entry {
    struct hf_cell_head head;
    uint32_t resource, client; /* client 0: detached */
    uint32_t units;
    _Atomic uint32_t ready_next; /* in its client's ready list */
    _Atomic uint32_t cookie;     /* where its client keeps the ask; 0: a caller is parked on the word */
    _Atomic uint8_t linked;      /* enum hf_link; not UNLINKED: the cell may not be used again */
    uint8_t kind, label_len;
    uint8_t
        named;   /* others may have the same owner: several entries are then one hold, and one of them has the units */
    uint8_t why; /* hf_status: how it ended */
    struct hf_id owner, attempt;
    uint64_t ticket, token;
    int64_t end, ttl, since, check_at, pid;
    char label[HF_LABEL_MAX];
};

struct hf_member {
    struct hf_cell_head head;
    pthread_mutex_t life;     /* held by the client's background thread as long as it lives */
    hf_word bell;             /* rises when the background thread must look */
    _Atomic uint32_t ready;   /* entries that were granted, newest first */
    _Atomic uint32_t recheck; /* a hold was taken away: ask for each whether it is still there */
    _Atomic uint32_t rescan;  /* a repair could not tell who was told: look at everything */
    int64_t pid;
};

union hf_cell {
    struct hf_cell_head head;
    struct hf_resource resource;
    struct hf_name_piece piece;
    struct hf_entry entry;
    struct hf_member member;
    char bytes[LOCAL_CELL];
};

static_assert(sizeof(union hf_cell) == LOCAL_CELL, "a cell is 256 bytes");
static_assert(sizeof(struct hf_local_head) <= LOCAL_PAGE, "the head is one page");
static_assert(sizeof(struct hf_local_state) <= LOCAL_PAGE, "the state is one page");
static_assert(LOCAL_SHARDS_AT + sizeof(struct hf_shard) * (LOCAL_SHARDS + 1) <= LOCAL_CELLS_AT, "the shards fit");
static_assert(sizeof(((struct hf_resource *)0)->name) + 2 * sizeof(((struct hf_name_piece *)0)->name) >= HF_NAME_MAX,
              "two further pieces hold the longest name");
