/* resource.c - resources by name, their holders and their queue. */
#include "resource.h"

#include "members.h"
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

static bool same_name(struct hf_table *t, const struct hf_resource *r, const char *name, size_t len)
{
    if (r->name_len != len)
        return false;
    size_t n = len < sizeof r->name ? len : sizeof r->name;
    if (memcmp(r->name, name, n) != 0)
        return false;
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

static uint32_t *bucket_of(struct hf_table *t, uint64_t hash)
{
    return &t->shards[hf_shard_of(hash)].bucket[hash / LOCAL_SHARDS % LOCAL_BUCKETS];
}

uint32_t hf_resource_find(struct hf_table *t, uint64_t hash, const char *name, size_t len)
{
    uint32_t left = hf_table_cells(t);
    for (uint32_t i = *bucket_of(t, hash); i && left--;) {
        const struct hf_resource *r = &hf_cell_at(t, i)->resource;
        if (r->hash == hash && same_name(t, r, name, len))
            return i;
        i = r->chain;
    }
    return 0;
}

void hf_resource_chain(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    uint32_t *bucket = bucket_of(t, r->hash);
    r->chain = *bucket;
    *bucket = index;
}

static void unchain(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    uint32_t *link = bucket_of(t, r->hash), left = hf_table_cells(t);
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
        uint32_t index = hf_cell_take(t, shard, until);
        if (!index) {
            give_pieces(t, shard, *first);
            return false;
        }
        struct hf_name_piece *piece = &hf_cell_at(t, index)->piece;
        memcpy(piece->name, rest + from, len - from);
        piece->resource = owner;
        piece->more = *first;
        hf_cell_commit(hf_cell_at(t, index), CELL_NAME);
        *first = index;
        len = from;
    }
    return true;
}

static uint32_t make_resource(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until)
{
    uint32_t shard = hf_shard_of(hash), index = hf_cell_take(t, shard, until);
    if (!index)
        return 0;
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    size_t n = len < sizeof r->name ? len : sizeof r->name;
    if (!store_pieces(t, shard, index, name + n, len - n, until, &r->more)) {
        hf_cell_give(t, shard, index);
        return 0;
    }
    uint64_t wall = (uint64_t)hf_clock_wall_us();
    r->hash = hash;
    r->token = wall > t->shards[shard].token_floor ? wall : t->shards[shard].token_floor;
    r->ticket = 1;
    r->next_end = HF_NEVER;
    r->used = r->capacity = 0;
    r->idle = false;
    r->holders = r->waiters = (struct hf_cells){0};
    r->name_len = (uint16_t)len;
    memcpy(r->name, name, n);
    hf_cell_commit(hf_cell_at(t, index), CELL_RESOURCE);
    hf_resource_chain(t, index);
    return index;
}

uint32_t hf_resource_need(struct hf_table *t, uint64_t hash, const char *name, size_t len, int64_t until)
{
    uint32_t index = hf_resource_find(t, hash, name, len);
    if (!index)
        return make_resource(t, hash, name, len, until);
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    if (r->idle)
        hf_cells_remove(t, &t->shards[hf_shard_of(hash)].idle, index);
    r->idle = false;
    return index;
}

void hf_resource_settle(struct hf_table *t, uint32_t index)
{
    struct hf_resource *r = &hf_cell_at(t, index)->resource;
    if (r->idle || r->holders.count || r->waiters.count)
        return;
    hf_cells_push(t, &t->shards[hf_shard_of(r->hash)].idle, index);
    r->idle = true;
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
    unchain(t, index);
    hf_cells_remove(t, &s->idle, index);
    hf_cell_give(t, shard, index);
    give_pieces(t, shard, more);
    return true;
}

/* ---- Holders and waiters ---- */

void hf_entry_notify(struct hf_table *t, uint32_t index)
{
    struct hf_entry *e = &hf_cell_at(t, index)->entry;
    atomic_fetch_add(&e->head.word, 1);
    if (e->cookie)
        hf_member_ready(t, e->client, index);
    else
        hf_futex_wake(&e->head.word, 1);
}

/* Takes a holder off its resource. */
static void remove_holder(struct hf_table *t, struct hf_resource *r, uint32_t index)
{
    struct hf_entry *e = &hf_cell_at(t, index)->entry;
    hf_cells_remove(t, &r->holders, index);
    r->used -= e->units;
    if (!r->holders.count)
        r->next_end = HF_NEVER;
}

