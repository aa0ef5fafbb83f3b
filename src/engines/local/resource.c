/* resource.c - resources by name, their holders and their queue. */
#include "resource.h"

#include "holders.h"
#include "past.h"
#include "sys/clock.h"

#include <string.h>

/* ---- Names ---- */

uint64_t hf_name_hash(const char *name, size_t len)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)name[i]) * 1099511628211u;
    h ^= h >> 32; /* FNV's low bits are weak on short names, and shard and bucket are taken from them */
    return h * 0x9e3779b97f4a7c15u ^ h >> 29;
}

bool hf_name_same_rest(struct hf_table *t, const struct hf_resource *r, const char *name, size_t len)
{
    size_t n = sizeof r->name;
    for (uint32_t more = r->more; n < len;) {
        const struct hf_name_piece *piece = &hf_cell_at(t, more)->piece;
        size_t part = len - n < sizeof piece->name ? len - n : sizeof piece->name;
        if (memcmp(piece->name, name + n, part) != 0)
            return false;
        n += part;
        more = piece->more;
    }
    return true;
}

void hf_resource_name(struct hf_table *t, const struct hf_resource *r, char name[HF_NAME_MAX + 1])
{
    size_t len = r->name_len <= HF_NAME_MAX ? r->name_len : HF_NAME_MAX;
    size_t n = len < sizeof r->name ? len : sizeof r->name;
    memcpy(name, r->name, n);
    for (uint32_t more = r->more; n < len;) {
        const struct hf_name_piece *piece = &hf_cell_at(t, more)->piece;
        size_t part = len - n < sizeof piece->name ? len - n : sizeof piece->name;
        memcpy(name + n, piece->name, part);
        n += part;
        more = piece->more;
    }
    name[len] = 0;
}

/* It is not the first one of its bucket. */
static uint32_t find_behind(struct hf_table *t, const struct hf_resource *r, uint64_t hash, const char *name,
                            size_t len)
{
    uint32_t left = hf_table_cells(t);
    for (uint32_t i = r->chain; i && left--; i = r->chain) {
        r = &hf_cell_at(t, i)->resource;
        if (hf_resource_named(t, r, hash, name, len))
            return i;
    }
    return 0;
}

uint32_t hf_resource_find(struct hf_table *t, uint64_t hash, const char *name, size_t len)
{
    uint32_t first = *hf_bucket_of(t, hash);
    if (!first)
        return 0;
    const struct hf_resource *r = &hf_cell_at(t, first)->resource;
    return hf_resource_named(t, r, hash, name, len) ? first : find_behind(t, r, hash, name, len);
}

void hf_resource_chain(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    uint32_t *bucket = hf_bucket_of(t, r->hash);
    r->chain = *bucket;
    *bucket = index;
}

static void unchain(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    uint32_t *link = hf_bucket_of(t, r->hash), left = hf_table_cells(t);
    while (*link && *link != index && left--)
        link = &hf_cell_at(t, *link)->resource.chain;
    if (*link == index)
        *link = r->chain;
}

/* ---- Making and dropping ---- */

static void give_pieces(struct hf_table *t, uint32_t shard, uint32_t more)
{
    for (int most = 2; more && most; most--) {
        uint32_t next = hf_cell_at(t, more)->piece.more;
        hf_cell_give(t, shard, more);
        more = next;
    }
}

/* The bytes behind the first piece, last cell first, so that each can point to the next one. */
static bool store_pieces(struct hf_table *t, uint32_t shard, uint32_t owner, const char *rest, size_t len,
                         int64_t until, uint32_t *first)
{
    const size_t size = sizeof((struct hf_name_piece *)0)->name;
    *first = 0;
    for (size_t from = len ? (len - 1) / size * size : 0; len; from -= size) {
        struct hf_spot spot = hf_cell_take(t, shard, until);
        if (!spot.index) {
            give_pieces(t, shard, *first);
            return false;
        }
        struct hf_name_piece *piece = &spot.cell->piece;
        memcpy(piece->name, rest + from, len - from);
        piece->resource = owner;
        piece->more = *first;
        hf_cell_commit(spot.cell, CELL_NAME);
        *first = spot.index;
        len = from;
    }
    return true;
}

static struct hf_spot make_resource(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until)
{
    uint32_t shard = hf_shard_of(hash);
    struct hf_spot spot = hf_cell_take(t, shard, until);
    if (!spot.index)
        return spot;
    struct hf_resource *r = &spot.cell->resource;
    size_t n = len < sizeof r->name ? len : sizeof r->name;
    if (!store_pieces(t, shard, spot.index, name + n, len - n, until, &r->more)) {
        hf_cell_give_cell(t, shard, spot.index, spot.cell);
        return (struct hf_spot){.index = 0};
    }
    uint64_t wall = (uint64_t)hf_clock_wall_us();
    r->hash = hash;
    r->token = wall > t->shards[shard].token_floor ? wall : t->shards[shard].token_floor;
    r->ticket = 1;
    r->next_end = HF_NEVER;
    r->used = r->capacity = r->declared = r->history = 0;
    r->idle = false;
    r->holders = r->waiters = r->past = (struct hf_cells){0};
    r->name_len = (uint16_t)len;
    memcpy(r->name, name, n);
    hf_cell_commit(spot.cell, CELL_RESOURCE);
    hf_resource_chain(t, spot.index);
    return spot;
}

struct hf_spot hf_resource_need_any(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until)
{
    uint32_t index = hf_resource_find(t, hash, name, len);
    if (!index)
        return make_resource(t, hash, name, len, until);
    struct hf_spot spot = {.index = index, .cell = hf_cell_at(t, index)};
    hf_resource_use(t, spot.cell);
    return spot;
}

/* Holds that no client answers for end unnoticed; a table that is about to grow looks for them first. */
static void reap_detached(struct hf_table *t, uint32_t shard)
{
    hf_nanos now = hf_clock_boot();
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++) {
        uint32_t left = hf_table_cells(t);
        for (uint32_t i = t->shards[shard].bucket[b]; i && left--; i = hf_cell_at(t, i)->resource.chain) {
            struct hf_resource *r = &hf_cell_at(t, i)->resource;
            if (!r->holders.count)
                continue;
            hf_resource_reap(t, r, now);
            hf_resource_admit(t, r, now);
            hf_resource_settle(t, i);
        }
    }
}

bool hf_resource_drop_idle(struct hf_table *t, uint32_t shard)
{
    struct hf_shard *s = &t->shards[shard];
    if (shard == LOCAL_REGISTRY)
        return false;
    if (!s->idle.tail && s->detached)
        reap_detached(t, shard);
    if (s->free.head)
        return true;
    uint32_t index = s->idle.tail;
    if (!index)
        return false;
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    if (r->token > s->token_floor)
        s->token_floor = r->token;
    uint32_t more = r->more;
    hf_past_drop(t, r, 0);
    unchain(t, index);
    hf_cells_remove(t, &s->idle, index);
    hf_cell_give(t, shard, index);
    give_pieces(t, shard, more);
    return true;
}
