/* op_table.c - the ops that an engine knows, found by their attempt ids. */
#include "op_table.h"

#include <assert.h>
#include <stdlib.h>

enum {
    SLAB = 64, /* number of known ops that are allocated together */
    FIRST_BUCKETS = 64
};

struct op_slab {
    struct op_slab *next;
    void *known[]; /* room for structs of `size` bytes each */
};

static struct known_op **bucket_of(const struct op_table *table, const struct id *attempt)
{
    uint32_t hash;
    memcpy(&hash, attempt, sizeof hash);
    return &table->bucket[hash & (table->buckets - 1)];
}

static void enter(struct op_table *table, struct known_op *known)
{
    struct known_op **bucket = bucket_of(table, &known->op->attempt);
    known->same_hash = *bucket;
    *bucket = known;
}

/* Keeps as many buckets as ops. Without memory for more, the chains grow instead; returns false if
 * there is no bucket at all. */
static bool make_buckets(struct op_table *table)
{
    if (table->count < table->buckets)
        return true;

    uint32_t had = table->buckets, more = had ? 2 * had : FIRST_BUCKETS;
    struct known_op **old = table->bucket, **bucket = calloc(more, sizeof *bucket);
    if (!bucket)
        return old != NULL;

    assert((more & (more - 1)) == 0); /* bucket_of() needs a power of two */
    table->bucket = bucket;
    table->buckets = more;

    for (uint32_t i = 0; i < had; i++)
        for (struct known_op *known = old[i], *next; known; known = next) {
            next = known->same_hash;
            enter(table, known);
        }
    free(old);
    return true;
}

static bool make_room(struct op_table *table)
{
    assert(table->size >= sizeof(struct known_op) && table->size % sizeof(void *) == 0);
    struct op_slab *slab = malloc(sizeof *slab + SLAB * table->size);
    if (!slab)
        return false;

    slab->next = table->slabs;
    table->slabs = slab;
    for (size_t i = 0; i < SLAB; i++) {
        struct known_op *known = (void *)((char *)slab->known + i * table->size);
        known->same_hash = table->unused;
        table->unused = known;
    }

    return true;
}

struct known_op *op_table_note(struct op_table *table, struct engine_op *op)
{
    assert(!op->engine_state);
    bool has_room = table->unused || make_room(table);
    if (!has_room || !make_buckets(table))
        return NULL;

    struct known_op *known = table->unused;
    table->unused = known->same_hash;
    *known = (struct known_op){.op = op};
    enter(table, known);
    table->count++;
    op->engine_state = known;
    return known;
}

void op_table_drop(struct op_table *table, struct known_op *known)
{
    struct known_op **at = bucket_of(table, &known->op->attempt);
    assert(table->count > 0 && known->op->engine_state == known);
    while (*at != known)
        at = &(*at)->same_hash;
    *at = known->same_hash;

    known->op->engine_state = NULL;
    known->same_hash = table->unused;
    table->unused = known;
    table->count--;
}

static struct known_op *first_with(struct known_op *known, const struct id *attempt)
{
    while (known && !id_same(&known->op->attempt, attempt))
        known = known->same_hash;
    return known;
}

struct known_op *op_table_find(const struct op_table *table, const struct id *attempt)
{
    return table->buckets ? first_with(*bucket_of(table, attempt), attempt) : NULL;
}

struct known_op *op_table_next(const struct known_op *known)
{
    return first_with(known->same_hash, &known->op->attempt);
}

void op_table_free(struct op_table *table)
{
    for (struct op_slab *slab = table->slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
    free(table->bucket);
    *table = (struct op_table){.size = table->size};
}