/* A cell on a living client's ready list may not become anything else before the client has taken it off. */
static bool is_linked(struct hf_table *t, const struct hf_entry *e)
{
    return atomic_load(&e->linked) && e->client && hf_cell_state(hf_cell_at(t, e->client)) == CELL_CLIENT;
}

static void give_entry(struct hf_table *t, uint32_t index)
{
    struct hf_entry *e = &hf_cell_at(t, index)->entry;
    if (is_linked(t, e)) {
        e->cookie = 0;
        hf_cell_commit(hf_cell_at(t, index), CELL_ENDED);
        return;
    }
    if (!e->client)
        t->shards[e->head.shard].detached--;
    hf_cell_give(t, e->head.shard, index);
}

/* A hold is over without its client's doing. The cell stays the client's: it may be in the client's ready list, and the
 * client's handle still points to it. Without a client nobody does. */
static void end_holder(struct hf_table *t, struct hf_resource *r, uint32_t index)
{
    remove_holder(t, r, index);
    if (hf_cell_at(t, index)->entry.client)
        hf_cell_commit(hf_cell_at(t, index), CELL_ENDED);
    else
        give_entry(t, index);
}

void hf_resource_reap(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    if (now < r->next_end)
        return;
    int64_t next_end = HF_NEVER;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *e = &hf_cell_at(t, i)->entry;
        if (e->end <= now)
            end_holder(t, r, i);
        else if (e->end < next_end)
            next_end = e->end;
    }
    r->next_end = next_end;
}

void hf_resource_reap_dead(struct hf_table *t, struct hf_resource *r)
{
    HF_EACH_CELL(t, i, &r->holders)
    {
        uint32_t client = hf_cell_at(t, i)->entry.client;
        if (client && !hf_member_lives(t, client))
            end_holder(t, r, i);
    }
}

void hf_resource_grant(struct hf_table *t, struct hf_resource *r, uint32_t index, hf_nanos now, bool told)
{
    union hf_cell *cell = hf_cell_at(t, index);
    struct hf_entry *e = &cell->entry;
    if (hf_cell_state(cell) == CELL_WAITING)
        hf_cells_remove(t, &r->waiters, index);
    e->token = ++r->token;
    e->since = now;
    e->end = now + e->ttl;
    hf_cell_commit(cell, CELL_HELD);
    hf_cells_append(t, &r->holders, index);
    r->used += e->units;
    if (e->end < r->next_end)
        r->next_end = e->end;
    if (!told)
        hf_entry_notify(t, index);
}

static bool fits(const struct hf_resource *r, const struct hf_entry *e)
{
    return (uint64_t)r->used + e->units <= r->capacity;
}

void hf_resource_admit(struct hf_table *t, struct hf_resource *r, hf_nanos now)
{
    uint32_t left = hf_table_cells(t);
    while (r->waiters.head && left--) {
        struct hf_entry *first = &hf_cell_at(t, r->waiters.head)->entry;
        if (!fits(r, first))
            break;
        hf_resource_grant(t, r, r->waiters.head, now, false);
    }
    if (!r->waiters.head)
        return;
    /* The first in line looks when the next hold ends, for a holder that is stopped frees nothing itself. */
    struct hf_entry *first = &hf_cell_at(t, r->waiters.head)->entry;
    if (r->next_end < first->check_at) {
        first->check_at = r->next_end;
        hf_entry_notify(t, r->waiters.head);
    }
}

void hf_entry_drop(struct hf_table *t, uint32_t index, hf_nanos now)
{
    union hf_cell *cell = hf_cell_at(t, index);
    uint32_t state = hf_cell_state(cell), ri = cell->entry.resource;
    struct hf_resource *r = &hf_cell_at(t, ri)->resource;
    if (state == CELL_WAITING) {
        hf_cells_remove(t, &r->waiters, index);
        atomic_fetch_add(&cell->head.word, 1); /* a caller may be parked on it while another thread cancels */
        if (!cell->entry.cookie)
            hf_futex_wake(&cell->head.word, 1);
    } else if (state == CELL_HELD) {
        remove_holder(t, r, index);
    }
    give_entry(t, index);
    if (state == CELL_ENDED)
        return; /* its resource has long gone on, or away */
    hf_resource_reap(t, r, now);
    hf_resource_admit(t, r, now);
    hf_resource_settle(t, ri);
}
