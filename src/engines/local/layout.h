/* layout.h - what lies in the shared file.
 *
 * The truth is in the cells. Each cell has a state, and every change of truth is ONE store of that
 * state (or of one other word), made when the cell's other fields are right. Lists, chains and
 * counts are derived: after a death inside a shard's mutex shard_repair() rebuilds them from the
 * cells. So a process may die between any two instructions of an op. */

/* clang-format off */
/*
 *   page 0     head: what this file is. Written once, before the file gets its name; has a checksum.
 *   page 1     state: how much of the file is in use.
 *   page 2..   shards: each a mutex and the heads of its lists. The hash of a name picks its shard;
 *              the last shard, the registry, has the clients.
 *   then       chunks of 16 cells of 256 bytes. A chunk belongs to one shard for ever. A cell is a
 *              resource, a piece of a long name, an entry (a waiter or a holder) or a client.
 */
/* clang-format on */
#pragma once
#include "core/engine_protocol.h"
#include "sys/robust_mutex.h"

#include <assert.h>

enum {
    LOCAL_VERSION = 2,
    LOCAL_PAGE = 4096,
    LOCAL_CELL = 256,
    LOCAL_CHUNK = 4096,
    LOCAL_PER_CHUNK = LOCAL_CHUNK / LOCAL_CELL,
    LOCAL_SHARDS = 64,
    LOCAL_REGISTRY = LOCAL_SHARDS, /* number of the shard that has the clients */
    LOCAL_BUCKETS = 64,
    LOCAL_STATE_AT = LOCAL_PAGE,
    LOCAL_SHARDS_AT = 2 * LOCAL_PAGE,
    LOCAL_CELLS_AT = 9 * LOCAL_PAGE,
    LOCAL_START = 64 * 1024, /* size of a new file in bytes */
};
#define LOCAL_MAP ((size_t)4 << 30) /* address space mapped once, so that cells never move */
#define LOCAL_MAGIC "HOLDFAST"

struct table_head {
    char magic[8];
    uint32_t version, layout; /* layout: signature of the structs in this file */
    uint8_t boot_id[16];
    uint64_t pid_namespace, time_namespace;
    char libc[32];
    uint64_t token_floor; /* every token of this table is higher */
    uint64_t checksum;    /* checksum of the whole page, computed with this field 0 */
};

struct table_state {
    struct robust_mutex grow; /* locked inside a shard's mutex, never the other way round */
    _Atomic uint32_t chunks;  /* chunks in use */
    uint32_t room;            /* chunks that the file has space for */
    _Atomic uint32_t
        retired; /* 1 once the file has lost its name: every op on it fails from then on */
    _Atomic int64_t watched_until; /* time until which some client watches every change */
    futex_word changes;            /* rises with every change while a client watches */
    _Atomic int64_t reaped_at;     /* time of the last clean-up after a dead client; 0: never */
    _Atomic uint32_t ring; /* version of the ring of clients; rises when one joins or leaves */
};

/* Indices of cells; 0 is none. A cell is in one list at a time. */
struct cell_list {
    uint32_t head, tail, count;
};

struct shard {
    struct robust_mutex mutex;
    uint64_t token_floor; /* highest token of all resources that were dropped */
    struct cell_list free;
    /* resources without holders and waiters, newest first; in the registry: the ring of clients */
    struct cell_list idle;
    uint32_t detached; /* number of entries without a client */
    uint32_t repairs;  /* number of repairs after a death */
    uint32_t bucket[LOCAL_BUCKETS];
};

enum cell_state {
    CELL_FREE,
    CELL_RESERVED, /* cell 0, never used */
    CELL_RESOURCE,
    CELL_NAME,
    CELL_WAITING,
    CELL_HELD,
    CELL_PAST,  /* a past hold, kept for operators to read; belongs to no client */
    CELL_ENDED, /* the hold expired, was revoked or refused; only its client frees the cell */
    CELL_CLIENT,
    CELL_DEAD, /* a dead client, which gets no new entries */
};

struct cell_head {
    _Atomic uint32_t state;
    uint32_t shard;
    uint32_t next, prev;
    /* Rises with every notification of an entry; a parked caller sleeps on it. Every cell has one,
     * because a late wake may reach a cell that was reused. */
    futex_word word;
    uint32_t spare;
};

struct resource {
    struct cell_head head;
    uint64_t hash;
    uint64_t token;   /* last token that was granted */
    uint64_t ticket;  /* the next arrival number */
    int64_t next_end; /* lower bound of the ends of all holds */
    uint32_t used, capacity;
    uint32_t declared; /* the capacity that requests name; differs from `capacity` after a resize */
    uint32_t history;  /* number of past holds to keep */
    int64_t history_age;
    struct cell_list holders, waiters, past;
    /* next resource in the bucket; first cell with the rest of a long name */
    uint32_t chain, more;
    uint16_t name_len;
    uint8_t kind; /* HF_EXCLUSIVE, HF_SEMAPHORE or HF_READ (for read and write) */
    uint8_t idle; /* 1 while on the shard's idle list */
    char name[128];
};

struct name_piece {
    struct cell_head head;
    uint32_t resource, more;
    char name[224];
};

/* Whether an entry is in its client's ready list. The list has no mutex, so a repair cannot tell
 * whether the dead process had linked the entry. The link is then UNKNOWN until the client empties
 * the list, and a notification for the entry sets `rescan`. */
enum ready_link { READY_UNLINKED, READY_LINKED, READY_UNKNOWN };

struct entry {
    struct cell_head head;
    /* indices of the cells of the entry's resource and client; client 0: detached */
    uint32_t resource, client;
    uint32_t units;
    _Atomic uint32_t ready_next; /* next entry in the client's ready list */
    /* number under which the client keeps the op; 0: a caller is parked on the word */
    _Atomic uint32_t cookie;
    _Atomic uint8_t ready_link; /* enum ready_link; the cell is reused only when UNLINKED */
    uint8_t kind, label_len;
    /* 1 if other entries may have the same owner. Such entries are one hold, and one of them has
     * all its units. */
    uint8_t named;
    uint8_t why; /* hf_status: how the hold ended */
    struct id owner, attempt;
    uint64_t ticket, token;
    int64_t end, ttl, since, check_at, pid;
    char label[HF_LABEL_MAX];
};

struct table_client {
    struct cell_head head;
    struct robust_mutex life; /* held as long as the client lives */
    futex_word wake_word;     /* rises when the background thread must wake */
    /* entries that were granted and not handled yet, newest first */
    _Atomic uint32_t ready;
    _Atomic uint32_t recheck; /* 1: a hold was revoked, so the client must check each hold */
    _Atomic uint32_t rescan;  /* 1: a repair was made, so the client must check every op */
    int64_t pid;
};

union cell {
    struct cell_head head;
    struct resource resource;
    struct name_piece piece;
    struct entry entry;
    struct table_client client;
    char bytes[LOCAL_CELL];
};

static_assert(sizeof(union cell) == LOCAL_CELL, "a cell is 256 bytes");
static_assert(sizeof(struct table_head) <= LOCAL_PAGE, "the head is one page");
static_assert(sizeof(struct table_state) <= LOCAL_PAGE, "the state is one page");
static_assert(LOCAL_SHARDS_AT + sizeof(struct shard) * (LOCAL_SHARDS + 1) <= LOCAL_CELLS_AT,
              "the shards fit");
static_assert(sizeof(((struct resource *)0)->name) + 2 * sizeof(((struct name_piece *)0)->name) >=
                  HF_NAME_MAX,
              "two further pieces hold the longest name");
