/* resource.c - finding, making and dropping resources by name. */
#include "resource.h"

#include "hold_history.h"
#include "sys/clock.h"
#include "wait_queue.h"

#include <string.h>

/* ---- Names ---- */

uint64_t resource_name_hash(const char *name, size_t len)
{
    assert(name || len == 0);
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)name[i]) * 1099511628211u;
    /* shard and bucket come from the low bits, which FNV mixes badly for short names */
    h ^= h >> 32;
    return h * 0x9e3779b97f4a7c15u ^ h >> 29;
}

bool resource_name_rest_equals(struct table *t, const struct resource *r, const char *name,
                               size_t len)
{
    assert(len > sizeof r->name);
    size_t n = sizeof r->name;
    for (uint32_t more = r->more; n < len;) {
        const struct name_piece *piece = &cell_at(t, more)->piece;
        size_t part = len - n < sizeof piece->name ? len - n : sizeof piece->name;
        if (memcmp(piece->name, name + n, part) != 0)
            return false;
        n += part;
        more = piece->more;
    }

    return true;
}

void resource_name(struct table *t, const struct resource *r, char name[HF_NAME_MAX + 1])
{
    size_t len = read_once(r->name_len);
    len = len <= HF_NAME_MAX ? len : HF_NAME_MAX;
    size_t n = len < sizeof r->name ? len : sizeof r->name;
    memcpy(name, r->name, n);

    for (uint32_t more = r->more; n < len;) {
        const struct name_piece *piece = &cell_at(t, more)->piece;
        size_t part = len - n < sizeof piece->name ? len - n : sizeof piece->name;
        memcpy(name + n, piece->name, part);
        n += part;
        more = piece->more;
    }

    name[len] = 0;
}

/* Searches the bucket from its second resource on. */
static uint32_t find_behind(struct table *t, const struct resource *r, uint64_t hash,
                            const char *name, size_t len)
{
    uint32_t left = cell_walk_most(t);
    for (uint32_t i = r->chain; i && cell_walk_goes_on(t, &left); i = r->chain) {
        r = &cell_at(t, i)->resource;
        if (resource_named(t, r, hash, name, len))
            return i;
    }

    return 0;
}

uint32_t resource_find(struct table *t, uint64_t hash, const char *name, size_t len)
{
    assert(len <= HF_NAME_MAX);
    uint32_t first = *resource_bucket(t, hash);
    if (!first)
        return 0;

    const struct resource *r = &cell_at(t, first)->resource;
    return resource_named(t, r, hash, name, len) ? first : find_behind(t, r, hash, name, len);
}

void resource_chain(struct table *t, uint32_t index)
{
    struct resource *r = &cell_at(t, index)->resource;
    uint32_t *bucket = resource_bucket(t, r->hash);
    r->chain = *bucket;
    *bucket = index;
}

static void unchain(struct table *t, uint32_t index)
{
    struct resource *r = &cell_at(t, index)->resource;
    uint32_t *ready = resource_bucket(t, r->hash), left = cell_walk_most(t);
    while (*ready && *ready != index && cell_walk_goes_on(t, &left))
        ready = &cell_at(t, *ready)->resource.chain;
    if (*ready == index)
        *ready = r->chain;
}

/* ---- Making and dropping ---- */

static void give_pieces(struct table *t, uint32_t shard, uint32_t more)
{
    for (int most = 2; more && most; most--) {
        uint32_t next = cell_at(t, more)->piece.more;
        cell_give_back(t, shard, more);
        more = next;
    }
}

/* Stores the bytes behind the first piece, last cell first, so that each cell can name the next
 * one. */
static bool store_pieces(struct table *t, uint32_t shard, uint32_t owner, const char *rest,
                         size_t len, int64_t until, uint32_t *first)
{
    assert(owner && len <= HF_NAME_MAX);
    const size_t size = sizeof((struct name_piece *)0)->name;
    *first = 0;

    for (size_t from = len ? (len - 1) / size * size : 0; len; from -= size) {
        struct cell_ref ref = cell_take(t, shard, until);
        if (!ref.index) {
            give_pieces(t, shard, *first);
            return false;
        }
        struct name_piece *piece = &ref.cell->piece;
        memcpy(piece->name, rest + from, len - from);
        piece->resource = owner;
        piece->more = *first;
        cell_commit(ref.cell, CELL_NAME);
        *first = ref.index;
        len = from;
    }

    return true;
}

static struct cell_ref make_resource(struct table *t, uint64_t hash, const char *name, size_t len,
                                     int64_t until)
{
    assert(len && len <= HF_NAME_MAX);
    uint32_t shard = shard_of_hash(hash);
    struct cell_ref ref = cell_take(t, shard, until);
    if (!ref.index)
        return ref;

    struct resource *r = &ref.cell->resource;
    size_t n = len < sizeof r->name ? len : sizeof r->name;

    if (!store_pieces(t, shard, ref.index, name + n, len - n, until, &r->more)) {
        cell_give_back_cell(t, shard, ref.index, ref.cell);
        return (struct cell_ref){.index = 0};
    }

    uint64_t wall = (uint64_t)clock_wall_us();
    r->hash = hash;
    r->token = wall > t->shards[shard].token_floor ? wall : t->shards[shard].token_floor;
    r->ticket = 1;
    r->next_end = TIME_NEVER;
    r->used = r->capacity = r->declared = r->history = 0;
    r->idle = false;
    r->holders = r->waiters = r->past = (struct cell_list){0};
    r->name_len = (uint16_t)len;
    memcpy(r->name, name, n);
    cell_commit(ref.cell, CELL_RESOURCE);
    resource_chain(t, ref.index);

    return ref;
}

struct cell_ref resource_need_any(struct table *t, uint64_t hash, const char *name, size_t len,
                                  int64_t until)
{
    uint32_t index = resource_find(t, hash, name, len);
    if (!index)
        return make_resource(t, hash, name, len, until);

    struct cell_ref ref = {.index = index, .cell = cell_at(t, index)};
    resource_use(t, ref.cell);
    return ref;
}

/* Ends expired detached holds before the table grows: no client notices their end. */
static void reap_detached(struct table *t, uint32_t shard)
{
    assert(shard < LOCAL_SHARDS);
    nanos now = clock_boot();
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = cell_walk_most(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && cell_walk_goes_on(t, &left);
             i = cell_at(t, i)->resource.chain) {
            struct resource *r = &cell_at(t, i)->resource;
            if (!r->holders.count)
                continue;
            resource_reap(t, r, now);
            resource_admit(t, r, now);
            resource_settle(t, i);
        }
    }
}

bool resource_drop_idle(struct table *t, uint32_t shard)
{
    assert(shard <= LOCAL_REGISTRY);
    struct shard *s = &t->shards[shard];
    if (shard == LOCAL_REGISTRY)
        return false;

    if (!s->idle.tail && s->detached)
        reap_detached(t, shard);
    if (s->free.head)
        return true;

    uint32_t index = s->idle.tail;
    if (!index)
        return false;

    struct resource *r = &cell_at(t, index)->resource;
    if (r->token > s->token_floor)
        s->token_floor = r->token;
    uint32_t more = r->more;

    history_drop(t, r, 0);
    unchain(t, index);
    cell_list_remove(t, &s->idle, index);
    cell_give_back(t, shard, index);
    give_pieces(t, shard, more);

    return true;
}
