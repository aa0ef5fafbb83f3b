/* model_store.c - where the model keeps its data: an arena that only grows during a request and is
 * compacted between two. */
#include "model_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space; memory comes with use. A request that needs more is a mistake of the test. */
#define ARENA_ROOM (256u << 20)
#define KEY_ROOM (1u << 18)
#define COMPACT_AT (1u << 20)

static void *reserve(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    assert(at != MAP_FAILED);
    return at;
}

void store_open(struct store *store)
{
    store->arena = reserve(ARENA_ROOM);
    store->spare = reserve(ARENA_ROOM);
    store->keys = reserve(KEY_ROOM * sizeof *store->keys);
    store_empty(store);
}

void store_close(struct store *store)
{
    munmap(store->arena, ARENA_ROOM);
    munmap(store->spare, ARENA_ROOM);
    munmap(store->keys, KEY_ROOM * sizeof *store->keys);
}

void store_empty(struct store *store)
{
    store->used = 0;
    store->compact_at = COMPACT_AT;
    store->key_count = 0;
}

static uint32_t allot(struct store *store, size_t size)
{
    uint32_t at = (store->used + 7) & ~7u;
    assert(size < ARENA_ROOM - at);
    store->used = at + (uint32_t)size;
    return at;
}

struct text store_keep(struct store *store, struct slice bytes)
{
    struct text text = {.at = allot(store, bytes.len), .len = (uint32_t)bytes.len};
    if (bytes.len)
        memcpy(store->arena + text.at, bytes.bytes, bytes.len);
    return text;
}

void store_drop(struct key *key)
{
    key->kind = NOTHING;
}

static void make_room(struct store *store, struct key *key)
{
    uint32_t room = key->room ? 2 * key->room : key->kind == STRING ? 1 : 4;
    uint32_t at = allot(store, room * sizeof(struct item));
    if (key->count)
        memcpy(store->arena + at, store->arena + key->items, key->count * sizeof(struct item));
    key->items = at;
    key->room = room;
}

struct item *store_insert(struct store *store, struct key *key, uint32_t index)
{
    assert(index <= key->count);
    if (key->count == key->room)
        make_room(store, key);
    struct item *item = store_items(store, key) + index;
    memmove(item + 1, item, (key->count - index) * sizeof *item);
    *item = (struct item){0};
    key->count++;
    return item;
}

void store_cut(struct store *store, struct key *key, uint32_t index, uint32_t n)
{
    assert(index + n <= key->count);
    struct item *item = store_items(store, key) + index;
    memmove(item, item + n, (key->count - index - n) * sizeof *item);
    key->count -= n;
}

void store_remove(struct store *store, struct key *key, uint32_t index, uint32_t n)
{
    store_cut(store, key, index, n);
    if (key->count == 0)
        store_drop(key);
}

/* ---- Compaction ---- */

static struct text moved(struct store *to, const struct store *from, struct text text)
{
    return store_keep(to, store_text(from, text));
}

static void move_key(struct store *to, const struct store *from, struct key *key)
{
    const struct item *old = store_items(from, key);
    key->name = moved(to, from, key->name);
    key->room = key->count;
    key->items = allot(to, key->count * sizeof *old);
    for (uint32_t i = 0; i < key->count; i++) {
        struct item item = {moved(to, from, old[i].name), moved(to, from, old[i].value),
                            old[i].score};
        store_items(to, key)[i] = item;
    }
}

void store_compact(struct store *store)
{
    if (store->used < store->compact_at)
        return;
    struct store to = *store;
    to.arena = store->spare;
    to.spare = store->arena;
    to.used = 0;
    for (unsigned i = 0; i < to.key_count; i++)
        if (to.keys[i].kind != NOTHING)
            move_key(&to, store, &to.keys[i]);
    to.compact_at = to.used > COMPACT_AT / 2 ? 2 * to.used : COMPACT_AT;
    *store = to;
}

/* ---- Keys ---- */

static uint32_t hash_of(struct slice name)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (unsigned char)name.bytes[i]) * 16777619u;
    return hash;
}

static bool expired(const struct redis_model *model, const struct key *key)
{
    int64_t grace = model->plant == MODEL_LATE_EXPIRY ? 1 : 0;
    return key->expires_ms >= 0 && now_ms(model) > key->expires_ms + grace;
}

/* A dozen keys is what a schedule has: looking at each hash beats an index. */
struct key *key_find(struct call *call, struct slice name)
{
    struct store *store = &call->model->store;
    uint32_t hash = hash_of(name);
    for (unsigned i = 0; i < store->key_count; i++) {
        struct key *key = &store->keys[i];
        if (key->hash != hash || key->kind == NOTHING || key->db != *call->db ||
            !slice_equal(store_text(store, key->name), name))
            continue;
        if (!expired(call->model, key))
            return key;
        store_drop(key);
        return NULL;
    }
    return NULL;
}

static struct key *free_slot(struct store *store)
{
    for (unsigned i = 0; i < store->key_count; i++)
        if (store->keys[i].kind == NOTHING)
            return &store->keys[i];
    assert(store->key_count < KEY_ROOM);
    return &store->keys[store->key_count++];
}

struct key *key_make(struct call *call, struct slice name, enum kind kind)
{
    struct store *store = &call->model->store;
    struct key *key = free_slot(store);
    *key = (struct key){.kind = kind, .db = *call->db, .hash = hash_of(name), .expires_ms = -1};
    key->name = store_keep(store, name);
    return key;
}

bool key_of_kind(struct call *call, struct slice name, enum kind kind, struct key **key)
{
    *key = key_find(call, name);
    if (!*key || (*key)->kind == kind)
        return true;
    reply_error(call, "WRONGTYPE Operation against a key holding the wrong kind of value");
    return false;
}
